"""Entries are added to somebody's text: it means what it meant, and the entries; no comment is lost."""

import tomllib

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from policy_texts import PLACES

from agentwrap.approvals.permission import add, fresh, permission_for
from agentwrap.policy.decide import decide
from agentwrap.policy.document import load
from agentwrap.policy.questions import Connect

HEAD = 'version = 1\nname = "t"\nmode = "ask"\n'


@pytest.mark.parametrize(
    ("question", "entries"),
    [
        ("connect example.org:443", ("example.org:443",)),
        ("connect to example.org:443", ("example.org:443",)),
        ("connect to example.org:443 at 93.184.215.14", ("example.org:443",)),
        ("connect to [2001:db8::1]:443", ("[2001:db8::1]:443",)),
        ("connect EXAMPLE.org.:443", ("example.org:443",)),
        ("connect 192.0.2.7:80", ("192.0.2.7:80",)),
        ("connect [2001:db8::1]:80", ("[2001:db8::1]:80",)),
        ("connect 127.0.0.1:8080", ("host.loopback:8080",)),
        ("connect localhost:8080", ("host.loopback:8080",)),
        ("connect git.example:22 at 10.1.2.3", ("git.example:22", "10.1.2.3:22")),
        ("connect git.example:22 at fd00::1", ("git.example:22", "[fd00::1]:22")),
        ("connect git.example:22 at 127.0.0.1", ("git.example:22", "host.loopback:22")),
        ("connect git.example:22 at 93.184.215.14", ("git.example:22",)),
        ("connect 10.1.2.3:22 at 10.1.2.3", ("10.1.2.3:22",)),
    ],
)
def test_the_entry_is_the_narrowest_that_allows_it(question: str, entries: tuple[str, ...]) -> None:
    found = permission_for(question)
    assert found is not None
    assert found.entries == entries
    policy = load(fresh(entries, "t", "enforce").text.encode(), "t.toml", PLACES, {})
    assert decide(policy, found.question).verdict == "allow"
    assert decide(policy, Connect("other.example", 443)).verdict == "deny"


@pytest.mark.parametrize(
    "question",
    ["", "connect", "connect example.org", "connect example.org:0", "connect example.org:99999", "call tool x",
     "connect exa mple.org:443", 'connect a"b:443', "connect a\nb:443", "connect example.org:443 at x",
     "connect \\x1b[2J:443", "lookup example.org", "connect *.example.org:443", "connect example.org:٤٤"],
)  # fmt: skip
def test_what_no_entry_can_allow_has_none(question: str) -> None:
    assert permission_for(question) is None


@given(
    st.text(max_size=60) | st.from_regex(r"connect (to )?[ -~]{0,30}:\d{1,6}( at [0-9a-f:.]{1,20})?", fullmatch=True)
)
def test_whatever_is_asked_an_entry_is_well_formed_or_there_is_none(question: str) -> None:
    found = permission_for(question)
    if found is not None:
        text = fresh(found.entries, "t", "enforce").text
        assert tomllib.loads(text)["network"]["allow"] == list(found.entries)


