import pytest

from agentwrap.policy.questions import Connect, Exec, Family, Lookup, Question, Read, Unix, Write


@pytest.mark.parametrize(
    ("question", "told"),
    [
        (Connect("a.example", 443), "connect a.example:443"),
        (Connect("::1", 443), "connect [::1]:443"),
        (Connect("[::1]", 443), "connect [::1]:443"),
        (Connect("192.0.2.1", 9, transport="udp"), "connect 192.0.2.1:9/udp"),
        (Lookup("a.example"), "lookup a.example"),
        (Unix("@x"), "unix @x"),
        (Family("vsock"), "family vsock"),
        (Write("/w/a"), "write /w/a"),
        (Read("/w/a"), "read /w/a"),
        (Exec("/w/a"), "exec /w/a"),
    ],
)
def test_a_question_is_told_as_it_is_asked(question: Question, told: str) -> None:
    assert str(question) == told
