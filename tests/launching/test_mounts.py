import os
import socket
from pathlib import Path

import pytest

from agentwrap.launching import mounts
from agentwrap.launching.enforcement import Bind, Devices, Hold, Mask, MountPlan, Private, Put, ReadOnly
from tests.launching.walls import apart, attempt, inside, shell


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "open" / ".git" / "hooks").mkdir(parents=True)
    (tmp_path / "open" / ".git" / "config").write_text("old")
    (tmp_path / "closed").mkdir()
    (tmp_path / "closed" / "file").write_text("old")
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("secret")
    (tmp_path / "single").write_text("secret")
    return tmp_path


def wall(folder: Path) -> MountPlan:
    opened = str(folder / "open")
    return MountPlan(
        (
            *(Private(), Hold("/proc"), Hold(opened), ReadOnly("/"), Put("/proc"), Put(opened)),
            *(Bind(opened + "/.git"), Bind(opened + "/.git/hooks", read_only=True)),
            Bind(opened + "/.git/config", read_only=True),
            *(Mask(str(folder / "secret")), Mask(str(folder / "single"))),
        )
    )


def test_all_is_read_only_but_what_was_held(folder: Path) -> None:
    def act() -> list[str]:
        return [
            attempt(lambda: (folder / "open" / "new").write_text("x")),
            attempt(lambda: (folder / "closed" / "file").write_text("x")),
            attempt(lambda: (folder / "closed" / "new").write_text("x")),
            attempt(lambda: os.chmod(folder / "closed" / "file", 0o600)),
            attempt(lambda: os.utime(folder / "closed" / "file")),
            attempt(lambda: os.unlink(folder / "closed" / "file")),
            attempt(lambda: os.rename(folder / "closed" / "file", folder / "open" / "file")),
            attempt(lambda: os.link(folder / "closed" / "file", folder / "open" / "file")),
            attempt(lambda: Path("/proc/self/oom_score_adj").write_text("1")),
            attempt(lambda: Path("/dev/null").write_text("x")),
        ]

    gone, told = inside(wall(folder), act)
    assert gone == []
    assert told == ["", "EROFS", "EROFS", "EROFS", "EROFS", "EROFS", "EXDEV", "EXDEV", "", ""]
    assert (folder / "open" / "new").read_text() == "x"
    assert (folder / "closed" / "file").read_text() == "old"


def test_what_is_closed_inside_of_what_is_open_cannot_be_replaced(folder: Path) -> None:
    git = folder / "open" / ".git"

    def act() -> list[str]:
        return [
            attempt(lambda: (git / "hooks" / "pre-commit").write_text("x")),
            attempt(lambda: (git / "config").write_text("x")),
            attempt(lambda: os.unlink(git / "config")),
            attempt(lambda: os.rename(git / "config", git / "other")),
            attempt(lambda: os.rename(git / "hooks", git / "other")),
            attempt(lambda: os.rename(git, folder / "open" / "other")),
            attempt(lambda: (git / "HEAD").write_text("x")),
            attempt(lambda: os.rename(git / "HEAD", git / "config")),
        ]

    assert inside(wall(folder), act)[1] == ["EROFS", "EROFS", "EBUSY", "EBUSY", "EBUSY", "EBUSY", "", "EBUSY"]
    assert not (git / "hooks" / "pre-commit").exists()


def test_what_is_masked_is_empty(folder: Path) -> None:
    def act() -> list[object]:
        def read() -> str:
            try:
                return (folder / "single").read_text()
            except PermissionError:
                return ""

        def names() -> list[str]:
            try:
                return os.listdir(folder / "secret")
            except PermissionError:
                return []

        writing = attempt(lambda: (folder / "single").write_text("x")) in ("EROFS", "EACCES")
        making = attempt(lambda: (folder / "secret" / "new").write_text("x")) in ("EROFS", "EACCES")
        return [read(), names(), writing, making]

    assert inside(wall(folder), act)[1] == ["", [], True, True]
    assert (folder / "single").read_text() == "secret"
    assert os.listdir(folder / "secret") == ["key"]


