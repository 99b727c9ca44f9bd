from hypothesis import given
from hypothesis import strategies as st
from policy_texts import PLACES

from agentwrap.policy.defaults import DEVICES, WRITES, is_device, is_under, protected_socket, protected_write
from agentwrap.policy.paths import parse_pattern

PATTERNS = [(group, parse_pattern(path, PLACES)) for group in WRITES for path in group.paths]
WORDS = sorted(
    {word.replace("*", "x") for _, pattern in PATTERNS for word in pattern.text.split("/") if word.strip("*~")}
)
PATHS = st.builds(
    lambda base, parts: base + "/".join(parts),
    st.sampled_from(["/w/", "/home/u/", "/etc/", "/"]),
    st.lists(st.sampled_from([*WORDS, "a"]), min_size=1, max_size=4),
)


@given(PATHS)
def test_the_index_finds_what_trying_all_patterns_finds(path: str) -> None:
    fitting = [group for group, pattern in PATTERNS if pattern.fits(path) and not path.endswith(group.but or ("\0",))]
    assert protected_write(path, PLACES) == (fitting[0] if fitting else None)


def test_devices() -> None:
    assert all(is_device(path.replace("*", "3"), PLACES) for path in DEVICES)
    assert not is_device("/dev/sda", PLACES)
    assert not is_device("/dev/shm/x", PLACES)


def test_sockets_by_either_of_their_folders() -> None:
    assert protected_socket("/run/docker.sock", PLACES)
    assert protected_socket("/var/run/docker.sock", PLACES)
    assert protected_socket("/var/lib/lxd/unix.socket", PLACES)
    assert not protected_socket("/tmp/own.sock", PLACES)


def test_what_lies_under_a_folder() -> None:
    assert is_under("/a", ("/a",))
    assert is_under("/a/b", ("/x", "/a/"))
    assert not is_under("/ab", ("/a",))
    assert is_under("/ab", ("/",))
