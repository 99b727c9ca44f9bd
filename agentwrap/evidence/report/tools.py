"""Control 6: are tool definitions unchanged, unless somebody reviewed the change? Pure.

Digests are computed again from the definitions' bytes. A review shows in the policy: it pins the new digest.
"""

from collections.abc import Callable
from hashlib import sha256

from agentwrap.evidence.report.controls import Control, Test
from agentwrap.evidence.report.facts import MCP, Facts
from agentwrap.evidence.report.fields import raw, shown, word
from agentwrap.evidence.report.said import raw_result
from agentwrap.evidence.report.story import Story
from agentwrap.mcp.normal_form import tool_digest
from agentwrap.mcp.strict import listed_tools
from agentwrap.policy.layers import pinned_digest
from agentwrap.rows import Row

KIND = "mcp.tool"
_MOST = 100_000
_MOST_LISTED = 10_000


class Tools:
    """The control. Afterwards `listings` has, by server, the definitions of pinned tools with the first row of each."""

    def __init__(self, facts: Facts, definition: Callable[[Row], bytes | None]) -> None:
        self._facts, self._definition = facts, definition
        self._digests: dict[tuple[bytes, bytes], tuple[int, str]] = {}
        self._told: set[tuple[bytes, str]] = set()
        self._too_many = False
        self._unreadable = any(one.unreadable for one in facts.policies)
        self._kept: set[tuple[bytes, bytes, bytes]] = set()
        self.listings: dict[bytes, list[tuple[int, bytes]]] = {}
        self._test = Test(
            "tools",
            "The digest of each definition was computed again from its recorded bytes in normal form and compared with "
            "its row, with the listing before, and with what the policy's text pins; listings were read again for "
            "tools without a row.",
        )  # fmt: skip

    def take(self, row: Row) -> None:
        """One tool, as it was listed."""
        data, test = row.data, self._test
        if word(data, "change") == "removed":
            return
        test.population += 1
        server, name = raw(data, "server"), raw(data, "name")
        told = f"{shown(server)} {shown(name)}"
        definition = self._definition(row)
        if definition is None:
            test.unclear("its definition was not kept as it came", row.seq, about=told)
            return
        digest = tool_digest(definition)
        if digest != word(data, "digest"):
            test.fails("its row has another digest than its definition", row.seq, about=told)
        if len(self._told) < _MOST:
            self._told.add((server, digest))
        else:
            self._too_many = True
        pin = pinned_digest(self._facts.layers, shown(server), shown(name))
        if pin:
            self._keep(row, server, name, definition)
        self._compare(row, (server, name), digest, pin, told)

    def _keep(self, row: Row, server: bytes, name: bytes, definition: bytes) -> None:
        """What a pin says changes with the first listing of a definition, never with another one of the same."""
        key = server, name, sha256(definition).digest()
        if key in self._kept:
            return
        if len(self._kept) >= _MOST_LISTED:
            self._test.unclear("more definitions of pinned tools were listed than were looked at", row.seq)
            return
        self._kept.add(key)
        self.listings.setdefault(server, []).append((row.seq, definition))

    def listed(self, story: Story) -> None:
        """The answer to a `tools/list`: every tool in it has to have a row."""
        for definition in listed_tools(raw_result(story.listing)) if story.listing else ():
            if (story.server, tool_digest(definition)) not in self._told and not self._too_many:
                self._test.fails("a tool was listed that no row tells of", *story.rows, about=story.name)
                return

    def _compare(self, row: Row, key: tuple[bytes, bytes], digest: str, pin: str, told: str) -> None:
        test = self._test
        before = self._digests.get(key)
        if before is None and len(self._digests) >= _MOST:
            test.unclear("more tools were listed than were looked at", row.seq)
            return
        self._digests[key] = (row.seq, digest)
        changed = before is not None and before[1] != digest
        since = before[0] if before is not None else 0
        if pin and digest != pin:
            test.fails("it is not what the policy pins", since, row.seq, about=told)
        elif changed and not pin and self._unreadable:
            test.unclear("it changed, and what the policy pins could not be read", since, row.seq, about=told)
        elif changed and not pin:
            test.fails("it changed, and no policy pins what it is now", since, row.seq, about=told)
        elif changed:
            test.note(f"a change of {told} is what the policy pins")
        claimed = word(row.data, "change") or "new"
        if changed and claimed != "changed":
            test.fails(f"its row says `{claimed}`, and it changed", since, row.seq, about=told)

    def result(self) -> Control:
        """The control's outcome."""
        self._facts.limits(self._test, MCP)
        return self._test.result()
