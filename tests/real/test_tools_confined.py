"""git, pip, npm, dig and a browser under an enforcing policy: they do their work with the allowed host alone."""

import os
import pwd
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from real import client_programs, sites
from real.confined import DENIED, PYTHON, TIERS, Place, Ran
from real.programs import need

pytestmark = pytest.mark.parametrize("tier", TIERS)

GIT = {
    "GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.invalid", "GIT_COMMITTER_NAME": "C",
    "GIT_COMMITTER_EMAIL": "c@example.invalid", "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
}  # fmt: skip


def script(*commands: Sequence[str]) -> list[str]:
    """A shell that runs each command, whatever becomes of the others, and says how each ended, one line each."""
    lines = [f"{shlex.join(words)} >&2 </dev/null; echo $?" for words in commands]
    return ["sh", "-c", "\n".join(lines)]


def ended(ran: Ran) -> list[int]:
    return [int(line) for line in ran.out.split()]


def refused_to(place: Place, ran: Ran, program: str, address: str) -> None:
    assert ran.refused() == {("denied.example", program), (address, program)}
    ran.whole()
    place.untouched()


def repository(folder: Path) -> None:
    """`folder`/repo.git with one commit."""
    lines = """
    git init -q -b main made; cd made; echo content > file; git add file; git commit -q -m one
    git clone -q --bare . ../repo.git; git -C ../repo.git config http.receivepack true
    """
    subprocess.run(["sh", "-ec", lines], cwd=folder, env={**os.environ, **GIT}, check=True)


def test_git_over_https(place: Place, site: sites.Site, tier: str) -> None:
    """Over HTTPS git is allowed or denied by name."""
    need("git")
    repository(place.folder)
    site.repositories = place.folder
    edit = "cd there && echo more >> file && git commit -qam two && git push -q origin main"
    ran = place.run(
        script(
            ["git", "clone", "-q", "https://allowed.example/git/repo.git", "there"],
            ["sh", "-c", edit],
            ["git", "ls-remote", "https://denied.example/git/repo.git"],
            ["git", "ls-remote", f"https://{DENIED}/git/repo.git"],
        ),
        tier,
        env={**GIT, "GIT_SSL_CAINFO": str(place.folder / "ca.pem")},
    )
    assert ended(ran) == [0, 0, 128, 128], ran.err
    log = subprocess.run(
        ["git", "-C", str(place.folder / "repo.git"), "log", "--format=%s"], capture_output=True, text=True, check=True
    )
    assert log.stdout.split() == ["two", "one"]
    refused_to(place, ran, "git-remote-https", f"{DENIED}:443")


SSHD = """
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
PidFile none
StrictModes no
UsePAM no
PermitRootLogin yes
LoginGraceTime 0
"""


