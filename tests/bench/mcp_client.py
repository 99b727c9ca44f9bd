"""An MCP client that measures: `python mcp_client.py SIZES SERVER...`, where SIZES is JSON; prints one line of JSON.

SIZES: `turns`: calls one after the other; `pipelined`: calls without waiting; `long`: bytes of one line; `servers`: how
many of them run at once, with `each` pipelined calls. `relay`: put agentwrap's relay alone between, without a run.
"""

import json
import os
import select
import statistics
import subprocess
import sys
import time
from typing import Any

CALL = (
    b'{"jsonrpc":"2.0","id":%d,"method":"tools/call",'
    b'"params":{"name":"read_file","arguments":{"path":"/home/user/project/src/main.py"}}}\n'
)
HELLO = (
    b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18",'
    b'"capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}\n'
)


class Alone:
    """The relay as a process, and one that reads what it tells and throws it away."""

    def __init__(self) -> None:
        from agentwrap.mcp.relay import process, started

        self._relay = started.fork(process.Settings(now=time.monotonic_ns))
        self._reader = os.fork()
        if self._reader == 0:
            while self._relay.channel.recv(1 << 20):
                pass
            os._exit(0)

    def open(self, command: list[str]) -> "Server":
        from agentwrap.mcp.handover import Ends, Taken, hand_over

        (up, write), (read, down), (stdin, server_in), (server_out, stdout) = (os.pipe() for _ in range(4))
        process = subprocess.Popen(command, stdin=stdin, stdout=stdout)
        taken = Taken(at_ns=0, span="p1", pid=process.pid, server=b"bench", how="hand")
        hand_over(self._relay.channel_for_tracer, taken, Ends(up, down, server_in, server_out))
        for fd in (stdin, stdout, up, down, server_in, server_out):
            os.close(fd)
        return Server(process, write, read)

    def close(self) -> None:
        self._relay.abandon()
        os.waitpid(self._reader, 0)


class Server:
    """One server, greeted."""

    def __init__(self, process: "subprocess.Popen[bytes]", write: int, read: int) -> None:
        self._process, self.write, self.read = process, write, read
        self.send(HELLO)
        self.line()

    def send(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self.write, view) :]

    def line(self) -> bytes:
        line = os.read(self.read, 1 << 16)
        while not line.endswith(b"\n"):
            more = os.read(self.read, 1 << 16)
            if not more:
                raise SystemExit("the server has left")
            line += more
        return line

    def close(self) -> None:
        os.close(self.write)
        os.close(self.read)
        if self._process.wait(300):
            raise SystemExit(f"the server ended with {self._process.returncode}")


def spawned(command: list[str]) -> Server:
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    assert process.stdin is not None
    assert process.stdout is not None
    server = Server(process, os.dup(process.stdin.fileno()), os.dup(process.stdout.fileno()))
    process.stdin.close()
    process.stdout.close()
    return server


def turns(server: Server, count: int) -> dict[str, float]:
    took = []
    for number in range(count):
        call = CALL % (number + 1)
        began = time.perf_counter_ns()
        server.send(call)
        server.line()
        took.append((time.perf_counter_ns() - began) / 1e3)
    took.sort()
    return {"p50_us": statistics.median(took), "p99_us": took[len(took) * 99 // 100]}


def pipelined(servers: list[Server], count: int) -> float:
    """Calls per second of all servers together, `count` to each, written as fast as they are taken."""
    calls = [CALL % number for number in range(1, count + 1)]
    unsent = {one.write: iter(calls) for one in servers}
    again = {one.write: b"" for one in servers}
    left = {one.read: count for one in servers}
    ready = select.poll()
    for one in servers:
        os.set_blocking(one.write, False)
        ready.register(one.write, select.POLLOUT)
        ready.register(one.read, select.POLLIN)
    began = time.perf_counter()
    while left:
        for fd, _ in ready.poll(600_000) or sys.exit("nothing moves any more"):
            if fd in left:
                left[fd] -= os.read(fd, 1 << 16).count(b"\n")
                if left[fd] <= 0:
                    ready.unregister(fd)
                    del left[fd]
            elif fd in unsent:
                # A call that fits into a pipe goes in whole or not at all (pipe(7)).
                call = again[fd] or next(unsent[fd], b"")
                try:
                    while call and os.write(fd, call):
                        call = next(unsent[fd], b"")
                except BlockingIOError:
                    pass
                again[fd] = call
                if not call:
                    ready.unregister(fd)
                    del unsent[fd]
    took = time.perf_counter() - began
    for one in servers:
        os.set_blocking(one.write, True)
    return len(servers) * count / took


def long_line(server: Server, size: int) -> float:
    """Seconds until a call with so many bytes of arguments is answered."""
    call = (CALL % 1)[:-4] + b',"content":"' + b"x" * size + b'"}}}\n'
    began = time.perf_counter()
    server.send(call)
    server.line()
    return time.perf_counter() - began


def main() -> None:
    sizes: dict[str, Any] = json.loads(sys.argv[1])
    command = sys.argv[2:]
    alone = Alone() if sizes.get("relay") else None
    start = alone.open if alone is not None else spawned
    server = start(command)
    turns(server, sizes["turns"] // 10 + 1)
    told = turns(server, sizes["turns"])
    told["calls"] = sizes["turns"] + sizes["turns"] // 10 + 1 + sizes["pipelined"] + 1
    if sizes["long"]:
        told["long_s"] = long_line(server, sizes["long"])
        told["calls"] += 1
    told["per_second"] = pipelined([server], sizes["pipelined"])
    server.close()
    if sizes["servers"]:
        servers = [start(command) for _ in range(sizes["servers"])]
        told["together_per_second"] = pipelined(servers, sizes["each"])
        told["calls"] += len(servers) * (sizes["each"] + 1)
        for one in servers:
            one.close()
    if alone is not None:
        alone.close()
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