@pytest.mark.parametrize(
    "attack",
    [
        "umount {0}/secret && cat {0}/secret/key",
        "umount -l {0}/single && test -s {0}/single",
        "umount -l /proc && umount -l / && cat {0}/secret/key",
        "mount -o remount,rw,bind / && touch {0}/closed/new",
        "mount -o remount,rw,bind {0}/open/.git/hooks && touch {0}/open/.git/hooks/new",
        "mount --bind {0} {0}/open && cat {0}/open/secret/key",
        "mount --rbind {0} {0}/open && touch {0}/open/closed/new",
        "mount --rbind {0} {0}/open && umount {0}/open/secret && cat {0}/open/secret/key",
        "mount --bind {0}/open/.git {0}/open/.git && touch {0}/open/.git/hooks/new",
        "mount --make-rprivate / && mount --move {0}/secret {0}/open && cat {0}/secret/key",
        "unshare -Urm sh -c 'umount {0}/secret && cat {0}/secret/key'",
        "unshare -Urm sh -c 'mount -o remount,rw,bind / && touch {0}/closed/new'",
        "unshare -Urm sh -c 'mount --bind {0} {0}/open && cat {0}/open/secret/key'",
        "unshare -Urm --propagation slave sh -c 'umount -l {0}/secret; cat {0}/secret/key'",
        "cat /proc/self/root{0}/secret/key",
        "cat /proc/1/root{0}/secret/key",
        "touch /proc/self/root{0}/closed/new",
        "touch /proc/self/cwd/../closed/new",
        "cp -l {0}/closed/file {0}/open/ln && echo x >> {0}/open/ln",
        "ln -s ../closed/file {0}/open/ln && echo x >> {0}/open/ln",
        "mv {0}/open {0}/moved",
        "mv {0} {0}.moved",
        "rmdir {0}/open/.git/hooks",
    ],
)
def test_it_cannot_be_undone(folder: Path, attack: str) -> None:
    tried = attack.format(folder)
    assert inside(wall(folder), lambda: shell(tried, folder / "open"))[1] != 0
    assert (folder / "closed" / "file").read_text() == "old"
    assert os.listdir(folder / "closed") == ["file"]
    assert os.listdir(folder / "open" / ".git" / "hooks") == []


@pytest.mark.parametrize(
    "script",
    [
        "unshare -Urm sh -c 'mount -t tmpfs none {0}/open && touch {0}/open/x'",
        "bwrap --ro-bind / / --bind {0}/open {0}/open --dev /dev --unshare-net true",
    ],
)
def test_sandboxes_of_the_agents_own_go_on_working(folder: Path, script: str) -> None:
    if script.startswith("bwrap") and shell("command -v bwrap", folder):
        pytest.skip("bubblewrap is not installed")
    assert inside(wall(folder), lambda: shell(script.format(folder), folder / "open"))[1] == 0


def test_a_new_proc_in_a_sandbox_works_for_a_plain_user(folder: Path) -> None:
    script = f"unshare -Urmpf --mount-proc true && cd {folder}"
    assert inside(wall(folder), lambda: shell(script, folder / "open"))[1] == 0


def test_a_masked_socket_refuses_connections(short_path: Path) -> None:
    path = str(short_path / "s")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()

        def act() -> str:
            with socket.socket(socket.AF_UNIX) as client:
                return attempt(lambda: client.connect(path))

        assert inside(MountPlan(), act)[1] == ""
        assert inside(MountPlan((Mask(path),)), act)[1] in ("ECONNREFUSED", "EACCES")


def test_a_program_is_not_run_and_its_copy_is_another_one(folder: Path) -> None:
    tool = folder / "open" / "tool"
    tool.write_text("#!/bin/sh\nexit 0\n")
    tool.chmod(0o755)

    def act() -> list[int]:
        return [shell(str(tool), folder), shell(f"cp {tool} {tool}2 && {tool}2", folder)]

    assert inside(MountPlan((Bind(str(tool), no_exec=True),)), act)[1] == [126, 0]


def test_paths_that_are_gone_are_told_and_the_rest_is_done(folder: Path) -> None:
    plan = MountPlan(
        (
            *(Hold("/proc"), Hold(str(folder / "gone")), ReadOnly("/"), Put("/proc"), Put(str(folder / "gone"))),
            *(Bind(str(folder / "gone2")), Mask(str(folder / "gone3")), Mask(str(folder / "single"))),
        )
    )
    gone, size = inside(plan, lambda: os.stat(folder / "single").st_size)
    assert gone == [str(folder / name) for name in ("gone", "gone2", "gone3")]
    assert size == 0


def test_few_devices_and_what_every_program_needs_of_them(folder: Path) -> None:
    def act() -> list[object]:
        return [
            sorted(os.listdir("/dev")),
            len(Path("/dev/urandom").open("rb").read(3)),
            attempt(lambda: Path("/dev/null").write_text("x")),
            attempt(lambda: Path("/dev/new").write_text("x")),
            os.readlink("/dev/fd"),
        ]

    devices = ("/dev/null", "/dev/urandom", "/dev/pts", "/dev/nothing-of-the-kind")
    names, size, null, new, fd = inside(MountPlan((Devices(devices),)), act)[1]
    assert names == ["fd", "null", "ptmx", "pts", "stderr", "stdin", "stdout", "urandom"]
    assert (size, null, new, fd) == (3, "", "EROFS", "/proc/self/fd")


def test_an_error_names_the_step_and_the_path(folder: Path) -> None:
    def act() -> str:
        try:
            mounts.execute(MountPlan((ReadOnly(str(folder)),)))  # no mount point
        except OSError as error:
            return str(error)
        return ""

    told = inside(MountPlan(), act)[1]
    assert f"read-only {folder}" in told
    assert "Invalid argument" in told


def test_the_machine_is_as_it_was(folder: Path) -> None:
    told = apart(lambda: (mounted(), inside(wall(folder), lambda: None), mounted()))
    assert told[0] == told[2]
    assert sorted(os.listdir(folder)) == ["closed", "open", "secret", "single"]


def mounted() -> str:
    return Path("/proc/self/mountinfo").read_text()
