"""Model calls through agentwrap and beside it: `python tests/bench/model_proxy.py [--rounds N] [--calls N] [--quick]`.

Calls of a conversation with a streamed answer of 21 events, with TLS and without: direct; in a run (capture, wall);
through `agentwrap proxy`; and through others that record, where `--mitmproxy` and `--backspin` name their programs. All
in turns, in a network namespace of the bench's own; medians of the rounds. A recording that does not hold every call
fails the bench.
"""

import argparse
import json
import os
import re
import signal
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

import far_side  # noqa: E402
import model_client  # noqa: E402
from internet import Internet  # noqa: E402
from wrapping import AGENTWRAP, environment, events  # noqa: E402

HOST, ADDRESS, PLAIN = "api.openai.com", "203.0.113.11", 8123
PORT = 18080
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_FIRST = _HEAD + b"%x\r\n%b\r\n" % (len(model_client.EVENT), model_client.EVENT)
_REST = b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in model_client.ANSWER[1:]) + b"0\r\n\r\n"


@dataclass
class Measured:
    """One way: `first_us`, `alone` and `together` (calls/s) of each round."""

    name: str
    tls: bool
    samples: list[dict[str, float]] = field(default_factory=list)
    missing: str = ""

    def median(self, what: str) -> float:
        return statistics.median(sample[what] for sample in self.samples)


