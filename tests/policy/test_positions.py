import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.policy.positions import Path, positions, spans

TEXT = '''version = 1  # [not.a.table]
"odd key".b = "x # y"

[network]
allow = [
  "a",  # "c", "d"
  'b', """
c""",
]
deny = []
[files]
write = { default = "deny", allow = ["x", { y = 1 }] }
[[mcp]]
server = "one"
[[mcp]]
server = "two"
[mcp.when]
arg = 1
'''


def test_lines_of_keys_and_items() -> None:
    found = positions(TEXT)
    expected: dict[Path, int] = {
        ("version",): 1, ("odd key", "b"): 2, ("network",): 4, ("network", "allow"): 5, ("network", "allow", 0): 6,
        ("network", "allow", 1): 7, ("network", "allow", 2): 7, ("network", "deny"): 10, ("files", "write"): 12,
        ("files", "write", "default"): 12, ("files", "write", "allow", 1, "y"): 12, ("mcp",): 13,
        ("mcp", 0, "server"): 14, ("mcp", 1, "server"): 16, ("mcp", 1, "when", "arg"): 18,
    }  # fmt: skip
    assert {path: found.get(path) for path in expected} == expected


def paths_of(value: Any, at: Path = ()) -> set[Path]:
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found: set[Path] = {at} if at else set()
    for key, one in below:
        found |= paths_of(one, (*at, key))
    return found


STRINGS = st.sampled_from(
    ['"a"', "'b'", '""', "''", '"\\"]#"', "']#'", '"""x\n"y"#]"""', "'''\n]#'''", '"""a""""', '"\\\\"']
)
SCALARS = st.one_of(STRINGS, st.sampled_from(["1", "true", "1.5", "1979-05-27 07:32:00", "-0x1f", "inf"]))
KEYS = st.sampled_from(["a", "b-1", '"c d"', "'e.f'", "g . h", '"i]".j'])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: "[ # c]\n" + ",\n".join(items) + "]"),
        st.dictionaries(KEYS, st.one_of(STRINGS, st.just("3")), max_size=2).map(
            lambda table: "{" + ", ".join(f"{key} = {value}" for key, value in table.items()) + "}"
        ),
    ),
    max_leaves=6,
)
STATEMENTS = st.one_of(
    st.tuples(KEYS, VALUES).map(lambda pair: f"{pair[0]} = {pair[1]}"),
    KEYS.map(lambda key: f"[{key}]"),
    KEYS.map(lambda key: f"[[{key}.list]]"),
    st.just("# [x] = 'y"),
    st.just(""),
)


@given(st.lists(STATEMENTS, max_size=8).map("\n".join))
def test_every_key_of_every_document_is_found(text: str) -> None:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    found = positions(text)
    assert paths_of(document) <= set(found)
    assert all(1 <= line <= text.count("\n") + 1 for line in found.values())


@pytest.mark.parametrize("text", ["", "\n\n# only\n", "a = 1", "a = 1\r\nb = [1,\r\n2]\r\n"])
def test_documents_without_much(text: str) -> None:
    assert paths_of(tomllib.loads(text)) <= set(positions(text))


def test_spans_of_values_and_the_ends_of_headers() -> None:
    found = spans(TEXT)
    texts = {path: TEXT[start:end] for path, (start, end) in found.values.items()}
    assert texts["version",].strip() == "1"
    assert texts["odd key", "b"] == '"x # y"'
    assert texts["network", "allow", 1] == "'b'"
    assert texts["network", "allow", 2] == '"""\nc"""'
    assert texts["network", "allow"].startswith('[\n  "a",')
    assert texts["network", "allow"].endswith('c""",\n]')
    assert texts["network", "deny"] == "[]"
    assert texts["files", "write", "allow", 1] == "{ y = 1 }"
    assert TEXT[: found.headers["network",]].endswith("[network]")
    assert TEXT[: found.headers["mcp", 1, "when"]].endswith("[mcp.when]")
