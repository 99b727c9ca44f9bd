"""Clients of every day under an enforcing policy: what is allowed arrives whole, the rest never leaves and is told.

Each asks for the same file three times: of an allowed name, of another name, of that one's address. The servers say
what they heard, the recording says who was refused.
"""

import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from real import client_programs as programs
from real import sites
from real.confined import DENIED, DENIED_6, PYTHON, TIERS, Place, Ran
from real.programs import need


@dataclass(frozen=True)
class Client:
    """`command`: a program that writes what $URL leads to; `make` gives it where it must be built first."""

    program: str
    command: Sequence[str] = ()
    make: Callable[[Path], list[str]] | None = None
    modules: tuple[str, ...] = ()
    scheme: str = "https"
    address: str = DENIED
    env: tuple[tuple[str, str], ...] = ()

    def words(self, folder: Path) -> str:
        programs.need_modules(*self.modules)
        if self.make is not None:
            return shlex.join(self.make(folder))
        need(self.command[0])
        return " ".join('"$URL"' if word == "$URL" else shlex.quote(word) for word in self.command)


def python(code: str, *modules: str, **env: str) -> Client:
    return Client(PYTHON, (sys.executable, "-c", code), modules=modules, env=tuple(env.items()))


CURL = ("curl", "-sSf", "-m", "300", "$URL")
CLIENTS = {
    "curl": Client("curl", (*CURL, "--cacert", "../ca.pem")),
    "curl-http": Client("curl", CURL, scheme="http"),
    "curl-4": Client("curl", (*CURL, "-4"), scheme="http"),
    "curl-6": Client("curl", (*CURL, "-6"), scheme="http", address=DENIED_6),
    "curl-http2": Client("curl", (*CURL, "--cacert", "../ca.pem", "--http2"), scheme="h2"),
    "wget": Client("wget", ("wget", "-q", "-t", "1", "-T", "300", "-O", "-", "--ca-certificate=../ca.pem", "$URL")),
    "wget-http": Client("wget", ("wget", "-q", "-t", "1", "-T", "300", "-O", "-", "$URL"), scheme="http"),
    "urllib": python(programs.URLLIB),
    "requests": python(programs.REQUESTS, "requests"),
    "httpx": python(programs.HTTPX, "httpx"),
    "httpx-http2": Client(
        PYTHON, (sys.executable, "-c", programs.HTTPX), modules=("httpx", "h2"), scheme="h2", env=(("HTTP2", "1"),)
    ),
    "aiohttp": python(programs.AIOHTTP, "aiohttp"),
    "node-fetch": Client("node", ("node", "-e", programs.FETCH)),
    "node-http2": Client("node", ("node", "-e", programs.NODE_HTTP2), scheme="h2"),
    "bun": Client("bun", ("bun", "-e", programs.FETCH)),
    "go": Client("gofetch", make=programs.go_binary),
    "java": Client("java", make=programs.java_source),
    "musl": Client("muslfetch", make=programs.musl_binary, scheme="http"),
}


def three_tries(words: str, scheme: str, *hosts: str) -> str:
    """A shell script; the file TRY.out has what a try wrote, TRY.status how it ended."""
    lines = []
    for number, host in zip(("allowed", "name", "address"), hosts, strict=True):
        lines.append(f"export URL={scheme}://{host}/file\n{words} >{number}.out 2>{number}.err </dev/null")
        lines.append(f"echo $? >{number}.status")
    return "\n".join(lines)


def result(place: Place, number: str) -> tuple[int, bytes, str]:
    out, err = ((place.work / f"{number}.{kind}").read_bytes() for kind in ("out", "err"))
    return int((place.work / f"{number}.status").read_text()), out, err.decode("utf-8", "replace")


def judge(place: Place, ran: Ran, program: str, address: str) -> None:
    """The denied tries: in the record with their process, unheard by the server."""
    assert (ran.status, ran.err) == (0, b"")
    refused = ran.refused()
    assert ("denied.example", program) in refused
    assert (address, program) in refused
    assert {who for _, who in refused} == {program}
    ran.whole()
    place.untouched()


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_fetches_what_is_allowed_and_nothing_else(
    place: Place, site: sites.Site, name: str, tier: str
) -> None:
    client = CLIENTS[name]
    words = client.words(place.folder)
    scheme, host = client.scheme, "allowed.example"
    if scheme == "h2":
        scheme, host = "https", "http2.example"
        serve_http2(place)
    port = 443 if scheme == "https" else 80
    ran = place.run(
        ["sh", "-c", three_tries(words, scheme, host, "denied.example", client.address)],
        tier,
        env=place.trusting(**dict(client.env)),
    )
    status, out, err = result(place, "allowed")
    assert (status, out) == (0, sites.BODY), err
    for refused in ("name", "address"):
        status, out, _ = result(place, refused)
        assert status != 0 or b"agentwrap denied" in out
        assert sites.BODY[:64] not in out
    judge(place, ran, client.program, f"{client.address}:{port}")
    closed = [row for row in ran.of("net.closed") if row.subject == f"{host}:{port}"]
    assert {ran.program(row) for row in closed} == {client.program}
    assert sum(row.data.get("down_bytes", 0) for row in closed) >= len(sites.BODY)


def serve_http2(place: Place) -> None:
    """Node's server, which speaks HTTP/2, for the allowed host; over IPv4, to which clients fall back."""
    need("node")
    listener = place.net.listen("192.0.2.3", 443)
    (place.folder / "body").write_bytes(sites.BODY)
    files = [str(place.folder / name) for name in ("key.pem", "cert.pem", "body")]
    with listener:
        descriptor = listener.fileno()
        place.helper("node", "-e", programs.NODE_SERVER, str(descriptor), *files, pass_fds=(descriptor,))
