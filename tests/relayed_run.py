"""`python relayed_run.py SERVERS.json LOG agentwrap-arguments...`: a run whose servers go through a tiny relay.

SERVERS: {"servers": {name: [words]}, "gated": bool, "root": name, "relay": "dead" or "none", "policy": [name]}. A
server is matched where its words are the last ones of an exec. LOG gets one JSON line for each session when it is over,
and one at the end: how many descriptors the relay has then.
"""

import json
import os
import select
import socket
import sys
from pathlib import Path
from typing import Any

import msgspec

from agentwrap.mcp.declared import Declared
from agentwrap.mcp.handover import Ends, Taken, take_over


class Words:
    """A matcher by the last words."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._servers = {name: tuple(map(os.fsencode, words)) for name, words in settings["servers"].items()}
        self._policy = set(settings.get("policy", ()))

    def match(self, path: bytes, argv: tuple[bytes, ...], cwd: bytes) -> Declared | None:  # noqa: ARG002
        for name, words in self._servers.items():
            if argv[len(argv) - len(words) + 1 :] == words[1:] and words[0] in (path, os.path.basename(argv[0])):
                client = "policy" if name in self._policy else "mcp.json"
                return Declared(name=name.encode(), client=client, config=b"/conf/.mcp.json")  # type: ignore[arg-type]
        return None

    def by_hand(self, argv: tuple[bytes, ...]) -> bytes | None:
        for i, word in enumerate(argv[:-3]):
            if word == b"mcp" and argv[i + 1] == b"--name":
                return argv[i + 2]
        return None


class Session:
    """Bytes in both directions, an end for an end."""

    def __init__(self, taken: Taken, ends: Ends) -> None:
        self.taken = taken
        self.up, self.down = b"", b""
        self.routes = {ends.client_in: ends.server_in, ends.server_out: ends.client_out}
        self.ends = ends
        self.is_socket = {fd: _is_socket(fd) for fd in (*self.routes, *self.routes.values())}
        for fd in self.routes:
            os.set_blocking(fd, self.is_socket[fd] is False)
        for fd in self.routes.values():
            os.set_blocking(fd, True)

    def move(self, source: int) -> bool:
        """False: that side is over."""
        target = self.routes[source]
        try:
            data = os.read(source, 1 << 16)
            if data:
                if source == self.ends.client_in:
                    self.up += data
                else:
                    self.down += data
                while data:
                    data = data[os.write(target, data) :]
                return True
        except BlockingIOError:
            return True
        except OSError:
            pass
        del self.routes[source]
        for fd in (source, target):
            if self.is_socket[fd]:
                with socket.socket(fileno=os.dup(fd)) as sock:
                    try:
                        sock.shutdown(socket.SHUT_RD if fd == source else socket.SHUT_WR)
                    except OSError:
                        pass
            os.close(fd)
        return False

    def told(self) -> dict[str, Any]:
        taken = self.taken
        return {
            "server": taken.server.decode(), "how": taken.how, "config": taken.config.decode(), "pid": taken.pid,
            "span": taken.span, "command": [word.decode() for word in taken.command],
            "up": self.up.decode(errors="replace"), "down": self.down.decode(errors="replace"),
        }  # fmt: skip


def _is_socket(fd: int) -> bool:
    return os.readlink(f"/proc/self/fd/{fd}").startswith("socket:")


def relay(channel: socket.socket, log: Path) -> None:
    """Until the tracer is gone and every session is over."""
    sessions: dict[int, Session] = {}
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    channels = 1
    with log.open("w") as out:
        before = len(os.listdir("/proc/self/fd"))
        while channels or sessions:
            for fd, _ in poll.poll():
                if fd == channel.fileno():
                    try:
                        new = take_over(channel)
                    except OSError:
                        new = None
                    if new is None:
                        poll.unregister(channel)
                        channels = 0
                        continue
                    session = Session(*new)
                    for source in session.routes:
                        sessions[source] = session
                        poll.register(source, select.POLLIN)
                elif fd in sessions and not sessions[fd].move(fd):
                    poll.unregister(fd)
                    session = sessions.pop(fd)
                    if not session.routes:
                        print(json.dumps(session.told()), file=out, flush=True)
        print(json.dumps({"descriptors": len(os.listdir("/proc/self/fd")) - before}), file=out)


def count_descriptors(log: Path) -> None:
    """The tracer's own pipes and sockets, before the command begins and at its end."""
    from agentwrap.tracing.tracer import Tracer

    follow, finish, counts = Tracer._follow, Tracer._finish, []

    def count() -> None:
        targets = []
        for number in os.listdir("/proc/self/fd"):
            try:
                targets.append(os.readlink(f"/proc/self/fd/{number}"))
            except OSError:
                continue
        counts.append(sorted(target for target in targets if target.startswith(("pipe:", "socket:"))))

    def following(*words: Any, **named: Any) -> None:
        count()
        follow(*words, **named)

    def finishing(*words: Any) -> None:
        count()
        log.write_text(json.dumps(counts))
        finish(*words)

    Tracer._follow, Tracer._finish = following, finishing  # type: ignore[method-assign]


def main() -> None:
    from agentwrap.cli.main import run
    from agentwrap.session import following

    settings, log = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    log.unlink(missing_ok=True)
    relaying = os.fork()
    if relaying == 0:
        ours.close()
        for fd in (0, 1, 2):
            os.dup2(os.open("/dev/null", os.O_RDWR), fd)
        if settings.get("relay") != "dead":
            relay(theirs, log)
        os._exit(0)
    theirs.close()
    if settings.get("relay") == "dead":
        os.waitid(os.P_PID, relaying, os.WEXITED | os.WNOWAIT)  # its end of the channel is closed with it
    running = os.fork()
    if running:
        ours.close()
        status = os.waitstatus_to_exitcode(os.waitpid(running, 0)[1])
        os.waitpid(relaying, 0)
        os._exit(status if status >= 0 else 128 - status)
    made = following._settings

    def with_servers(one: following.Following) -> Any:
        return msgspec.structs.replace(
            made(one), servers=Words(settings), relay=ours if settings.get("relay") != "none" else None,
            gated=settings.get("gated", False), root_server=settings.get("root", "").encode(),
        )  # fmt: skip

    if settings.get("counted"):
        count_descriptors(log.with_suffix(".tracer"))
    following._settings = with_servers  # type: ignore[assignment]
    sys.argv[1:] = sys.argv[3:]
    os._exit(run())


if __name__ == "__main__":
    main()
