"""Permissions of the gateway, judged again by the policy's text: the other half of control 5. Pure.

Only what was allowed: a refusal may have more reasons than rules (a name that leads elsewhere, a closed gateway), and
lets nothing through.
"""

from agentwrap.evidence.report.asks import Asks
from agentwrap.evidence.report.controls import Test
from agentwrap.evidence.report.facts import Facts
from agentwrap.evidence.report.fields import number, text, word
from agentwrap.policy.hosts import HostError, parse_host, special
from agentwrap.policy.layers import decide_layers
from agentwrap.policy.questions import Answer, Connect, Lookup
from agentwrap.rows import Row

KINDS = ("net.decision", "dns.query")
_PUBLISHED = "--publish"  # it came in, and was wanted
_OTHERS = "(others)"
_APPROVED, _INNER = "built-in.approved", "built-in.inner"
_REMEMBERED = 50_000


class NetDecisions:
    """Judges rows of KINDS again, for a test that others add to, too."""

    def __init__(self, facts: Facts, asks: Asks, test: Test) -> None:
        self._facts, self._test = facts, test
        self._answers: dict[Connect | Lookup, Answer] = {}
        # What humans allowed: the question as the gateway asks it, and since which row.
        self._allowed: dict[str, int] = {}
        for ask, given in asks.approvals.items():
            asked = asks.asked.get(ask)
            if asked is not None and not asked.server:
                question = asked.question.partition(" at ")[0]
                self._allowed[question] = min(given.seq, self._allowed.get(question, given.seq))

    def take(self, row: Row) -> None:
        """One decision."""
        rule = text(row.data, "rule")
        if row.verdict != "allow" or not self._facts.policies or rule == _PUBLISHED:
            return
        self._test.population += number(row.data, "count", 1)
        if not self._facts.layers:
            self._test.unclear(self._facts.policies[0].unreadable or "there is no policy's text", row.seq)
            return
        question = self._question(row)
        if question is None:
            self._test.unclear("more was allowed than could be told apart", row.seq, about=row.subject)
        elif rule == _APPROVED and isinstance(question, Connect):
            self._approved(row, question)
        elif rule == _INNER and isinstance(question, Connect):
            if not _is_loopback(question.address or question.host):
                self._test.fails("it was allowed as the run's own, and is not", row.seq, about=str(question))
        else:
            self._judge(row, question)

    @staticmethod
    def _question(row: Row) -> Connect | Lookup | None:
        data = row.data
        if row.kind == "dns.query":
            name = text(data, "name")
            return Lookup(name) if name != _OTHERS else None
        host, address = text(data, "host"), text(data, "address")
        udp = word(data, "transport") == "udp"
        known = Connect(host, number(data, "port"), "udp" if udp else "tcp", address="" if address == host else address)
        return known if host != _OTHERS else None

    def _judge(self, row: Row, question: Connect | Lookup) -> None:
        answer = self._answers.get(question)
        if answer is None:
            if len(self._answers) >= _REMEMBERED:
                self._answers.clear()
            answer = self._answers[question] = decide_layers(self._facts.layers, question)
        if answer.verdict == "deny":
            self._test.fails("the rules deny it, and it was allowed", row.seq, about=str(question))
        elif answer.verdict == "unknown":
            self._test.unclear(answer.why, row.seq, about=str(question))

    def _approved(self, row: Row, question: Connect) -> None:
        host = f"[{question.host}]" if ":" in question.host else question.host
        since = self._allowed.get(f"connect to {host}:{question.port}")
        if since is None or since > row.seq:
            self._test.fails("it says that a human allowed it, and none did", row.seq, about=str(question))


def _is_loopback(host: str) -> bool:
    try:
        return special(parse_host(host)) == "loopback"
    except HostError:
        return False
