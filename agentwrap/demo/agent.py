"""A scripted agent: starts the server that `.mcp.json` declares, calls its tools, and tells what it was answered."""

import json
import subprocess
import sys
from pathlib import Path

CALLS = ("list_issues", "push", "merge", "merge")


def main() -> None:
    """One session from beginning to end."""
    declared = json.loads(Path(".mcp.json").read_text("utf-8"))["mcpServers"]["forge"]
    server = subprocess.Popen(
        [declared["command"], *declared["args"]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert server.stdin is not None
    assert server.stdout is not None
    number = 0

    def ask(method: str, params: dict[str, object]) -> dict[str, object]:
        nonlocal number
        number += 1
        assert server.stdin is not None
        assert server.stdout is not None
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        server.stdin.write(json.dumps(message) + "\n")
        server.stdin.flush()
        for line in server.stdout:
            answer: dict[str, object] = json.loads(line)
            if answer.get("id") == number:
                return answer
        sys.exit("the server is gone")

    info = {"name": "demo-agent", "version": "1"}
    ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info})
    server.stdin.write(json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}) + "\n")
    ask("tools/list", {})
    for name in CALLS:
        arguments = {"branch": "main"} if name != "list_issues" else {}
        answer = ask("tools/call", {"name": name, "arguments": arguments})
        sys.stdout.write(f"{name} {json.dumps(answer.get('result', answer.get('error')))}\n")
        sys.stdout.flush()
    ask("tools/list", {})
    server.stdin.close()
    server.wait()


main()
