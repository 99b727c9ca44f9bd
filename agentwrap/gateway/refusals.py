"""What a refused program is told, in words that a person and a language model understand. Questions and answers in.

Knows how to say it. Refuses to know how it travels (`http_head`, `dns`) and to show anything that is not escaped.
"""

from agentwrap.policy.questions import Answer, Question
from agentwrap.text import clip, escape

_LONG = 400  # columns of any foreign text
_OURS = (
    "This answer comes from agentwrap, the program that this run is wrapped in. It does not come from the server:"
    " nothing was sent there."
)


def _lines(answer: Answer) -> list[str]:
    said = [f"Rule: {clip(str(answer.rule), _LONG)}"]
    if answer.why:
        said.append(f"Why: {clip(answer.why, _LONG)}")
    return said


def http_text(answer: Answer, question: Question, *, process: str = "") -> str:
    """The body of a 403. Several lines; the last one says how a person may allow it."""
    change = escape(answer.change) if answer.change else "ask the person who runs this"
    return "\n".join(
        [
            f"agentwrap denied: {clip(str(question), _LONG)}",
            "",
            _OURS,
            *_lines(answer),
            *([f"Process: {clip(process, _LONG)}"] if process else []),
            "Trying again, or in another way, gives the same answer.",
            f"A person may allow it: {clip(change, _LONG)}",
        ]
    )


def malformed_text(why: str) -> str:
    """The body of a 400: a request that could be understood in two ways cannot be judged."""
    return f"agentwrap denied a request that it cannot judge: {clip(why, _LONG)}.\n{_OURS}"


def other_host_text(asked: str, meant: str) -> str:
    """Why a request for `meant` on a connection to `asked` is refused."""
    return f"the connection was made to {clip(asked, _LONG)} and the request is for {clip(meant, _LONG)}"


def dns_text(answer: Answer, question: Question) -> str:
    """One line for the text of an extended DNS error (RFC 8914); short, the rule first."""
    return clip(f"agentwrap denied: {question}; rule {answer.rule}", 200)


def line(answer: Answer, question: Question) -> str:
    """One line for a log or a terminal."""
    change = f"; to allow: {answer.change}" if answer.change else ""
    return escape(f"agentwrap denied: {question} (rule {answer.rule}){change}")
