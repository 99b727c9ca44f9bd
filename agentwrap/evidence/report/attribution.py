"""Control 2: is every call attributed to an agent, the person it acts for, a process and what led to it? Pure."""

from collections.abc import Callable

from agentwrap.evidence.report.controls import Control, Test
from agentwrap.evidence.report.facts import MCP, Facts
from agentwrap.evidence.report.fields import shown
from agentwrap.evidence.report.principal import Principal
from agentwrap.evidence.report.said import clipped
from agentwrap.evidence.report.story import Called, Story
from agentwrap.rows import Span

_DEEPEST = 1000
_REMEMBERED = 50_000


class Attribution:
    """The control. `span_of`: a span by its id."""

    def __init__(self, facts: Facts, principal: Principal, span_of: Callable[[str], Span | None]) -> None:
        self._facts, self._principal, self._span_of = facts, principal, span_of
        self._lineages: dict[str, str] = {}
        self._test = Test(
            "attributed",
            "Each request was read again from its bytes and compared with its call row; agent and person were compared "
            "with the policy's text, which also names them for rows that do not, and the process was followed, exec by "
            "exec, to the command of the run.",
        )  # fmt: skip

    def take(self, story: Story) -> None:
        """One call."""
        story.limit(self._test)
        if not (story.called or story.requests):
            return
        test = self._test
        test.population += 1
        if not story.called:
            test.fails("a request passed that no call row tells of", *story.rows, about=story.name)
            return
        called = story.called[0]
        if len(story.called) > 1:
            test.fails("two call rows have this id", called.seq, story.called[1].seq, about=story.name)
        self._named(called, story)
        if wrong := self._lineage(called.span):
            test.fails(wrong, called.seq, about=story.name)
        self._as_said(called, story)

    def _named(self, called: Called, story: Story) -> None:
        for what, found, expected in (
            ("agent", called.agent, self._principal.agent),
            ("person", called.on_behalf_of, self._principal.on_behalf_of),
        ):
            if not found and expected == "":
                self._test.fails(f"no {what} is named", called.seq, about=story.name)
            elif not found and expected:
                continue  # the run has one policy, and it says so for every call
            elif expected is None:
                self._test.unclear(f"the policy's text does not tell which {what} it is", called.seq, about=found)
            elif found != expected:
                self._test.fails(f"it names another {what} than the policy", called.seq, about=f"{found}, {expected}")

    def _as_said(self, called: Called, story: Story) -> None:
        """Whether the row is about the call that was made."""
        request = story.request
        if request is None:
            self._test.unclear("the request itself is not in the recording", called.seq, about=story.name)
        elif request.said is None:
            why = "cannot be read" if request.kept else "was not kept as it came"
            self._test.unclear(f"the request {why}", called.seq, request.seq, about=story.name)
        else:
            told = request.said
            pairs = (
                ("method", called.method, told.method), ("id", shown(called.id), shown(told.id)),
                ("tool", called.tool, clipped(told.tool)), ("digest of the arguments", called.digest, told.digest),
            )  # fmt: skip
            for what, of_row, of_bytes in pairs:
                if of_row != of_bytes:
                    self._test.fails(f"the call row has another {what} than the request", called.seq, request.seq,
                                     about=f"{of_row}, {of_bytes}")  # fmt: skip

    def _lineage(self, span: str) -> str:
        """What is wrong with the way from a process up to the run."""
        if span not in self._lineages:
            if len(self._lineages) >= _REMEMBERED:
                self._lineages.clear()
            self._lineages[span] = self._find(span)
        return self._lineages[span]

    def _find(self, span: str) -> str:
        if span in ("", "run"):
            return "no process is named"
        passed: set[str] = set()
        while span != "run":
            found = self._span_of(span)
            if found is None or found.kind != "process":
                return f"the process {span} is not in the recording"
            if not passed and not found.name:
                return f"nothing tells which program {span} was"
            passed.add(span)
            span = found.parent or ""
            if span in passed or len(passed) > _DEEPEST:
                return "its processes lead nowhere"
        return ""

    def result(self) -> Control:
        """The control's outcome."""
        self._facts.limits(self._test, ("process", "exec", *MCP))
        return self._test.result()
