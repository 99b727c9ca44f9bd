"""A policy about files, programs, sockets and signals, from the command line down to the kernel; in each tier."""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from agentwrap.launching import landlock
from tests.wrapping import AGENTWRAP, Wrapped, environment, program, wrap

HEAD = 'version = 1\nname = "t"\nmode = "enforce"\n[network]\ndefault = "allow"\n'
CLOSED = '[files.write]\ndefault = "deny"\nallow = ["$CWD/**"]\n'
OPEN = '[files.write]\ndefault = "allow"\n'
TIERS = ("wall", "guard")


def namespaces() -> bool:
    return subprocess.run(["unshare", "-Urnm", "true"], capture_output=True).returncode == 0


def guarded(
    folder: Path, policy: str, script: str, *, tier: str = "wall", options: Sequence[str] = (), mode: str = "enforce"
) -> Wrapped:
    """Run a shell script under a policy; HOME is `folder`, the working directory `folder/work`."""
    if tier == "wall" and not namespaces():
        pytest.skip("no user namespaces here")
    file = folder / "policy.toml"
    file.write_text(HEAD.replace("enforce", mode) + policy)
    return wrap(folder, "sh", "-c", script, options=("--policy", str(file), "--tier", tier, *options))


def denied(run: Wrapped) -> list[tuple[str, str, str]]:
    """Act, target below the folder, and the mechanism, of every kind of denial once."""
    folder = str(run.recording.parent) + "/"
    found = [
        (event.data["act"], event.subject.removeprefix(folder), event.data["mechanism"])
        for event in run.events("act.denied")
    ]
    return list(dict.fromkeys(found))


@pytest.mark.parametrize("tier", TIERS)
def test_writes_outside_of_what_is_open_are_refused_and_told(tmp_path: Path, tier: str) -> None:
    script = "echo a > in; echo x > ../out; mkdir ../new; mv in ../moved; echo done"
    run = guarded(tmp_path, CLOSED, script, tier=tier)
    assert run.stdout == b"done\n"
    assert (tmp_path / "work" / "in").read_text() == "a\n"
    assert {"out", "new", "moved"} & set(os.listdir(tmp_path)) == set()
    landlocked = landlock.version() >= 2
    mechanism = "mount" if tier == "wall" else "landlock" if landlocked else "stop"
    assert denied(run) == [("write", name, mechanism) for name in ("out", "new", "moved")]
    event = run.events("act.denied")[0]
    assert event.verdict == "deny"
    assert event.data["by"] == ("witness" if mechanism == "stop" else "wall")
    assert event.data["errno"] == "EACCES"
    assert event.data["call"] == "openat"
    assert event.data["rule"].startswith("files.write.default `deny`")
    assert "files.write.allow" in event.data["change"]
    assert set(run.paths("file.edit")) == {str(tmp_path / "work" / "in")}


@pytest.mark.parametrize("tier", TIERS)
def test_what_is_protected_is_refused_whether_it_exists_or_not(tmp_path: Path, tier: str) -> None:
    (tmp_path / "work" / ".git" / "hooks").mkdir(parents=True)
    script = "echo x > .git/hooks/pre-commit; mv .git .g; echo x > .envrc; echo x > .mcp.json; ls -a"
    run = guarded(tmp_path, CLOSED, script, tier=tier)
    assert run.stdout.split() == [b".", b"..", b".git"]
    held = "mount" if tier == "wall" else "stop"
    assert denied(run) == [
        ("write", "work/.git/hooks/pre-commit", held),
        ("write", "work/.git", held),
        ("write", "work/.envrc", "stop"),
        ("write", "work/.mcp.json", "stop"),
    ]
    assert os.listdir(tmp_path / "work") == [".git"]


