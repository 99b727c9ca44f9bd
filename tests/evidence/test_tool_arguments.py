import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.evidence.tool_arguments import patch_brief, read

PATCH = "*** Begin Patch\n*** Update File: src/a.py\n*** Move to: src/b.py\n@@\n-x\n+y\n*** Add File: n.py\n"


@pytest.mark.parametrize(
    ("arguments", "brief"),
    [
        ({"command": "pytest -x", "description": "run tests"}, "pytest -x"),
        ({"cmd": ["bash", "-lc", "ls | wc"]}, "ls | wc"),
        ({"cmd": ["git", "log"]}, "git log"),
        ({"old_string": "a", "file_path": "/w/a.py"}, "/w/a.py"),
        ({"pattern": "TODO", "path": "src"}, "TODO  in src"),
        ({"pattern": "TODO"}, "TODO"),
        ({"url": "https://docs.example/", "prompt": "p"}, "https://docs.example/"),
        ({"query": "weather"}, "weather"),
        ({"description": "look", "prompt": "long"}, "look"),
        ({"a": 1, "b": [True]}, '{"a":1,"b":[true]}'),
        ({"input": PATCH}, "M src/a.py, A n.py"),
        ({}, ""),
    ],
)
def test_one_argument_says_most(arguments: object, brief: str) -> None:

    assert read(json.dumps(arguments)).brief == brief


def test_commands_and_paths() -> None:
    named = read(json.dumps({"command": ["sh", "-c", f"apply_patch <<'E'\n{PATCH}\nE"], "paths": ["x", "y"]}))
    assert named.commands[0].startswith("apply_patch")
    assert named.paths == ("x", "y", "src/a.py", "src/b.py", "n.py")
    assert read(PATCH).paths == ("src/a.py", "src/b.py", "n.py")
    assert read(json.dumps(PATCH)).paths == ("src/a.py", "src/b.py", "n.py")
    assert patch_brief("no patch") == ""


def test_what_was_cut_off_is_read_as_far_as_it_came() -> None:
    whole = json.dumps({"description": "d", "command": "echo 'a\nb' \"c\"" + "x" * 50})
    cut = read(whole[:-20])
    assert cut.commands[0].startswith("echo 'a\nb' \"c\"xxx")
    assert read('{"file_path": "/w/caf\\u00e9.py", "content": "abc').paths == ("/w/café.py",)
    assert read('{"').commands == ()


@given(st.text() | st.binary().map(lambda data: data.decode("utf-8", "surrogateescape")))
def test_any_text_is_read(arguments: str) -> None:
    named = read(arguments)
    assert isinstance(named.brief, str)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["command", "cmd", "path", "paths", "pattern", "input", "query", "x"]), values))
def test_members_of_any_type_are_read(arguments: dict[str, object]) -> None:
    read(json.dumps(arguments))
    read(json.dumps(arguments)[:-2])
