"""Contents between arrival and event: what a part names is in the file, whatever was forgotten meanwhile."""

import hashlib
import json
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st
from recording.redact.fakes import fakes

from agentwrap.events import Content
from agentwrap.recording import contents
from agentwrap.recording.contents import Contents
from agentwrap.recording.redact import Redactor

KEY = bytes(range(32))
# Some differ in a secret alone, and one looks as such a pair does after redaction.
DATA = [b"a" * 40, b"b" * 60, b"c", b"", *(b"password = 'correct%dhorse' " % n for n in (7, 8))]
DATA += [Redactor(KEY).clean(DATA[4]), b"x" * 500, *(b"%d" % n * 30 for n in range(6))]


def content(number: int) -> Content:
    return Content(hashlib.sha256(DATA[number]).digest(), DATA[number], "body")


steps = st.one_of(
    st.tuples(st.just("add"), st.integers(0, len(DATA) - 1)),
    st.tuples(st.just("name"), st.integers(0, len(DATA) - 1)),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(steps, max_size=60), st.integers(1, 8), st.integers(10, 400))
def test_what_is_named_is_in_the_file(what: list[tuple[str, int]], remembered: int, waiting_bytes: int) -> None:
    with mock.patch.multiple(contents, _REMEMBERED=remembered, _WAITING_BYTES=waiting_bytes):
        made = Contents(Redactor(KEY), keep_bytes=True)
        file: dict[bytes, bytes] = {}
        for step, number in what:
            sent = content(number)
            if step == "add":
                made.add(sent)
                continue
            stored = made.lookup(sent.sha)
            if stored is None:
                continue
            data = made.take(stored.sha256)
            if data is not None:
                file[stored.sha256] = data
            assert hashlib.sha256(file[stored.sha256]).digest() == stored.sha256
            assert stored.redacted == (file[stored.sha256] != sent.data)
        assert made._waiting_bytes == sum(len(data) for _, data in made._waiting.values())
        assert len(made._known) <= remembered


def test_a_content_that_was_just_added_can_be_named() -> None:
    with mock.patch.multiple(contents, _REMEMBERED=1, _WAITING_BYTES=1):
        made = Contents(Redactor(KEY), keep_bytes=True)
        for number in range(len(DATA)):
            made.add(content(number))
            stored = made.lookup(content(number).sha)
            assert stored is not None
            assert made.take(stored.sha256) is not None


def test_a_message_that_became_a_file_can_be_compared_like_any_file() -> None:
    made = Contents(Redactor(KEY), keep_bytes=True)
    message = content(0)
    made.add(message)
    made.add(Content(message.sha, message.data, "after"))
    stored = made.lookup(message.sha)
    assert stored is not None
    assert stored.keyed == Redactor(KEY).keyed(message.data)


def test_a_file_that_turns_out_to_be_a_stream_is_looked_at_as_one() -> None:
    secret = fakes()["github-token ghp_"]
    lines = [json.dumps({"delta": part}).encode() + b"\n" for part in (secret[:9], secret[9:])]
    data = b"".join(lines)
    first = Content(hashlib.sha256(data).digest(), data, "after")
    begins = (data.index(secret[:9].encode()), data.index(secret[9:].encode()))
    places = (begins[0], begins[0] + 9, begins[1], begins[1] + len(secret) - 9)
    made = Contents(Redactor(KEY), keep_bytes=True)
    made.add(first)
    before = made.lookup(first.sha)
    made.add(Content(first.sha, data, "body", (places,)))
    after = made.lookup(first.sha)
    assert before is not None
    assert after is not None
    assert (before.redacted, after.redacted, after.keyed) == (False, True, before.keyed)
    stored = made.take(after.sha256)
    assert stored is not None
    assert secret[9:].encode() not in stored
    assert made.take(before.sha256) is None
    logged = data.replace(b"{", b"data: {")
    log = Content(hashlib.sha256(logged).digest(), logged, "after")
    made.add(log)
    found = made.lookup(log.sha)
    assert found is not None
    assert found.redacted