@pytest.mark.parametrize("tier", TIERS)
def test_reads_are_refused_and_the_rest_of_reading_is_not_recorded(tmp_path: Path, tier: str) -> None:
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "id").write_text("secret")
    policy = OPEN + '[files.read]\ndefault = "allow"\ndeny = ["~/.ssh/**", "**/.env"]\n'
    script = "cat ~/.ssh/id; ls ~/.ssh; ln ~/.ssh/id id; mv ~/.ssh s; echo x > .env; cat .env; cat ../policy.toml"
    run = guarded(tmp_path, policy, script, tier=tier)
    assert b"secret" not in run.stdout
    assert b"version = 1" in run.stdout
    held = "mount" if tier == "wall" else "stop"
    assert denied(run) == [
        *(("read", ".ssh/id", held), ("read", ".ssh", held)),
        *(("write", ".ssh/id", held), ("write", ".ssh", held)),
        ("read", "work/.env", "stop"),
    ]
    assert run.events("file.read") == []
    assert (tmp_path / ".ssh" / "id").read_text() == "secret"


@pytest.mark.parametrize("follow", ["auto", "trace", "calls"])
def test_programs_are_refused_by_name_in_every_way_of_following(tmp_path: Path, follow: str) -> None:
    policy = OPEN + '[exec]\ndefault = "allow"\ndeny = ["/usr/bin/nl", "**/tool"]\n'
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "script").write_text("#!/usr/bin/nl\n")
    (tmp_path / "work" / "script").chmod(0o755)
    script = "nl /etc/hostname; ./script; cp /bin/true tool; ./tool; echo done"
    run = guarded(tmp_path, policy, script, tier="wall", options=("--follow", follow))
    assert run.stdout == b"done\n"
    assert denied(run) == [("exec", "/usr/bin/nl", "mount"), ("exec", "work/tool", "stop")]


def test_a_notify_only_run_judges_execs_too(tmp_path: Path) -> None:
    policy = OPEN + '[exec]\ndefault = "allow"\ndeny = ["/usr/bin/nl"]\n'
    run = guarded(tmp_path, policy, "nl /etc/hostname; echo done", options=("--debuggable",))
    assert run.stdout == b"done\n"
    assert denied(run) == [("exec", "/usr/bin/nl", "mount")]


@pytest.mark.parametrize("tier", TIERS)
def test_a_service_of_the_machine_is_out_of_reach_and_the_runs_own_is_not(short_path: Path, tier: str) -> None:
    (short_path / ".gnupg").mkdir()
    code = (
        "import socket, os, sys\n"
        "def use(path):\n"
        "    s = socket.socket(socket.AF_UNIX)\n"
        "    try: s.connect(path); print('connected')\n"
        "    except OSError as e: print(e.errno)\n"
        "use(sys.argv[1])\n"
        "own = socket.socket(socket.AF_UNIX); own.bind('own'); own.listen(); use('own')\n"
        "use('nobody')\n"
        "try: socket.socket(40, 1)\n"
        "except OSError as e: print(e.errno)\n"
    )
    (short_path / "use.py").write_text(code)
    path = str(short_path / ".gnupg" / "S.gpg-agent")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        run = guarded(short_path, OPEN, f"{sys.executable} ../use.py {path}", tier=tier)
    assert run.stdout.split() == [b"13", b"connected", b"2", b"97"], run.stderr
    held = "mount" if tier == "wall" else "stop"
    assert [event.subject for event in run.events("net.connect") if event.subject.endswith("gpg-agent")] == []
    acts = denied(run)
    assert acts[0] == ("unix", ".gnupg/S.gpg-agent", held)
    assert acts[1][0] == "family"


def test_a_socket_that_the_run_asks_to_serve_does_not_become_its_own(short_path: Path) -> None:
    (short_path / ".gnupg").mkdir()
    path = str(short_path / ".gnupg" / "S.gpg-agent")
    code = (
        "import socket, sys\n"
        "s = socket.socket(socket.AF_UNIX)\n"
        "try: s.bind(sys.argv[1])\n"
        "except OSError as e: print(e.errno)\n"
        "try: s.connect(sys.argv[1]); print('connected')\n"
        "except OSError as e: print(e.errno)\n"
    )
    (short_path / "use.py").write_text(code)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        run = guarded(short_path, OPEN, f"{sys.executable} ../use.py {path}", tier="guard")
    assert run.stdout.split() == [b"98", b"13"], run.stderr