def serve(sock: socket.socket) -> None:
    """Answers as fast as it can: a first event, then the rest."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    held = b""
    while data := sock.recv(1 << 16):
        held += data
        while (end := held.find(b"\r\n\r\n")) >= 0:
            head = held[:end].lower()
            size = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
            while len(held) < end + 4 + size:
                held += sock.recv(1 << 16)
            held = held[end + 4 + size :]
            sock.sendall(_FIRST)
            sock.sendall(_REST)


def server_process(plain: socket.socket, secure: socket.socket, folder: Path) -> int:
    """Serves in a process of its own; its pid."""
    pid = os.fork()
    if pid:
        return pid
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")

    def talk(sock: socket.socket) -> None:
        with context.wrap_socket(sock, server_side=True) as inner:
            serve(inner)

    far_side.Server(plain, serve)
    far_side.Server(secure, talk)
    while True:
        signal.pause()


class Bench:
    """The servers, and one measurement after the other."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self.folder = folder
        self.options = options
        self.net = Internet(folder, {HOST: [ADDRESS]})
        far_side.certificate(folder, (HOST,))
        self.server = server_process(self.net.listen(ADDRESS, PLAIN), self.net.listen(ADDRESS, 443), folder)
        self.env = {**environment(folder), "SSL_CERT_FILE": str(folder / "ca.pem")}
        self.env["OPENAI_BASE_URL"] = f"http://{HOST}:{PLAIN}/v1"

    def client(self, tls: bool, way: str) -> list[str]:
        where = [HOST, "443", "tls"] if tls else [HOST, str(PLAIN), "plain"]
        counts = [str(self.options.calls), "4", str(self.options.messages)]
        return [sys.executable, str(HERE / "model_client.py"), *where, way, *counts]

    def run(self, argv: list[str], **more: str) -> dict[str, float]:
        done = self.net.run(argv, env={**self.env, **more}, cwd=self.folder, capture_output=True, timeout=300)
        if done.returncode:
            raise RuntimeError(done.stderr.decode()[-1500:])
        told: dict[str, float] = json.loads(done.stdout)
        return told

    def checked(self, recording: Path, told: dict[str, float]) -> dict[str, float]:
        """The recording holds every call. Raises RuntimeError."""
        rows = events(recording, "model.response")
        complete = sum(row.data["ending"] == "complete" for row in rows)
        told["file_bytes"] = recording.stat().st_size / told["calls"]
        recording.unlink()
        if complete != told["calls"]:
            raise RuntimeError(f"{complete} calls in the recording of {told['calls']}")
        return told

    def wrapped(self, *more: str) -> Callable[[bool], dict[str, float]]:
        def measure(tls: bool) -> dict[str, float]:
            out = self.folder / "run.agentlog"
            argv = [*AGENTWRAP, "run", "-q", "-o", str(out), *more, "--", *self.client(tls, "direct")]
            return self.checked(out, self.run(argv))

        return measure

    @contextmanager
    def beside(self, argv: list[str], end: signal.Signals = signal.SIGTERM) -> Iterator[None]:
        """A proxy that listens on PORT, while it is needed."""
        with (self.folder / "proxy.txt").open("wb") as log:
            process = self.net.popen(argv, env=self.env, cwd=self.folder, stdout=log, stderr=log)
        try:
            ask = f"import socket; socket.create_connection(('127.0.0.1', {PORT}))"
            deadline = time.monotonic() + 60
            while True:
                probe = self.net.run([sys.executable, "-c", ask], capture_output=True)
                if probe.returncode == 0:
                    break
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError((self.folder / "proxy.txt").read_text()[-800:])
            yield
        finally:
            process.send_signal(end)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def proxied(self, tls: bool) -> dict[str, float]:
        out = self.folder / "proxy.agentlog"
        way = f"tunnel=127.0.0.1:{PORT}" if tls else f"base=127.0.0.1:{PORT}/+/http/{HOST}:{PLAIN}"
        with self.beside([*AGENTWRAP, "proxy", "-o", str(out), "--port", str(PORT)], signal.SIGINT):
            while not (found := re.search("export SSL_CERT_FILE=(.*)\n", (self.folder / "proxy.txt").read_text())):
                pass  # it listens before it says so
            trust = found[1]
            told = self.run(self.client(tls, way), BENCH_TRUST=trust)
        return self.checked(out, told)

    def mitmproxy(self, *more: str) -> Callable[[bool], dict[str, float]]:
        def measure(tls: bool) -> dict[str, float]:
            confdir = self.folder / "mitmproxy"
            flows = self.folder / "flows"
            argv = [self.options.mitmproxy, "-q", "-p", str(PORT), "-w", str(flows), *more]
            argv += ["--set", f"confdir={confdir}", "--set", f"ssl_verify_upstream_trusted_ca={self.folder / 'ca.pem'}"]
            if not tls:
                argv += ["--mode", f"reverse:http://{HOST}:{PLAIN}"]
            with self.beside(argv):
                way = f"tunnel=127.0.0.1:{PORT}" if tls else f"base=127.0.0.1:{PORT}"
                trust = str(confdir / "mitmproxy-ca-cert.pem") if tls else ""
                told = self.run(self.client(tls, way), BENCH_TRUST=trust)
            told["file_bytes"] = flows.stat().st_size / told["calls"]
            flows.unlink()
            return told

        return measure

    def backspin(self, tls: bool) -> dict[str, float]:
        """It is no proxy of TLS: its clients speak plain HTTP to it. Here it asks the server over TLS."""
        upstream = f"https://{HOST}" if tls else f"http://{HOST}:{PLAIN}"
        kept = ["--dir", str(self.folder / "backspin")]
        with self.beside([self.options.backspin, "proxy", "--upstream", upstream, "--port", str(PORT), *kept]):
            return self.run(self.client(False, f"base=127.0.0.1:{PORT}"))

    def ways(self) -> dict[str, Callable[[bool], dict[str, float]]]:
        allow = ("--allow", HOST)
        found: dict[str, Callable[[bool], dict[str, float]]] = {
            "direct": lambda tls: self.run(self.client(tls, "direct")),
            "agentwrap run": self.wrapped(),
            "agentwrap run, wall": self.wrapped("--tier", "wall", *allow),
            "agentwrap proxy": self.proxied,
        }
        if self.options.mitmproxy:
            found["mitmproxy"] = self.mitmproxy()
            found["mitmproxy, streaming"] = self.mitmproxy("--set", "stream_large_bodies=1")
        if self.options.backspin:
            found["backspin"] = self.backspin
        return found

    def close(self) -> None:
        os.kill(self.server, signal.SIGKILL)
        os.waitpid(self.server, 0)
        self.net.close()


