"""A secret that came in pieces, as the deltas of a stream do, is hidden wherever its pieces lie."""

import base64
import json
import random
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recording.redact.fakes import fakes
from recording.redact.test_redactor import ODD, forms, leaks
from recordings import conversation

from agentwrap.recording.redact import Redactor
from agentwrap.recording.redact.scattered import find_scattered

KEY = bytes(range(32))
FOUND = fakes()["anthropic-key sk-ant-"]


def stream(*texts: str, before: bytes = b"event: delta\ndata: ") -> tuple[bytes, tuple[int, ...]]:
    """Server-sent events with one piece of text in each, and where these lie."""
    data, places = b"", []
    for number, text in enumerate(texts):
        raw = json.dumps(text, ensure_ascii=number % 2 == 0)[1:-1].encode()
        data += before + b'{"type":"content_block_delta","delta":{"text":"'
        places += [len(data), len(data) + len(raw)]
        data += raw + b'"}}\n\n'
    return data, tuple(places)


def joined(data: bytes) -> str:
    """The text that a reader of the stream puts together."""
    lines = [line for line in data.split(b"\n") if line.startswith(b"data: ")]
    return "".join(json.loads(line[6:])["delta"]["text"] for line in lines)


def known(*secrets: str) -> Redactor:
    made = Redactor(KEY)
    for number, secret in enumerate(secrets):
        made.learn(b"SECRET_%d" % number, secret.encode())
    return made


@pytest.mark.parametrize("name", list(forms("x")))
def test_a_known_secret_in_every_form_split_at_every_place(name: str) -> None:
    made = known(ODD)
    text = "so: " + forms(ODD)[name].decode() + " and on"
    for at in range(1, len(text)):
        data, places = stream(text[:at], text[at:])
        cleaned = made.clean_scattered(data, (places,))
        together = joined(cleaned)
        assert not leaks(together.encode(), ODD), (at, together)
        assert not leaks(json.dumps(together).encode(), ODD), (at, together)
        assert together.startswith("so: ")
        assert together.endswith(" and on")
        assert "«redacted:env:" in together


def test_a_providers_credential_split_at_every_place_or_into_single_letters() -> None:
    text = f"the key is {FOUND}. Keep it"
    for at in range(1, len(text)):
        data, places = stream(text[:at], text[at:])
        together = joined(Redactor(KEY).clean_scattered(data, (places,)))
        assert together.startswith("the key is «redacted:anthropic-key:"), at
        assert together.endswith("». Keep it"), at
    data, places = stream(*text)
    cleaned = Redactor(KEY).clean_scattered(data, (places,))
    assert joined(cleaned) == Redactor(KEY).clean(text.encode()).decode()
    assert cleaned.count(b'"text":""') == len(FOUND) - 1


@pytest.mark.parametrize("secret", [ODD, FOUND, "hunter22-hunter"])
def test_arguments_of_a_tool_are_json_in_json(secret: str) -> None:
    made = known(secret)
    text = json.dumps({"command": f"curl -H 'authorization: Bearer {secret}' https://x.example", "n": 1})
    for at in range(1, len(text)):
        data, places = stream(text[:at], text[at:])
        arguments = json.loads(joined(made.clean_scattered(data, (places,))))
        assert not leaks(arguments["command"].encode(), secret), at
        assert arguments["n"] == 1


def test_what_surroundings_tell_is_found_across_pieces() -> None:
    data, places = stream("the pass", "word = 'cor", "rect.horse' is", " right")
    assert "rect.horse" not in joined(Redactor(KEY).clean_scattered(data, (places,)))


@given(st.text(min_size=1, max_size=30), st.text(max_size=8), st.text(max_size=8), st.booleans())
def test_escapes_are_hidden_whole(secret: str, before: str, after: str, ascii_only: bool) -> None:
    raw, first, last = (json.dumps(one, ensure_ascii=ascii_only)[1:-1] for one in (secret, before, after))
    try:
        data = (first + raw + last).encode()
        wanted = secret.encode()
    except UnicodeEncodeError:
        return
    at = len(before.encode(errors="surrogatepass"))

    def find(joined: bytes) -> list[tuple[int, int, str, bytes]]:
        assert joined[at : at + len(wanted)] == wanted
        return [(at, at + len(wanted), "k", wanted)]

    found = find_scattered(data, ((0, len(data)),), find)
    assert b"".join(data[start:end] for start, end, _, _ in found) == raw.encode()