def test_signals_and_memory_of_others_are_out_of_reach(tmp_path: Path) -> None:
    outside = os.getpid()
    code = (
        "import os, signal, sys\n"
        "child = os.fork()\n"
        "if child == 0: signal.pause()\n"
        f"for pid in ({outside}, os.getppid(), child):\n"
        "    try: os.kill(pid, signal.SIGCONT); print('sent')\n"
        "    except OSError as e: print(e.errno)\n"
        f"for pid in ({outside}, child):\n"
        "    try: open(f'/proc/{pid}/mem', 'r+b'); print('open')\n"
        "    except OSError as e: print(e.errno)\n"
        "os.kill(child, 9)\n"
    )
    (tmp_path / "reach.py").write_text(code)
    run = guarded(tmp_path, OPEN, f"{sys.executable} ../reach.py; true")
    assert run.stdout.split() == [b"1", b"sent", b"sent", b"13", b"open"], run.stderr
    told = [(event.data["act"], event.subject) for event in run.events("act.denied")]
    assert told == [("signal", str(outside)), ("reach", f"/proc/{outside}/mem")]


def test_input_cannot_be_put_into_the_terminal(tmp_path: Path) -> None:
    code = "import fcntl\ntry: fcntl.ioctl(0, 0x5412, b'x')\nexcept OSError as e: print(e.errno)\n"
    (tmp_path / "put.py").write_text(code)
    assert guarded(tmp_path, OPEN, f"{sys.executable} ../put.py").stdout == b"1\n"
    (tmp_path / "run.agentlog").unlink()
    assert guarded(tmp_path, OPEN, f"{sys.executable} ../put.py", mode="observe").stdout == b"25\n"


def test_mode_observe_tells_what_it_would_deny_and_lets_it_pass(tmp_path: Path) -> None:
    run = guarded(tmp_path, CLOSED, "echo x > ../out; echo done", tier="guard", mode="observe")
    assert run.stdout == b"done\n"
    assert (tmp_path / "out").read_text() == "x\n"
    (event,) = run.events("act.denied")
    assert (event.verdict, event.data.get("errno", ""), event.data["by"]) == ("would-deny", "", "witness")


def test_repeats_are_counted_and_none_is_lost(tmp_path: Path) -> None:
    code = "import os\nfor _ in range(2000):\n    try: os.open('/etc/passwd', os.O_WRONLY)\n    except OSError: pass\n"
    (tmp_path / "loop.py").write_text(code)
    run = guarded(tmp_path, CLOSED, f"{sys.executable} ../loop.py")
    rows = [event for event in run.events("act.denied") if event.subject == "/etc/passwd"]
    assert sum(event.data.get("count", 1) for event in rows) == 2000
    assert rows[0].data.get("count", 1) == 1
    windows = (run.events("run.end")[0].at_ns - rows[0].at_ns) / 250_000_000
    assert len(rows) <= 2 + windows  # a row has the time of the last that it counts, not that of its telling


def test_a_call_that_fails_by_itself_is_no_denial(tmp_path: Path) -> None:
    script = "rm -f /usr/nothing; mkdir /usr; rmdir /usr/nothing; cat /usr/nothing; mkdir -p /usr/bin; echo done"
    run = guarded(tmp_path, CLOSED, script)
    assert run.stdout == b"done\n"
    assert denied(run) == []


def test_everyday_places_of_a_process_are_its_own(tmp_path: Path) -> None:
    script = "echo 1 > /proc/self/oom_score_adj; echo x > /dev/null; echo x > /proc/self/fd/2; echo x | tee /dev/fd/2"
    run = guarded(tmp_path, CLOSED, script)
    assert run.stdout == b"x\n"
    assert run.stderr.count(b"x\n") == 2
    assert denied(run) == []


