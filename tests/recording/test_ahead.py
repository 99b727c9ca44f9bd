"""Items that are looked at together are stored as if each had been looked at by itself."""

from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st
from recording.redact.fakes import fakes
from recordings import make

from agentwrap.events import Content, FileEdit, FileState, Gap, Item, McpCall, ProcessExec, Secrets
from agentwrap.recording.ahead import TOGETHER, Ahead
from agentwrap.recording.contents import Contents
from agentwrap.recording.encode import Columns, Encoder
from agentwrap.recording.redact import RedactOptions, Redactor

LEARNED = b"Zx9-learned-later-0815"
ABSENT = FileState(type="absent")
TEXTS = st.sampled_from(
    [
        *(b"some", b"words", b"in", b"which", b"there", b"is", b"none"),
        *(b"nothing", b"/srv/src/main.c", b"a token", b"https://h/x", b"user@host", b"half=", b"=\x00:", b""),
        *(b'{"password": "hunter22x"}', b"api_key = " + LEARNED, LEARNED, b"x" + LEARNED + b"y", b"short7!"),
        *(fakes()["github-token ghp_"].encode(), fakes()["github-token ghp_"].encode()[:12]),
        *(b"ticket-42", b"my ticket-42", b"https://bob:hunter22x@h/", b"-----BEGIN PRIVATE KEY-----abc", b"\xff\xfe"),
    ]
)


def content(data: bytes) -> Content:
    return Content(sha256(data).digest(), data, "body")


ITEMS = st.one_of(
    TEXTS.map(content),
    TEXTS.map(lambda text: Gap(at_ns=1, what="model", cause="unreadable", could_hide="", from_ns=1, detail=text)),
    TEXTS.map(lambda text: FileEdit(at_ns=1, path=text, change="create", before=ABSENT, after=ABSENT)),
    TEXTS.map(
        lambda text: McpCall(at_ns=1, call="k1", session="s1", server=b"x", method=b"m", id=b"1", arguments=text)
    ),
    TEXTS.map(
        lambda text: ProcessExec(
            at_ns=1, path=b"/bin/x", exe=b"/bin/x", argv=(b"x", text), cwd=b"/", uid=0, gid=0, euid=0
        )
    ),
    st.sampled_from([Secrets(((b"TOKEN", LEARNED),)), Secrets(((b"PIN_CODE", b"short7!"),)), Secrets(())]),
)
OPTIONS = st.sampled_from(
    [RedactOptions(), RedactOptions(names=("PIN_CODE",)), RedactOptions(patterns=("^ticket-42$",))]
)


def stored(items: list[Item], options: RedactOptions, together: int) -> list[Columns | tuple[object, bytes | None]]:
    redactor = Redactor(make.RUN_KEY, options)
    ahead = Ahead(redactor)
    contents = Contents(redactor, True, ahead.harmless)
    encoder = Encoder(redactor, contents.lookup, False, ahead.harmless)
    made: list[Columns | tuple[object, bytes | None]] = []
    for index, item in enumerate(items):
        if together and index % together == 0:
            ahead._resting = 0  # every time, here
            ahead.look(items[index : index + together])
        if isinstance(item, Secrets):
            for name, value in item.values:
                redactor.learn(name, value)
        elif isinstance(item, Content):
            contents.add(item)
            became = contents.lookup(item.sha)
            made.append((became, contents.take(became.sha256) if became is not None else None))
        else:
            made.append(encoder.columns(item))
    return made


@given(st.lists(ITEMS, max_size=40), OPTIONS, st.sampled_from([4, 7, TOGETHER]))
def test_together_is_as_one_by_one(items: list[Item], options: RedactOptions, together: int) -> None:
    assert stored(items, options, together) == stored(items, options, 0)


def test_what_is_learned_on_the_way_is_hidden_in_what_was_looked_at_before() -> None:
    redactor = Redactor(make.RUN_KEY)
    ahead = Ahead(redactor)
    items: list[Item] = [content(b"%d " % number + LEARNED) for number in range(8)]
    ahead.look(items)
    assert all(map(ahead.harmless, items))
    assert not ahead.harmless(content(b"0 " + LEARNED))  # the same bytes, but nobody looked at this one
    redactor.learn(b"TOKEN", LEARNED)
    assert not any(map(ahead.harmless, items))


def test_what_was_looked_at_in_vain_is_not_looked_at_again_for_a_while() -> None:
    ahead = Ahead(Redactor(make.RUN_KEY))
    fine: list[Item] = [content(b"%d" % number) for number in range(8)]
    ahead.look([*fine, content(b"the token: x1y2z3a4b5")])
    assert not any(map(ahead.harmless, fine))
    found = []
    for _ in range(20):
        ahead.look(fine)
        found.append(all(map(ahead.harmless, fine)))
    assert found == [False] * 16 + [True] * 4
