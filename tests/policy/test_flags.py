"""Options as a policy: they close what they are about, and are silent about the rest."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from policy_texts import OWN, PLACES, network, policy

from agentwrap.errors import AgentwrapError
from agentwrap.policy.decide import decide
from agentwrap.policy.flags import Given, flags_policy, flags_text
from agentwrap.policy.layers import Layer, decide_layers, mode_of, restricts_network, speaking
from agentwrap.policy.questions import Connect, Exec, Family, Lookup, Question, Read, Unix, Write
from agentwrap.policy.rules import Policy

HOOK, ELSEWHERE = Write("/w/.git/hooks/pre-commit"), Write("/etc/passwd")
API, EVIL, META = Connect("api.example", 443), Connect("evil.example", 443), Connect("169.254.169.254", 80)


def made(base: Policy | None = None, folders: tuple[str, ...] = (), **given: tuple[str, ...]) -> Policy:
    return flags_policy(Given(**given, folders=frozenset(folders)), PLACES, {}, base=base)  # type: ignore[arg-type]


def said(of: Policy, *questions: Question) -> list[str]:
    return [decide(of, question).verdict for question in questions]


def test_allow_closes_the_rest_of_the_network_and_no_file() -> None:
    of = made(allow=("api.example:443",))
    assert said(of, API, Lookup("api.example"), EVIL, Lookup("evil.example"), META) == [
        "allow", "allow", "deny", "deny", "deny",
    ]  # fmt: skip
    assert (
        said(of, HOOK, ELSEWHERE, Read("~/.ssh/id"), Exec("/usr/bin/sudo"), Write("/proc/self/fd/3")) == ["allow"] * 5
    )
    assert restricts_network([Layer("flags", of)])


def test_deny_closes_this_host_alone() -> None:
    of = made(deny=("evil.example",))
    assert said(of, API, EVIL, Lookup("evil.example"), ELSEWHERE) == ["allow", "deny", "deny", "allow"]
    assert decide(of, EVIL).change == "remove network.deny `evil.example` (command line:8)"


def test_rw_closes_the_rest_of_the_files_and_no_connection() -> None:
    of = made(rw=("/w", "/tmp/one"), folders=("/w",))
    assert said(of, Write("/w"), Write("/w/a"), Write("/tmp/one"), Write("/tmp/one/x"), ELSEWHERE, HOOK) == [
        "allow", "allow", "allow", "deny", "deny", "deny",
    ]  # fmt: skip
    assert said(of, Write("/dev/null"), Read("/etc/passwd"), Exec("/bin/ls")) == ["allow"] * 3
    assert said(of, EVIL, META, Unix("/run/docker.sock"), Family("vsock"), Lookup("x.example")) == ["allow"] * 5
    assert not restricts_network([Layer("flags", of)])


def test_ro_alone_closes_these_paths() -> None:
    of = made(ro=("/srv/data",), folders=("/srv/data",))
    assert said(of, Write("/srv/data/x"), Write("/srv/data"), ELSEWHERE, EVIL) == ["deny", "deny", "allow", "allow"]


def test_ro_inside_rw_is_closed_and_around_it_is_what_it_is_anyway() -> None:
    of = made(ro=("/", "/w/vendor"), rw=("/w",), folders=("/", "/w", "/w/vendor"))
    assert said(of, Write("/w/a"), Write("/w/vendor/a"), ELSEWHERE) == ["allow", "deny", "deny"]


def test_our_own_files_stay_closed_whatever_the_options_are_about() -> None:
    for of in (made(allow=("api.example",)), made(rw=("/home/u",), folders=("/home/u",))):
        assert said(of, Write(OWN + "/trusted"), Read(PLACES.secret[0]), Unix(OWN + "/run/x")) == ["deny"] * 3


def test_what_would_allow_it_is_an_option() -> None:
    assert decide(made(allow=("api.example",)), EVIL).change == "add `--allow evil.example:443` to the command line"
    assert decide(made(rw=("/w",)), HOOK).change == "add `--rw /w/.git/hooks/pre-commit` to the command line"
    assert decide(made(rw=("/w",)), Write("/t/a b")).change == "add `--rw '/t/a b'` to the command line"


def test_beside_a_policy_options_add_to_its_lists_and_change_no_default() -> None:
    base = network("b.example:443", mode="ask")
    own = made(base, allow=("api.example:443",))
    layers = [Layer("flags", own), Layer("flags", base)]
    verdicts = [decide_layers(layers, one).verdict for one in (API, Connect("b.example", 443), EVIL, ELSEWHERE)]
    assert verdicts == ["allow", "allow", "deny", "deny"]
    assert mode_of(layers) == "ask"
    open_ = policy('[network]\ndefault = "allow"\n', mode="observe")
    layers = [Layer("flags", made(open_, deny=("evil.example",))), Layer("flags", open_)]
    assert [decide_layers(layers, one).verdict for one in (API, EVIL)] == ["allow", "deny"]


def test_a_layer_that_is_silent_is_not_heard() -> None:
    flags, user = Layer("flags", made(allow=("api.example",))), Layer("user", policy('[exec]\ndefault = "deny"\n'))
    assert decide_layers([flags, user], Exec("/bin/ls")).verdict == "deny"
    assert decide_layers([flags, user], ELSEWHERE).verdict == "deny"
    assert speaking([flags, user], "exec") == [user]
    assert decide_layers([flags], Exec("/bin/ls")).verdict == "allow"


def test_repeats_and_what_lies_inside_are_said_once() -> None:
    text = flags_text(Given(allow=("a.example", "a.example"), rw=("/w", "/w/x", "/w"), folders=frozenset({"/w"})))
    assert text.count('"a.example"') == 1
    assert text.count("/w") == 1


@pytest.mark.parametrize("host", ["*", "*.com", "http://a.example", "a b", 'a"\n[exec]', "\udcff"])
def test_hosts_are_read_as_strictly_as_in_a_file(host: str) -> None:
    with pytest.raises(AgentwrapError, match="the policy is refused"):
        made(allow=(host,))


@given(st.lists(st.text(st.characters(exclude_characters="\0/"), min_size=1, max_size=8), min_size=1, max_size=3))
def test_any_path_can_be_named(names: list[str]) -> None:
    path = "/r/" + "/".join(name if name.strip(".") else "x" for name in names)
    of = made(rw=(path,), folders=(path,))
    assert said(of, Write(path), Write(path + "/f"), Write("/r2")) == ["allow", "allow", "deny"]