def test_a_sandbox_of_the_agents_own_works_and_its_names_are_the_machines(tmp_path: Path) -> None:
    if subprocess.run(["sh", "-c", "command -v bwrap"], capture_output=True).returncode:
        pytest.skip("bubblewrap is not installed")
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "id").write_text("secret")
    policy = CLOSED + '[files.read]\ndefault = "allow"\ndeny = ["~/.ssh/**"]\n'
    inner = f"echo x > /srv/in; echo x > /mnt/private; echo x > {tmp_path}/out; cat {tmp_path}/.ssh/id; echo ok"
    script = f"bwrap --ro-bind / / --bind . /srv --tmpfs /mnt --dev /dev --unshare-net sh -c '{inner}'"
    run = guarded(tmp_path, policy, script)
    assert run.stdout == b"ok\n", run.stderr
    assert (tmp_path / "work" / "in").read_text() == "x\n"
    assert not (tmp_path / "out").exists()
    assert ("write", "out", "mount") in denied(run)
    assert not [one for one in denied(run) if "srv" in one[1] or "mnt" in one[1] or "newroot" in one[1]]


RACE = """
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>
#include <sys/stat.h>
static char path[8] __attribute__((aligned(8)));
static volatile int stop;
static void set(const char *name) { *(volatile unsigned long *)path = *(const unsigned long *)name; }
static void *flip(void *unused) {
    while (!stop) {
        set(".envrc\\0");
        for (volatile int i = 0; i < 2000; i++);
        set("okay..\\0");
        for (volatile int i = 0; i < 2000; i++);
    }
    return 0;
}
int main() {
    pthread_t thread;
    struct stat found;
    int tries = 0, refused = 0;
    set("okay..\\0");
    pthread_create(&thread, 0, flip, 0);
    while ((tries++ < 3000 || !refused) && stat(".envrc", &found)) {  /* the other thread may be slow to begin */
        int fd = open(path, O_WRONLY | O_CREAT, 0644);
        refused += fd < 0 && errno == EACCES;
        if (fd >= 0) { write(fd, "x", 1); close(fd); }
    }
    stop = 1;
    pthread_join(thread, 0);
    return 0;
}
"""


def compiled(folder: Path, source: str) -> str:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler here")
    return program(folder, "racer", source)


def check(recording: Path, policy: Path) -> subprocess.CompletedProcess[bytes]:
    command = [*AGENTWRAP, "check", str(recording), "--policy", str(policy), "--json"]
    return subprocess.run(command, capture_output=True, env=environment(recording.parent))


def test_a_race_that_is_won_shows(tmp_path: Path) -> None:
    """Two threads: whether the forbidden name comes to be is chance; that it is told, one way or the other, is not."""
    racer = compiled(tmp_path, RACE)
    run = guarded(tmp_path, CLOSED, racer)
    path = str(tmp_path / "work" / ".envrc")
    if os.path.exists(path):
        assert path in run.paths("file.edit")
        assert check(run.recording, tmp_path / "policy.toml").returncode == 1
    else:
        assert ("write", "work/.envrc", "stop") in denied(run)


def test_an_edit_that_the_policy_denies_is_a_violation_whoever_let_it_pass(tmp_path: Path) -> None:
    run = guarded(tmp_path, OPEN, "echo x > .envrc; echo x > ok", tier="guard", mode="observe")
    enforced = tmp_path / "enforced.toml"
    enforced.write_text(HEAD + OPEN)
    told = check(run.recording, enforced)
    assert told.returncode == 1
    assert json.dumps(str(tmp_path / "work" / ".envrc"))[1:-1] in told.stdout.decode()


def test_an_empty_folder_that_may_be_made_is_no_finding_at_the_end(tmp_path: Path) -> None:
    run = guarded(tmp_path, CLOSED, "mkdir -p sub/.git/hooks; echo x > sub/.git/hooks/a.sample")
    assert denied(run) == []
    assert [path for path in run.paths("file.edit") if not path.endswith("a.sample")] == []


