"""Calls a model and takes the time: `python model_client.py HOST PORT plain|tls WAY COUNT THREADS MESSAGES`.

WAY: `direct`; `base=ADDRESS/PATH`, a server that stands for it; `tunnel=ADDRESS`, a proxy. First one call after the
other on one connection, then as many connections as threads. Every answer is compared with what it has to be. What it
took is printed as JSON.
"""

import json
import os
import socket
import ssl
import statistics
import sys
import threading
import time

WORDS = "some words of a talk " * 24
_BEGUN = b'data: {"id":"c","object":"chat.completion.chunk","model":"m","choices":[{"index":0,'
EVENT = _BEGUN + b'"delta":{"content":"word "}}]}\n\n'
LAST = (
    _BEGUN + b'"delta":{},"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":5000,"completion_tokens":20,"total_tokens":5020}}\n\ndata: [DONE]\n\n'
)
ANSWER = [EVENT] * 20 + [LAST]


class Wire:
    """One connection; answers of chunks."""

    def __init__(self, host: str, port: int, tls: bool, way: str) -> None:
        kind, _, where = way.partition("=")
        address, _, path = where.partition("/")
        self.target = (f"/{path}" if path else "") + "/v1/chat/completions"
        self.host = address if kind == "base" else f"{host}:{port}"
        to = (host, port) if kind == "direct" else (address.partition(":")[0], int(address.partition(":")[2]))
        self.sock: socket.socket = socket.create_connection(to)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if kind == "tunnel":
            self.sock.sendall(f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
            answer = b""
            while b"\r\n\r\n" not in answer:
                answer += self.sock.recv(4096)
            assert b" 200" in answer.partition(b"\r\n")[0], answer
        if tls:
            context = ssl.create_default_context()
            if os.environ.get("BENCH_TRUST"):
                context.load_verify_locations(os.environ["BENCH_TRUST"])
            self.sock = context.wrap_socket(self.sock, server_hostname=host)

    def call(self, body: bytes) -> tuple[float, float]:
        """Seconds to the first event, and to the end."""
        head = (
            f"POST {self.target} HTTP/1.1\r\nHost: {self.host}\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer sk-bench-0123456789\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        began = time.perf_counter()
        self.sock.sendall(head.encode() + body)
        got = b""
        first = 0.0
        while not got.endswith(b"\r\n0\r\n\r\n"):
            data = self.sock.recv(65536)
            assert data, got[-300:]
            got += data
            if not first and b"data: " in got:
                first = time.perf_counter()
        ended = time.perf_counter()
        head_of_it, _, chunks = got.partition(b"\r\n\r\n")
        assert b" 200" in head_of_it[:15], got[:300]
        assert chunks.count(b"word ") == len(ANSWER) - 1, got
        return first - began, ended - began


def body_of(number: int, messages: int = 40) -> bytes:
    """A call whose conversation is `messages` of half a KB, and a question of its own."""
    history = [{"role": "user" if n % 2 else "assistant", "content": f"{n} {WORDS}"} for n in range(messages)]
    asked = [*history, {"role": "user", "content": f"Question {number} of {os.getpid()}"}]
    return json.dumps({"model": "m", "stream": True, "messages": asked}).encode()


def main() -> None:
    host, port, how, way, count, threads, messages = sys.argv[1:]
    many, wide = int(count), int(threads)
    made = [body_of(number, int(messages)) for number in range(2 * many)]

    def wire() -> Wire:
        return Wire(host, int(port), how == "tls", way)

    one = wire()
    one.call(made[0])
    began = time.perf_counter()
    taken = [one.call(body) for body in made[:many]]
    alone = many / (time.perf_counter() - began)
    wires = [wire() for _ in range(wide)]
    parts = [made[many + n :: wide] for n in range(wide)]

    def work(mine: Wire, bodies: list[bytes]) -> None:
        for body in bodies:
            mine.call(body)

    running = [threading.Thread(target=work, args=pair) for pair in zip(wires, parts, strict=True)]
    began = time.perf_counter()
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    together = many / (time.perf_counter() - began)
    told = {"first_us": statistics.median(first for first, _ in taken) * 1e6, "alone": alone, "together": together}
    json.dump({**told, "calls": 1 + 2 * many}, sys.stdout)


if __name__ == "__main__":
    main()