CASES = {
    "no section": (HEAD, HEAD + '\n[network]\nallow = ["new.example:443"]\n'),
    "no line break at the end": (HEAD.rstrip(), HEAD + '\n[network]\nallow = ["new.example:443"]\n'),
    "one line": (
        HEAD + '[network]\nallow = ["a.example"]  # mine\n',
        HEAD + '[network]\nallow = ["a.example", "new.example:443"]  # mine\n',
    ),
    "one line with a comma": (
        HEAD + '[network]\nallow = [ "a.example", ]\n',
        HEAD + '[network]\nallow = [ "a.example", "new.example:443"]\n',
    ),
    "lines": (
        HEAD + '[network]\nallow = [\n    "a.example",  # the first\n    "b.example"  # no comma, but one, here\n]\n',
        HEAD + '[network]\nallow = [\n    "a.example",  # the first\n    "b.example",  # no comma, but one, here\n'
        '    "new.example:443",\n]\n',
    ),
    "lines with a last comment": (
        HEAD + '[network]\nallow = [\n  "a.example",\n  # nothing more, ever\n]\n[exec]\ndefault = "allow"\n',
        HEAD + '[network]\nallow = [\n  "a.example",\n  # nothing more, ever\n  "new.example:443",\n]\n'
        '[exec]\ndefault = "allow"\n',
    ),
    "bracket beside the last": (
        HEAD + '[network]\nallow = ["a.example",\n         "b.example"]\n',
        HEAD + '[network]\nallow = ["a.example",\n         "b.example", "new.example:443"]\n',
    ),
    "bracket indented": (
        HEAD + '[network]\nallow = [\n\t"a.example"\n\t]\n',
        HEAD + '[network]\nallow = [\n\t"a.example",\n\t"new.example:443",\n\t]\n',
    ),
    "first beside the bracket": (
        HEAD + '[network]\nallow = ["a.example",\n]\n',
        HEAD + '[network]\nallow = ["a.example",\n  "new.example:443",\n]\n',
    ),
    "section without a list": (
        HEAD + '[network]  # ours\ndefault = "deny"\n',
        HEAD + '[network]  # ours\nallow = ["new.example:443"]\ndefault = "deny"\n',
    ),
    "section at the very end": (HEAD + "[network]", HEAD + '[network]\nallow = ["new.example:443"]'),
    "braces": (
        HEAD + 'network = { default = "deny" }\n',
        HEAD + 'network = { default = "deny", allow = ["new.example:443"] }\n',
    ),
    "braces with a list": (
        HEAD + 'network = { allow = ["a.example"] }\n',
        HEAD + 'network = { allow = ["a.example", "new.example:443"] }\n',
    ),
    "dotted": (
        HEAD + 'network.default = "deny"  # closed\n',
        HEAD + 'network.default = "deny"  # closed\nnetwork.allow = ["new.example:443"]\n',
    ),
    "windows": (
        HEAD.replace("\n", "\r\n") + '[network]\r\ndefault = "deny"\r\n',
        HEAD.replace("\n", "\r\n") + '[network]\nallow = ["new.example:443"]\r\ndefault = "deny"\r\n',
    ),
    "a decoy": (
        HEAD + '# [network]\n# allow = ["x"]\n[files.read]\ndeny = ["/allow = #", "/]"]\n[network]\n'
        'allow = ["a.example"]\n',
        HEAD + '# [network]\n# allow = ["x"]\n[files.read]\ndeny = ["/allow = #", "/]"]\n[network]\n'
        'allow = ["a.example", "new.example:443"]\n',
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_an_entry_is_added_where_a_person_would(case: str) -> None:
    before, after = CASES[case]
    edit = add(before, ("new.example:443",))
    assert edit.text == after
    shown = [line for _, line in edit.lines]
    assert any("new.example:443" in line for line in shown)
    for number, line in edit.lines:
        assert after.split("\n")[number - 1].strip() == line
    load(edit.text.encode(), "t.toml", PLACES, {})


def test_what_is_there_already_is_not_added_again() -> None:
    text = HEAD + '[network]\nallow = ["a.example:443"]\n'
    assert add(text, ("a.example:443",)) == (edit := add(text, ()))
    assert edit.text == text
    both = add(text, ("a.example:443", "b.example:443"))
    assert tomllib.loads(both.text)["network"]["allow"] == ["a.example:443", "b.example:443"]


@pytest.mark.parametrize("text", ["[", "network = 3\n", '[network]\nallow = "a"\n', "network = []\n"])
def test_a_text_that_cannot_be_added_to_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        add(text, ("a.example:443",))


_HOSTS = st.lists(st.sampled_from(["a.example", "*.b.example:443", "192.0.2.0/24", "host.loopback:80"]), unique=True)
_GAP = st.sampled_from(["", " ", "\n", "\n  ", ' # why, [not] "this"\n ', "\t", "\n\n# x\n"])


@given(st.data())
def test_any_layout_keeps_its_meaning_and_its_comments(data: st.DataObject) -> None:
    hosts = data.draw(_HOSTS)
    pieces = ["["]
    for index, host in enumerate(hosts):
        pieces += [data.draw(_GAP), f'"{host}"', data.draw(_GAP)]
        if index < len(hosts) - 1 or data.draw(st.booleans()):
            pieces.append(",")
    pieces += [data.draw(_GAP), "]"]
    form = data.draw(
        st.sampled_from(["[network]\nallow = {}\n", "network.allow = {}", "x = [1]\n[network]\nallow = {} # z"])
    )
    text = form.format("".join(pieces))
    before = tomllib.loads(text)
    edit = add(text, ("new.example:443",))
    after = tomllib.loads(edit.text)
    assert after["network"]["allow"] == [*hosts, "new.example:443"]
    after["network"]["allow"] = before["network"]["allow"]
    assert after == before
    assert edit.text.count("#") == text.count("#")
    assume(edit.lines)
    assert all(edit.text.split("\n")[number - 1].strip() == line for number, line in edit.lines)