EXEC_RACE = """
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>
static char path[8] __attribute__((aligned(8)));
static volatile int stop;
static void set(const char *name) { *(volatile unsigned long *)path = *(const unsigned long *)name; }
static void *flip(void *unused) {
    while (!stop) {
        set("./evil\\0");
        for (volatile int i = 0; i < 2000; i++);
        set("./okay\\0");
        for (volatile int i = 0; i < 2000; i++);
    }
    return 0;
}
int main() {
    pthread_t thread;
    int status, refused = 0;
    set("./okay\\0");
    pthread_create(&thread, 0, flip, 0);
    for (int tries = 0; tries < 400 || !refused; tries++) {
        pid_t child = vfork();  /* shares memory: the name changes while the child asks for it */
        if (child == 0) { execl(path, path, "ran", (char *)0); _exit(9); }
        waitpid(child, &status, 0);
        refused += status != 0;  /* by an errno, or killed: it had won */
    }
    stop = 1;
    pthread_join(thread, 0);
    return access("ran", F_OK) == 0;
}
"""


def test_a_program_that_won_the_race_to_be_run_runs_nothing(tmp_path: Path) -> None:
    racer = compiled(tmp_path, EXEC_RACE)
    policy = OPEN + '[exec]\ndefault = "allow"\ndeny = ["**/evil"]\n'
    run = guarded(tmp_path, policy, f"cp /usr/bin/touch evil; cp /usr/bin/true okay; {racer}")
    assert run.status == 0
    assert not (tmp_path / "work" / "ran").exists()
    told = {event.data["by"] for event in run.events("act.denied")}
    assert told
    assert told <= {"witness", "guard"}


def test_a_rule_written_with_a_link_holds_for_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "real" / ".keys").mkdir(parents=True)
    (tmp_path / "real" / ".keys" / "k").write_text("secret")
    (tmp_path / "real" / "out").mkdir()
    (tmp_path / "link").symlink_to("real")
    policy = f'[files.write]\ndefault = "deny"\nallow = ["{tmp_path}/link/out/**"]\n'
    policy += f'[files.read]\ndefault = "allow"\ndeny = ["{tmp_path}/link/.keys/**"]\n'
    for tier in TIERS:
        script = "cat ../real/.keys/k ../link/.keys/k; for f in real/out/a link/out/b link/c; do echo x > ../$f; done"
        run = guarded(tmp_path, policy, script, tier=tier)
        assert run.stdout == b""
        assert sorted(os.listdir(tmp_path / "real" / "out")) == ["a", "b"]
        assert [one[:2] for one in denied(run)] == [("read", "real/.keys/k"), ("write", "real/c")]
        run.recording.unlink()


def test_a_program_is_denied_by_the_link_that_is_run(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "other").symlink_to("/usr/bin/true")
    (tmp_path / "work" / "name").symlink_to("/usr/bin/true")
    link = tmp_path / "work" / "name"
    policy = OPEN + f'[exec]\ndefault = "allow"\ndeny = ["{link}"]\n'
    run = guarded(tmp_path, policy, "./other && echo other; ./name || echo refused; true")
    assert run.stdout == b"other\nrefused\n"
    assert denied(run) == [("exec", "work/name", "stop")]


@pytest.mark.skipif(os.geteuid() != 0, reason="about a root agent")
def test_a_root_agent_does_not_reach_the_machine_through_the_kernels_files(tmp_path: Path) -> None:
    before = Path("/proc/sys/kernel/core_pattern").read_text()
    script = (
        "echo '|/x' > /proc/sys/kernel/core_pattern; echo 1 > /sys/kernel/mm/ksm/run; cat /proc/kcore | head -c 1;"
        "ls /dev; umount /proc/sys; mount -t proc p /proc; unshare -Urmpf --mount-proc true || echo closed"
    )
    run = guarded(tmp_path, OPEN, script)
    words = run.stdout.decode().split()
    assert words[-1] == "closed"
    assert {"null", "urandom", "pts", "tty"} <= set(words)
    assert not [word for word in words if word.startswith(("vd", "sd", "nvme", "loop", "mem", "kmsg", "kvm", "vsock"))]
    assert Path("/proc/sys/kernel/core_pattern").read_text() == before
    assert ("write", "/proc/sys/kernel/core_pattern", "mount") in denied(run)


