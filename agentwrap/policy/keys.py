"""Every key a policy may have: its type, what it is when left out, what it means. The reference is made from this.

Also the keys that are planned and would change nothing today: whoever writes one believes in a protection that is not
there, so they are refused by name.
"""

from typing import Literal

import msgspec

Type = Literal[
    "1", "text", "mode", "default", "texts", "hosts", "paths", "table",
    "tables", "globs", "word", "conditions", "value", "values", "expression", "some paths", "some hosts", "bytes",
    "digests",
]  # fmt: skip


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
    Key("", "mcp", "tables", "requests over MCP: the first `[[mcp]]` that fits decides", "`allow` all"),
    Key("", "mcp_pin", "tables", "tools whose definition somebody has looked at: calls of a changed one are denied",
        "none"),
    Key("", "approvals", "table", "who may answer what waits", "anybody who can reach the run, as it is told"),
    Key("", "record", "table", "what is recorded besides", "what the options say"),
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
    Key("mcp", "server", "text", "the server, a pattern: its name in the configuration; one that nobody declared is"
        " called `host:port`", required=True),
    Key("mcp", "tools", "globs", "tools, as patterns: the rule is about calls of these (`tools/call`)",
        "with `methods` left out as well: every request but those that open, list, keep and end a session"),
    Key("mcp", "methods", "globs", "requests, as patterns, from either side: `resources/read`, `prompts/get`,"
        " `sampling/createMessage`, `elicitation/create`, `roots/list`; not beside `tools`", "as `tools`"),
    Key("mcp", "when", "conditions", "a condition, or a list of which all have to hold", "whatever the arguments are"),
    Key("mcp", "decision", "word", "`allow`, `deny`, or `approve`: it waits for a human", required=True),
    Key("mcp", "reason", "text", "told to the model, and to whoever is asked", "nothing"),
    Key("mcp.when", "arg", "text", "the argument: `branch`, `a.b`, `files.*.path`, or a JSON pointer `/a/b`",
        "the arguments as a whole, for `max_bytes` alone"),
    Key("mcp.when", "equals", "value", "is this value", "not asked"),
    Key("mcp.when", "in", "values", "is one of these values", "not asked"),
    Key("mcp.when", "matches", "expression", "is a text in which this regular expression is found", "not asked"),
    Key("mcp.when", "path_within", "some paths", "is a path, or `file:` URL, that fits; without wildcards: that folder"
        " and all in it", "not asked"),
    Key("mcp.when", "host_within", "some hosts", "is a host, `host:port` or URL that fits", "not asked"),
    Key("mcp.when", "max_bytes", "bytes", "a text in UTF-8, or a value as JSON, has at most this many bytes",
        "not asked"),
    Key("mcp_pin", "server", "text", "the server's name", required=True),
    Key("mcp_pin", "tools", "digests", '`tool = "digest"`: SHA-256 of its definition, as `mcp.tool` has it',
        required=True),
    Key("approvals", "self", "default", "whether whom the agent acts for, or the agent by its name, may allow what it"
        " does; it is told in any case", "`allow`"),
    Key("record", "mcp_stdio", "globs", "command lines, as patterns, of MCP servers that no configuration names",
        "none"),
)  # fmt: skip

# Known, and without effect so far.
PLANNED: dict[str, str] = {}


def keys_of(table: str) -> dict[str, Key]:
    """The keys of one table by name."""
    return {key.name: key for key in KEYS if key.table == table}