def test_two_texts_and_what_lies_between_them() -> None:
    first, places = stream(FOUND[:20], FOUND[20:])
    second, more = stream(ODD[:7], ODD[7:])
    between = b'data: {"delta":{"text":"' + FOUND.encode() + b'"}}\n\n'
    moved = tuple(place + len(first) + len(between) for place in more)
    cleaned = known(ODD).clean_scattered(first + between + second, (places, moved))
    assert joined(cleaned).count("«redacted:") == 3
    assert not leaks(joined(cleaned).encode(), ODD)
    assert FOUND[8:30] not in joined(cleaned)


def test_what_is_learned_late_is_hidden_in_what_came_before() -> None:
    password = "correct9horse/battery"
    hidden = base64.b64encode(password.encode()).decode()
    data, places = stream(hidden[:9], hidden[9:], " then ", "password = '" + password[:9], password[9:] + "' !")
    cleaned = Redactor(KEY).clean_scattered(data, (places,))
    assert re.fullmatch("«redacted:[^»]*» then password = '«redacted:[^»]*»' !", joined(cleaned)), joined(cleaned)


@pytest.mark.parametrize("places", [(), (0,), (0, 5), (5, 2, 8, 9), (0, 5, 3, 9), (0, 5, 8, 10_000), (-4, 2, 3, 5)])
def test_places_that_fit_nothing_are_left_out(places: tuple[int, ...]) -> None:
    data, _ = stream(FOUND, "x")
    assert joined(Redactor(KEY).clean_scattered(data, (places,))).startswith("«redacted:anthropic-key:")


@given(st.lists(st.integers(0, 12), max_size=12), st.data())
@settings(deadline=None)
def test_spans_cover_the_same_bytes(sizes: list[int], draw: st.DataObject) -> None:
    data, places = b"", []
    for size in sizes:
        data += b"--"
        places += [len(data), len(data) + size]
        data += bytes(range(97, 97 + size))
    text = b"".join(data[start:end] for start, end in zip(places[::2], places[1::2], strict=True))
    start = draw.draw(st.integers(0, len(text)))
    end = draw.draw(st.integers(start, len(text)))
    found = find_scattered(data, (tuple(places),), lambda joined: [(start, end, "k", joined[start:end])])
    if sizes:
        assert b"".join(data[first:last] for first, last, _, _ in found) == text[start:end]
        assert [kind for _, _, kind, _ in found] == ["k", *[""] * (len(found) - 1)][: len(found)]


def test_lines_that_return_are_looked_at_all_the_same() -> None:
    line = b"event: " + FOUND.encode() + b"\n"
    data, places = stream(*["a word "] * 50)
    cleaned = Redactor(KEY).clean_scattered(data + line * 50, (places,))
    assert cleaned.count(b"\xc2\xabredacted:anthropic-key:") == 50
    made = known("two lines-of 1\nsecret words 2")
    text = b"x: two lines-of 1\nsecret words 2\n" + b"y\n" * 200
    assert b"redacted:env" in made.clean_scattered(b"two lines-of 1\n" + text, (places[:2],))


def test_innocent_streams_are_the_same_object() -> None:
    data, places = conversation.stream(conversation.text(random.Random(5), 300), 1)
    assert Redactor(KEY).clean_scattered(data, (places,)) is data


def test_76_kilobytes_of_a_stream_take_two_milliseconds() -> None:
    """Processor time of the best of ten; twice the budget, as the machines that run this are slow and shared."""
    made = known(*(f"{number}-Secret-Value-{number * 7919}" for number in range(20)))
    chance = random.Random(3)
    words = " ".join("".join(chance.choices("abcdefghijklmnop", k=chance.randrange(2, 9))) for _ in range(760))
    data, places = conversation.stream(words, 1)
    best = 1.0
    for _ in range(10):
        begun = time.process_time()
        made.clean_scattered(data, (places,))
        best = min(best, time.process_time() - begun)
    assert len(data) > 75_000
    assert best < 0.004, f"{best * 1000:.2f} ms"
