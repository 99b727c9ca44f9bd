"""Rules for a declared server over HTTP hold by whatever name, address or proxy a client reaches it."""

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from internet import Internet
from wrapping import command, environment, events

NAMES = {"mcp.example": ["203.0.113.10"], "alias.example": ["203.0.113.10"], "proxy.example": ["203.0.113.11"]}
POLICY = """
version = 1
name = "p"
mode = "enforce"
[network]
default = "allow"
[files]
write = { default = "allow" }
[[mcp]]
server = "far"
tools = ["write_*"]
decision = "deny"
[[mcp]]
server = "near"
tools = ["write_*"]
decision = "deny"
"""
# Each of its words is `host port target stated`: a connection, the target of a request in it, and its Host.
CLIENT = """
import json, socket, sys
call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "write_note", "arguments": {}}}
body = json.dumps(call).encode()
for word in sys.argv[1:]:
    host, port, target, stated = word.split()
    with socket.create_connection((host, int(port)), 300) as sock:
        if target.startswith("CONNECT"):
            sock.sendall(f"CONNECT {stated} HTTP/1.1\\r\\nHost: {stated}\\r\\n\\r\\n".encode())
            assert sock.recv(100).startswith(b"HTTP/1.1 200")
            target = "/mcp"
        head = f"POST {target} HTTP/1.1\\r\\nHost: {stated}\\r\\nContent-Type: application/json\\r\\n"
        sock.sendall(f"{head}Content-Length: {len(body)}\\r\\nConnection: close\\r\\n\\r\\n".encode() + body)
        said = b""
        while data := sock.recv(65536):
            said += data
    print("denied" if b"agentwrap denied" in said else "passed", flush=True)
"""
WAYS = {
    "by its address": "203.0.113.10 8080 /mcp 203.0.113.10:8080",
    "by an alias": "alias.example 8080 /mcp alias.example:8080",
    "with another target": "mcp.example 8080 http://alias.example:8080/mcp alias.example:8080",
    "whole URL to a proxy": "proxy.example 3128 http://203.0.113.10:8080/mcp 203.0.113.10:8080",
    "a tunnel to its address": "proxy.example 3128 CONNECT 203.0.113.10:8080",
    "a tunnel to an alias": "proxy.example 3128 CONNECT alias.example:8080",
    "the machine's own address": "203.0.113.11 8081 /mcp 203.0.113.11:8081",
}


def serve(listener: "object", reached: list[bytes]) -> None:
    """Answers whatever comes, and notes what is no CONNECT."""
    while True:
        try:
            client = listener.accept()[0]  # type: ignore[attr-defined]
        except OSError:
            return
        with client:
            data = client.recv(65536)
            if data.startswith(b"CONNECT"):
                client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                data = client.recv(65536)
            if data:
                reached.append(data)
                client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")


@pytest.mark.parametrize("tier", ["wall", "guard"])
def test_no_name_is_a_way_around(tmp_path: Path, tier: str) -> None:
    try:
        internet = Internet(tmp_path, NAMES)
    except OSError as error:
        pytest.skip(f"no network of its own can be had here: {error}")
    reached: list[bytes] = []
    tmp_path.chmod(0o755)
    (tmp_path / "runtime").mkdir(mode=0o700)
    servers = {"far": "http://mcp.example:8080/mcp", "near": "http://localhost:8081/mcp"}
    declared = {name: {"type": "http", "url": url} for name, url in servers.items()}
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": declared}))
    (tmp_path / "p.toml").write_text(POLICY)
    with internet:
        places = (("203.0.113.10", 8080), ("203.0.113.11", 3128), ("0.0.0.0", 8081))
        listeners = [internet.listen(*one) for one in places]
        threads = [threading.Thread(target=serve, args=(one, reached), daemon=True) for one in listeners]
        for thread in threads:
            thread.start()
        recording, options = tmp_path / "run.agentlog", ("--policy", "p.toml", "--tier", tier)
        done = internet.run(
            command(recording, sys.executable, "-c", CLIENT, *WAYS.values(), options=options),
            env=environment(tmp_path, XDG_RUNTIME_DIR=str(tmp_path / "runtime")), cwd=tmp_path,
            stdin=subprocess.DEVNULL, capture_output=True, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        for listener in listeners:
            listener.shutdown(2)
            listener.close()
        for thread in threads:
            thread.join(300)
    assert dict(zip(WAYS, done.stdout.decode().split(), strict=True)) == dict.fromkeys(WAYS, "denied")
    assert reached == []
    rows = [row for row in events(recording) if row.kind == "mcp.decision"]
    assert [row.data["tool"] for row in rows] == ["write_note"] * len(WAYS)