def test_git_over_ssh(place: Place, tier: str) -> None:
    """Over SSH, too: by the name that was looked up for the connection."""
    need("git", "ssh", "sshd", "ssh-keygen", "unshare")
    try:
        user = pwd.getpwuid(os.getuid())
    except KeyError:
        pytest.skip("sshd lets nobody in who has no entry in the password file")
    if not user.pw_shell.endswith("sh"):
        pytest.skip(f"the shell of {user.pw_name}, {user.pw_shell}, runs no command for sshd")
    repository(place.folder)
    for key in ("host_key", "user_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(place.folder / key)], check=True)
    settings = place.folder / "sshd_config"
    settings.write_text(SSHD.format(folder=place.folder))
    # As root it wants its folder below /run.
    inside = f"mount -t tmpfs none /run && mkdir -m 755 /run/sshd && exec /usr/sbin/sshd -i -f {settings}"
    command = (
        ["unshare", "-m", "sh", "-c", inside] if os.getuid() == 0 else ["/usr/sbin/sshd", "-i", "-f", str(settings)]
    )

    def talk(connection: "sites.socket.socket") -> None:
        subprocess.run(command, stdin=connection, stdout=connection, stderr=subprocess.DEVNULL)

    server = place.serve(place.net.listen("192.0.2.1", 22), talk)
    ssh = f"ssh -F none -i {place.folder}/user_key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
    urls = [
        f"ssh://{user.pw_name}@{host}{place.folder}/repo.git" for host in ("allowed.example", "denied.example", DENIED)
    ]
    ran = place.run(
        script(["git", "clone", "-q", urls[0], "there"], *(["git", "ls-remote", url] for url in urls[1:])),
        tier,
        env={**GIT, "GIT_SSH_COMMAND": ssh + " -o BatchMode=yes -o LogLevel=ERROR"},
    )
    assert ended(ran) == [0, 128, 128], ran.err
    assert (place.work / "there/file").read_text() == "content\n"
    assert server.peers == 1
    refused_to(place, ran, "ssh", f"{DENIED}:22")


PIP = (sys.executable, "-m", "pip", "-q", "--isolated", "--disable-pip-version-check", "install", "--no-cache-dir",
       "--retries", "0", "--timeout", "300", "--cert", "../ca.pem", "--index-url")  # fmt: skip
UV = (sys.executable, "-m", "uv", "pip", "install", "-q", "--no-cache", "--python", sys.executable, "--default-index")


@pytest.mark.parametrize("client", ["pip", "uv"])
def test_a_package_from_an_index(place: Place, site: sites.Site, client: str, tier: str) -> None:
    """pip is Python's TLS, uv is Rust's."""
    command, program = (PIP, PYTHON) if client == "pip" else (UV, "uv")
    client_programs.need_modules(client)
    sites.pip_index(site, "walledpackage", "VALUE = 42\n")
    targets = {"allowed.example": "here", "denied.example": "nowhere", DENIED: "nowhere"}
    used = "import sys; sys.path.insert(0, 'here'); import walledpackage; sys.exit(walledpackage.VALUE - 42)"
    ran = place.run(
        script(
            *([*command, f"https://{host}/simple/", "--target", to, "walledpackage"] for host, to in targets.items()),
            [sys.executable, "-c", used],
        ),
        tier,
        env=place.trusting(UV_HTTP_RETRIES="0", UV_HTTP_TIMEOUT="300", UV_HTTP_CONNECT_TIMEOUT="300"),
    )
    status = 1 if client == "pip" else 2
    assert ended(ran) == [0, status, status, 0], ran.err
    refused_to(place, ran, program, f"{DENIED}:443")


def test_npm(place: Place, site: sites.Site, tier: str) -> None:
    need("npm", "node")
    sites.npm_registry(site, "https://allowed.example", "walled-package", "module.exports = 42")
    install = ["npm", "install", "--no-audit", "--no-fund", "--no-update-notifier", "--fetch-retries=0", "--silent"]
    ran = place.run(
        script(
            *(
                [*install, "--prefix", folder, f"--registry=https://{host}", "walled-package"]
                for host, folder in (("allowed.example", "here"), ("denied.example", "nowhere"), (DENIED, "nowhere"))
            ),
            ["node", "-e", "process.exit(require('./here/node_modules/walled-package') - 42)"],
        ),
        tier,
        env=place.trusting(),
    )
    assert ended(ran) == [0, 1, 1, 0], ran.err
    [program] = {program for _, program in ran.refused()}
    assert program in ("node", "npm")
    refused_to(place, ran, program, f"{DENIED}:443")


DIG = {
    "": ("NOERROR", ["192.0.2.1"]),
    "-t A -4": ("NOERROR", ["192.0.2.1"]),
    "AAAA": ("NOERROR", ["2001:db8::1"]),
    "+tcp": ("NOERROR", ["192.0.2.1"]),
    "+noedns": ("NOERROR", ["192.0.2.1"]),
    "+dnssec +nsid +subnet=192.0.2.0/24 +bufsize=4096": ("NOERROR", ["192.0.2.1"]),
    "+nocookie +norecurse +noadflag": ("NOERROR", ["192.0.2.1"]),
    "@192.0.2.53": ("NOERROR", ["192.0.2.1"]),
    "@192.0.2.53 +tcp": ("NOERROR", ["192.0.2.1"]),
    "@2001:db8::53": ("NOERROR", ["192.0.2.1"]),
    "MX": ("NOERROR", []),
    "TXT": ("NOERROR", []),
    "HTTPS": ("NOERROR", []),
    "ANY": ("NOERROR", ["192.0.2.1", "2001:db8::1"]),
    "AXFR": ("", []),
    "TXT CH": ("REFUSED", []),
}


@pytest.mark.parametrize("name", ["allowed.example", "denied.example"])
def test_dig_in_its_forms(place: Place, name: str, tier: str) -> None:
    """Any resolver, both transports, any type: addresses are answered, nothing else is, and nobody else is asked."""
    need("dig")
    lines = [f"echo FORM; dig +tries=1 +time=300 {name} {form}" for form in DIG]
    ran = place.run(["sh", "-c", "\n".join(lines)], tier)
    answers = ran.out.decode().split("FORM\n")[1:]
    told = {form: _dug(answer) for form, answer in zip(DIG, answers, strict=True)}
    if name == "allowed.example":
        if tier == "guard":
            # dig's sockets for IPv6 are for nothing else, and the guard's name server is on 127.0.0.1 alone.
            assert told.pop("@2001:db8::53") == ("", [])
        assert told == {form: DIG[form] for form in told}, ran.out.decode()
    else:
        assert {status for status, _ in told.values()} <= {"NXDOMAIN", "REFUSED", ""}
        assert [found for _, found in told.values() if found] == []
        assert ran.refused() >= {("denied.example", "dig")}
    assert {program for _, program in ran.refused()} <= {"dig"}
    ran.whole()
    place.untouched()


def _dug(text: str) -> tuple[str, list[str]]:
    """The status, and the addresses in the answer."""
    status = text.partition("status: ")[2].partition(",")[0]
    answer = text.partition(";; ANSWER SECTION:\n")[2].partition("\n\n")[0]
    return status, sorted(line.split()[4] for line in answer.splitlines() if line.split()[3] in ("A", "AAAA"))


PAGE = b"""<!DOCTYPE html><title>page</title><body><p id=told>nothing</p><script>
const told = []
const get = url => fetch(url).then(answer => answer.text(), () => 'refused')
Promise.all([get('/file'), get('https://denied.example/file'), get('https://192.0.2.9/file')]).then(answers => {
  document.getElementById('told').textContent = answers.map(one => one.length).join(' ')
})
</script><img src="https://denied.example/picture.png"></body>"""


def test_chromium_loads_a_page(place: Place, site: sites.Site, tier: str) -> None:
    """Its own errands (updates, variations, QUIC) go nowhere either."""
    need("chromium")
    site.pages["/page"] = ("text/html", PAGE)
    flags = (
        "--headless --no-sandbox --disable-gpu --no-first-run --ignore-certificate-errors --virtual-time-budget=20000"
    )
    words = ["chromium", *flags.split(), f"--user-data-dir={place.home}/profile", "--dump-dom"]
    ran = place.run([*words, "https://allowed.example/page"], tier)
    assert f'<p id="told">{len(sites.BODY)} 7 7</p>' in ran.out.decode(), ran.err.decode()[-2000:]
    assert ran.status == 0
    refused = ran.refused()
    assert refused >= {("denied.example", "chromium"), (f"{DENIED}:443", "chromium")}
    assert {program for _, program in refused} == {"chromium"}
    assert {row.subject for row in ran.of("net.decision", verdict="allow")} == {"allowed.example:443"}
    ran.whole()
    place.untouched()


POOL = """
import multiprocessing
with multiprocessing.Pool(3) as pool:
    print(sum(pool.map(abs, range(-100, 0))))
"""


def test_processes_that_share_memory(place: Place, tier: str) -> None:
    """Semaphores of the C library lie in /dev/shm."""
    ran = place.run([sys.executable, "-c", POOL], tier)
    assert (ran.out, ran.err) == (b"5050\n", b"")
    assert ran.of("act.denied") == []
    ran.whole()
