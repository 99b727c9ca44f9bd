"""Every key a policy may have: its type, what it is when left out, what it means. The reference is made from this.

Also the keys that are planned and would change nothing today: whoever writes one believes in a protection that is not
there, so they are refused by name.
"""

from typing import Literal

import msgspec

Type = Literal["1", "text", "mode", "default", "texts", "hosts", "paths", "table"]


class Key(msgspec.Struct, frozen=True):
    """One key of one table; `table` is its dotted name, empty for the top."""

    table: str
    name: str
    type: Type
    meaning: str
    otherwise: str = ""
    required: bool = False

    @property
    def path(self) -> str:
        """The dotted name."""
        return f"{self.table}.{self.name}" if self.table else self.name


_DEFAULT = "what happens to what no list names: `allow` or `deny`"
_DENY_FIRST = "asked before `allow`"


def _paths(table: str, act: str) -> tuple[Key, ...]:
    return (
        Key(table, "default", "default", _DEFAULT, "`deny`"),
        Key(table, "allow", "paths", f"what may be {act}", "nothing"),
        Key(table, "deny", "paths", f"what may not be {act}; {_DENY_FIRST}", "nothing"),
    )


KEYS: tuple[Key, ...] = (
    Key("", "version", "1", "version of the policy language: `1`", required=True),
    Key("", "name", "text", "how decisions and reports call this policy", required=True),
    Key("", "mode", "mode", "what becomes of a denial: `observe` (told), `ask` (held), `enforce` (refused)",
        required=True),
    Key("", "agent", "text", "who acts, for attribution", "nobody in particular"),
    Key("", "on_behalf_of", "text", "for whom: a name, or `env:NAME`", "nobody in particular"),
    Key("", "require", "texts", "what has to be covered, and how strongly, as in `check --require`",
        "the kinds that the policy restricts"),
    Key("", "network", "table", "connections, lookups, sockets", "`deny` all; in mode `observe` `allow` all"),
    Key("", "files", "table", "files, by name", "as its two tables"),
    Key("", "exec", "table", "programs, by the path of what is run", "`allow` all"),
    Key("", "model", "table", "whose TLS is ended, so that model calls can be read", "the known model hosts"),
    Key("network", "default", "default", _DEFAULT, "`deny`"),
    Key("network", "allow", "hosts", "hosts that may be reached", "nothing"),
    Key("network", "deny", "hosts", f"hosts that may not be reached; {_DENY_FIRST}", "nothing"),
    Key("network", "unix", "paths", "unix sockets of the machine that may be reached; abstract ones as `@name`",
        "nothing"),
    Key("files", "write", "table", "content, names, modes, owners, links, folders",
        "`deny` all; in mode `observe` `allow` all"),
    Key("files", "read", "table", "content", "`allow` all"),
    *_paths("files.write", "changed"),
    *_paths("files.read", "read"),
    *_paths("exec", "run"),
    Key("model", "intercept", "hosts", "hosts whose TLS is ended besides the known model hosts; it allows none of them",
        "none"),
    Key("model", "pass", "hosts", "hosts whose TLS goes through unread, though they would be read", "none"),
)  # fmt: skip

# Known, and without effect so far.
PLANNED: dict[str, str] = {
    "mcp": "calls to MCP servers are not relayed yet, so nothing could judge them",
    "record": "what is recorded is chosen with the options of `agentwrap run`",
}


def keys_of(table: str) -> dict[str, Key]:
    """The keys of one table by name."""
    return {key.name: key for key in KEYS if key.table == table}
