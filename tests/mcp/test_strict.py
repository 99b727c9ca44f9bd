"""Messages as the gate reads them: slices as they came, and nothing that another reader takes for another request."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from policy_texts import policy

from agentwrap.mcp.gate import Gate
from agentwrap.mcp.strict import listed_tools, loose, read
from agentwrap.policy.exact_json import Ambiguous
from agentwrap.policy.layers import Layer

CLOSED = Gate((Layer("user", policy('[[mcp]]\nserver = "*"\ndecision = "deny"\n')),), b"x")


def test_slices_are_as_they_came() -> None:
    text = (
        b'{"jsonrpc" : "2.0", "id" : 1.50 , "method":"tools/call","params":{"name":"a", "arguments" : {"x" : 1e2, '
        b'"\\u00e9":" "} ,"_meta":{"progressToken": "\\u0061"}}}'
    )
    (message,), batch = read(text)
    assert not batch
    assert (message.id, message.token) == (b"1.50", b'"\\u0061"')
    assert message.arguments == b'{"x" : 1e2, "\\u00e9":" "}'
    assert message.params["arguments"] == {"x": 100.0, "\u00e9": " "}
    assert (message.modern, message.cancels, message.raw_params) == (False, b"", b"")


def test_requests_without_arguments_of_their_own_have_their_params() -> None:
    (message,), _ = read(b'{"id":1,"method":"resources/read","params": {"uri" : "x"} }')
    assert (message.raw_params, message.arguments) == (b'{"uri" : "x"}', b"")
    (message,), _ = read(b'{"method":"notifications/cancelled","params":{"requestId": "1"}}')
    assert (message.id, message.cancels) == (b"", b'"1"')
    (message,), _ = read(b'{"id":1,"result":{"tools":[{"name" : "a"}, {}]}}')
    assert (message.method, message.id, listed_tools(message.raw_result)) == ("", b"1", [b'{"name" : "a"}', b"{}"])
    assert listed_tools(b'{"tools":7}') == listed_tools(b"\xff") == []


def test_batches_and_what_is_no_message() -> None:
    messages, batch = read(b'[{"id":1,"method":"a"} , {"id":2}]')
    assert batch
    assert [(one.id, one.method) for one in messages] == [(b"1", "a"), (b"2", "")]
    assert read(b"[]") == ([], True)
    for text in (b"1", b'"x"', b"null"):
        (message,), batch = read(text)
        assert (message.id, message.method, batch) == (b"", "", False)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b'{"id":1,"id":"x","method":"a"}', (b'"x"', "a")),
        (b'{"id":{},"method":"a"}', (b"", "a")),
        (b'{"id":null}', (b"", "")),
        (b'{"id":1,"method":7}', None),
        (b"[1]", None),
        (b"\xff", None),
        (b'{"id":1', None),
    ],
)
def test_ids_of_what_has_no_single_meaning(text: bytes, found: Any) -> None:
    assert loose(text) == found


# Other readers


def _pairs_first(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return dict(reversed(pairs))


def _folded(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name.casefold(): value for name, value in pairs}


def readers() -> Iterator[Callable[[bytes], Any]]:
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "latin-1"):
        for hook in (dict, _pairs_first, _folded):
            decoder = json.JSONDecoder(object_pairs_hook=hook, strict=False)
            for errors in ("strict", "replace", "ignore"):

                def look(
                    text: bytes, encoding: str = encoding, errors: str = errors, decoder: json.JSONDecoder = decoder
                ) -> Any:
                    return decoder.raw_decode(text.decode(encoding, errors).lstrip())[0]

                yield look


READERS = list(readers())


def _lines(text: bytes) -> list[str]:
    return text.decode("utf-8", "replace").splitlines()


def calls(text: bytes, method: str) -> bool:
    """Whether some reader sees that request; those of text end lines elsewhere, too."""
    lines = [text] if b"\n" in text else [text, *text.split(b"\r"), *map(str.encode, _lines(text))]
    for look, line in ((look, line) for line in dict.fromkeys(lines) for look in READERS):
        try:
            found = look(line)
        except (ValueError, RecursionError):
            continue
        members = found if isinstance(found, list) else [found]
        if any(isinstance(one, dict) and one.get("method") == method for one in members):
            return True
    return False


NAMES = [b'"method"', b'"Method"', b'"\\u006dethod"', b'"METHOD"', b'"id"', b'"params"', b'"x"']
VALUES = [b'"tools/call"', b'"tools\\/call"', b'"ping"', b'"sampling/createMessage"', b"1", b"1E400", b"null", b"{}"]
MARKS = [b":", b" :", b",", b"{", b"}", b"[", b"]", b" ", b"\xef\xbb\xbf", b"\xff", b"\0", b'"\\ud800"']
WORDS = [*NAMES, *VALUES, *MARKS, b"\n", b"\r", b"\x85"]
MEMBERS = st.lists(
    st.tuples(st.sampled_from(NAMES), st.sampled_from([b":", b" : "]), st.sampled_from(VALUES)), max_size=4
)
OBJECTS = MEMBERS.map(lambda pairs: b"{" + b",".join(b"".join(pair) for pair in pairs) + b"}")
TEXTS = st.lists(st.sampled_from(WORDS), max_size=12).map(b"".join) | st.one_of(
    OBJECTS,
    st.lists(OBJECTS, max_size=3).map(lambda many: b"[" + b",".join(many) + b"]"),
    st.tuples(st.sampled_from([b"", b"\xef\xbb\xbf", b" "]), OBJECTS, st.sampled_from([b"", b"x", b"\xff", b"{}"])).map(
        b"".join
    ),
    st.tuples(st.sampled_from([b"\r", b"\r\n", b"\xe2\x80\xa8"]), OBJECTS).map(
        lambda two: b'{"x":' + two[0] + two[1] + two[0] + b"}"
    ),
    OBJECTS.map(lambda text: text.decode("latin-1").encode("utf-16")),
    OBJECTS.map(lambda text: text.decode("latin-1").encode("utf-16-be")),
)


def test_the_other_readers_see_what_one_of_them_sees() -> None:
    for text in (
        b'{"method":"tools/call"}', b'{"method":"tools/call","method":"x"}', b'[{"Method":"tools\\/call"}] x',
        b'\xef\xbb\xbf{"method":"tools/call","x":1E400}', '{"method":"tools/call"}'.encode("utf-16-be"),
    ):  # fmt: skip
        assert calls(text, "tools/call"), text
    assert not calls(b'{"method":"ping","x":"tools/call"}', "tools/call")


@given(TEXTS, st.booleans())
@example(b'{"method":"tools/call","method":"ping"}', True)
@example(b'{"id":1,"METHOD":"tools/call"}', True)
@example(b'{"Method":1E400,"Method":"tools/call"}', True)
@example(b'{"x":1E400,"method":"ping","method":"tools/call"}', True)
@example(b'[{"x":1E400},{"method":"tools/call"}]', True)
@example(b'{"x":1E400,"result":{"method":1},"Method":"sampling/createMessage"}', False)
@example('{"method":"sampling/createMessage"}'.encode("utf-16"), False)
@example(b'\xff{"method":"tools/call"}', True)
def test_what_passes_is_no_such_request_for_any_reader(text: bytes, up: bool) -> None:
    verdicts = CLOSED.judge(text, up=up)
    if all(verdict.decision == "pass" for verdict in verdicts):
        assert not calls(text, "tools/call" if up else "sampling/createMessage"), text


WORD = st.text(st.characters(codec="utf-8"), max_size=6)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | WORD,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORD, inner),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(["id", "method", "params", "result", "x"]), JSON), st.booleans())
def test_what_is_read_is_what_was_written(message: dict[str, Any], ascii_only: bool) -> None:
    text = json.dumps(message, ensure_ascii=ascii_only).encode()
    try:
        (found,), _ = read(text)
    except Ambiguous:
        return
    assert found.method == message.get("method", "")
    assert json.loads(found.id or b"null") == message.get("id")
    if found.method:
        assert found.params == (message.get("params") or {})
    for raw in (found.arguments, found.raw_params, found.token, found.cancels):
        assert not raw or json.loads(raw) is not ...
