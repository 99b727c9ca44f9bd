"""A proxy without a command: a gateway that clients are told of, and the recording of what went through it."""

import functools
import os
import shlex
import signal
import socket
import time
from collections.abc import Callable

from agentwrap.errors import EXIT_FAILED, AgentwrapError
from agentwrap.events import Coverage, RunEnd, RunStart
from agentwrap.launching import environment
from agentwrap.launching.authority_files import AuthorityFiles
from agentwrap.launching.options import RunOptions, option_words
from agentwrap.session.endings import both_clocks, clock_jump
from agentwrap.session.following import working_directory
from agentwrap.session.mcp_traffic import McpTraffic
from agentwrap.session.model_traffic import ModelTraffic

ENDING = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
_LOOK_S = 0.5
_NOTE = "what clients send here: tunnels (TLS of hosts to intercept), whole URLs, base URLs; nothing that goes past it"


class ProxySession:
    """One proxy, from options to a closed recording. Use once: `prepare`, then `run`. Blocks `ENDING` in its thread."""

    def __init__(self, options: RunOptions, port: int) -> None:
        """`options.command` is what the recording calls it; `port` 0: a free one."""
        self._options = options
        self._port = port
        self._start_ns, self._started_unix_ns = both_clocks()

    def _now(self) -> int:
        return time.monotonic_ns() - self._start_ns

    def prepare(self) -> int:
        """Listen, make the file and the certificates. Returns the port. Raises AgentwrapError; then nothing is left."""
        from agentwrap.gateway import started

        listener = self._listen()
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        loading = started.load(self._options, self._now, attended=False)
        try:
            self._gateway = started.start_capture(loading, listener)
        except BaseException:
            loading.end()
            raise
        try:
            self._gateway.forked_all()
            self._files = AuthorityFiles(self._options.environment, self._options.cwd or working_directory())
            self._gateway.go_on()
            self._gateway.wait_until_ready()
            self._files.write(self._gateway.ca_pem)
            self._record()
        except OSError as error:
            self._gateway.abandon()
            raise AgentwrapError(
                "output", "there is no place for the certificates that clients are to trust", evidence=str(error),
                exit_status=EXIT_FAILED,
            ) from error  # fmt: skip
        except BaseException:
            self._gateway.abandon()
            raise
        return int(self._port)

    def _listen(self) -> socket.socket:
        try:
            listener = socket.create_server(("127.0.0.1", self._port), backlog=1024)
        except OSError as error:
            raise AgentwrapError(
                "unsupported",
                f"port {self._port} cannot be listened on",
                evidence=f"127.0.0.1:{self._port}: {error.strerror}",
                hint=f"agentwrap proxy --port {self._port + 1 if self._port < 65535 else 0}",
            ) from error
        self._port = listener.getsockname()[1]
        return listener

    def _record(self) -> None:
        from agentwrap.session.recorder import is_written, make_pump

        options = self._options
        self._pump = make_pump(options, self._started_unix_ns, self._now)
        self._pump.start()
        self._pump.put(
            [
                RunStart(
                    at_ns=0, command=options.command, cwd=options.cwd or working_directory(), uid=os.getuid(),
                    gid=os.getgid(), tty=os.isatty(0), mode="proxy", options=option_words(options, False),
                    environment=tuple(options.environment.items()),
                ),
                Coverage(at_ns=0, what="model", tier="witness", mechanism="proxy", note=_NOTE),
            ]
        )  # fmt: skip
        if not is_written(self._pump):
            raise AgentwrapError(
                "output", "the recording cannot be written", evidence=self._pump.failure, exit_status=EXIT_FAILED
            )
        patient = functools.partial(self._pump.put, patient=True)
        self._mcp = McpTraffic(patient, self._now)
        self._gateway.traffic = ModelTraffic(self._now, self._mcp)
        self._gateway.attend(patient, self._pump.flush, self._now)

    def lines(self) -> list[str]:
        """What clients need in their environment, as lines for a POSIX shell."""
        address = b"http://127.0.0.1:%d" % self._port
        given = self._options.environment
        proxies = dict.fromkeys((b"HTTPS_PROXY", b"HTTP_PROXY", b"https_proxy", b"http_proxy"), address)
        authority = dict(self._files.paths)
        urls = environment.with_base_urls(given, self._port)
        changed = {name: value for name, value in urls.items() if given.get(name) != value}
        sets = (proxies | {b"NODE_USE_ENV_PROXY": b"1"} | authority, changed)
        return [
            "# clients that use a proxy, and trust the certificates of this one:",
            *_exports(sets[0]),
            "# or clients that take a base URL:",
            *_exports(sets[1]),
        ]

    def run(self, *, ended: Callable[[int], None] = lambda _signal: None) -> str:
        """Serve until a signal of `ENDING`; close the recording. Returns what went wrong, in words."""
        number = 0
        while number == 0 and self._alive():
            info = signal.sigtimedwait(ENDING, _LOOK_S)
            number = info.si_signo if info is not None else 0
        ended(number)
        self._gateway.close()
        self._mcp.close()
        self._files.remove()
        failure = self._gateway.failure or ("" if number else "the gateway ended")
        now_ns, now_unix_ns = both_clocks()
        self._pump.put(
            [
                *clock_jump(self._started_unix_ns, now_unix_ns, now_ns - self._start_ns),
                RunEnd(at_ns=self._now(), status=0 if number else None, reason="stopped" if number else "failed"),
            ]
        )
        if not self._pump.flush_and_close():
            failure = failure or self._pump.failure
        return failure

    def _alive(self) -> bool:
        try:
            return os.waitid(os.P_PID, self._gateway.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
        except ChildProcessError:
            return False


def _exports(variables: dict[bytes, bytes]) -> list[str]:
    return [f"export {os.fsdecode(name)}={shlex.quote(os.fsdecode(value))}" for name, value in variables.items()]