def test_data_with_the_connection_request_is_refused(tmp_path: Path) -> None:
    code = (
        "import socket\n"
        "s = socket.socket()\n"
        "try: s.sendto(b'x', 0x20000000, ('127.0.0.1', 9))\n"
        "except OSError as e: print(e.errno)\n"
    )
    (tmp_path / "fast.py").write_text(code)
    run = guarded(tmp_path, OPEN, f"{sys.executable} ../fast.py")
    assert run.stdout == b"95\n"
    assert denied(run) == [("call", "127.0.0.1:9", "seccomp")]


@pytest.mark.parametrize("tier", TIERS)
def test_files_without_a_name_are_allowed_where_they_were_seen(tmp_path: Path, tier: str) -> None:
    code = (
        "import os, sys\n"
        "for folder in sys.argv[1:]:\n"
        "    try: os.write(os.open(folder, os.O_TMPFILE | os.O_RDWR), b'x'); print('made')\n"
        "    except OSError as e: print(e.errno)\n"
    )
    (tmp_path / "make.py").write_text(code)
    for name in ("seen", "unseen"):
        (tmp_path / "work" / name).mkdir(parents=True)
    script = f"{sys.executable} ../make.py seen; echo x > seen/named"
    watched = guarded(tmp_path, OPEN, script, tier="guard", mode="observe")
    assert str(tmp_path / "work" / "seen" / "(unnamed)") in watched.paths("file.edit")
    words = [*AGENTWRAP, "policy", "suggest", str(watched.recording)]
    suggested = subprocess.run(words, capture_output=True, text=True, env=environment(tmp_path), check=True).stdout
    assert '"$CWD/seen/(unnamed)"' in suggested
    written = suggested[suggested.index("[files.write]") : suggested.index("# Reads")]
    watched.recording.unlink()
    again = guarded(tmp_path, written, f"{sys.executable} ../make.py seen unseen .", tier=tier)
    assert again.stdout.split() == [b"made", b"13", b"13"], again.stderr
    assert [one[1] for one in denied(again)] == ["work/unseen/(unnamed)", "work/(unnamed)"]


def test_what_a_sandbox_of_the_agents_own_has_read_only_is_no_denial(tmp_path: Path) -> None:
    if subprocess.run(["sh", "-c", "command -v bwrap"], capture_output=True).returncode:
        pytest.skip("bubblewrap is not installed")
    for name in ("kept", "open"):
        (tmp_path / "work" / name).mkdir(parents=True)
    (tmp_path / "work" / "kept" / "old").touch()
    policy = '[files.write]\ndefault = "deny"\nallow = ["$CWD/open/**"]\n'
    inner = "echo x > open/in; echo x > kept/new; rm -f kept/old; mv open/in kept/in; echo x > .envrc; echo x > here"
    sandbox = "bwrap --ro-bind / / --bind . $PWD --ro-bind kept $PWD/kept --dev /dev --unshare-net"
    run = guarded(tmp_path, policy, f"{sandbox} sh -c '{inner}'; echo x > kept/new")
    assert sorted(os.listdir(tmp_path / "work" / "kept")) == ["old"]
    assert run.stderr.count(b"Read-only file system") >= 2, run.stderr
    # Outside of the sandbox, what nothing there holds, and what is refused by name, are told.
    assert [target for _, target, _ in denied(run)] == ["work/.envrc", "work/here", "work/kept/new"]
    assert sum(event.data.get("count", 1) for event in run.events("act.denied")) == 3