def compare(options: argparse.Namespace) -> list[Measured]:
    with tempfile.TemporaryDirectory(prefix="agentwrap-bench-") as folder:
        bench = Bench(Path(folder), options)
        try:
            ways = {name: way for name, way in bench.ways().items() if not options.ways or name in options.ways}
            results = [Measured(name, tls) for tls in (False, True) for name in ways]
            for _ in range(options.rounds):
                for one in results:
                    if one.missing:
                        continue
                    try:
                        sample = ways[one.name](one.tls)
                    except (RuntimeError, OSError) as error:
                        if "agentwrap" in one.name or one.name == "direct":
                            raise
                        one.missing = str(error).strip().rpartition("\n")[2][:100]
                        continue
                    one.samples.append(sample)
                    shown = ", ".join(f"{key} {value:,.0f}" for key, value in sample.items())
                    sys.stderr.write(f"{one.name:24} {'TLS' if one.tls else '':4} {shown}\n")
        finally:
            bench.close()
    return results


def table(results: list[Measured], options: argparse.Namespace) -> str:
    direct = {one.tls: one for one in results if one.name == "direct"}
    load = os.getloadavg()[0]
    size = len(model_client.body_of(0, options.messages)) / 1e3
    rounds = f"{options.rounds} rounds in turns, load at the end {load:.1f}"
    lines = [f"{options.calls} calls of {size:.0f} KB for each cell, {rounds}.", ""]
    heads = ("way", "TLS", "first byte", "it adds", "calls/s, in turn", "calls/s, 4 at once", "kept for a call")
    lines += [f"| {' | '.join(heads)} |", "|---|---|" + "--:|" * 5]
    for one in results:
        name = [one.name, "yes" if one.tls else "no"]
        if not one.samples:
            lines.append(f"| {' | '.join(name)} | missing: {one.missing} |" + " |" * 4)
            continue
        base = direct[one.tls]
        rates = []
        for what in ("alone", "together"):
            ratio = "" if one is base else f" ({one.median(what) / base.median(what):.2f}x)"
            rates.append(f"{one.median(what):,.0f}{ratio}")
        first = one.median("first_us")
        added = "" if one is base else f"{(first - base.median('first_us')) / 1e3:+.2f} ms"
        kept = f"{one.median('file_bytes'):,.0f}" if "file_bytes" in one.samples[0] else ""
        lines.append(f"| {' | '.join([*name, f'{first / 1e3:.2f} ms', added, *rates, kept])} |")
    return "\n".join(lines) + "\n"


WORDS = """
## Model calls

A client and a server in Python, raw sockets, on the loopback of a network namespace of the bench's own; both, and all
between them, share this machine's cores. A call asks with a conversation of half a KB a message and is answered with 21
events, the first of them apart. `first byte`: from before the request is sent until the first event is there. Medians,
and the ratio to direct. Every recording of agentwrap's is checked to tell of every call;
mitmproxy writes its flows to a file (with `stream_large_bodies` it keeps no bodies), backspin its runs. backspin
speaks plain HTTP to its clients. `in turn`: one connection, the next call when the last is answered.
"""
_SIZES = (40, 2)


def page(*, rounds: int, quick: bool, peers: Path | None) -> str:
    """The part of the page about model calls. `peers`: where a `venv` has mitmproxy and backspin."""
    tables = []
    for messages in _SIZES:
        options = argparse.Namespace(rounds=rounds, calls=20 if quick else 400, messages=messages, ways=None)
        programs = peers / "venv" / "bin" if peers else Path("/nonexistent")
        options.mitmproxy = str(programs / "mitmdump") if (programs / "mitmdump").exists() else ""
        options.backspin = str(programs / "backspin") if (programs / "backspin").exists() else ""
        tables.append(table(compare(options), options))
    return WORDS.lstrip() + "\n" + "\n".join(tables)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--messages", type=int, default=40, metavar="N", help="of half a KB in each call (40)")
    parser.add_argument("--ways", action="append", metavar="NAME", help="only these")
    parser.add_argument("--mitmproxy", metavar="MITMDUMP", help="its program")
    parser.add_argument("--backspin", metavar="PROGRAM", help="its program")
    parser.add_argument("--quick", action="store_true", help="a few calls, one round: only whether it works")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.calls = 1, 20
    sys.stdout.write(table(compare(options), options))
    return 0


if __name__ == "__main__":
    sys.exit(main())
