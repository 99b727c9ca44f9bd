"""What a configuration declares of MCP servers, as values. Pure: files are read elsewhere."""

from typing import Literal

import msgspec

Client = Literal[
    "claude-code", "claude-desktop", "cursor", "vscode", "codex", "gemini", "opencode", "copilot", "windsurf",
    "mcp.json", "hand", "policy",
]  # fmt: skip
Scope = Literal["user", "project", "system", "command"]


class Declared(msgspec.Struct, frozen=True):
    """One server. `command` and `arguments` (stdio) or `url` (HTTP); texts as in the file, placeholders not replaced.

    `name`: its name there. `config`: the file, or the option, that declares it. `scope`: whose file it is. `folder`:
    the project that it is declared for, empty if for every one. Of the policy: `pattern` is a glob on a command line.
    """

    name: bytes
    client: Client
    config: bytes = b""
    scope: Scope = "user"
    command: bytes = b""
    arguments: tuple[bytes, ...] = ()
    environment: tuple[tuple[bytes, bytes], ...] = ()
    cwd: bytes = b""
    url: bytes = b""
    transport: Literal["stdio", "http", "sse"] = "stdio"
    folder: bytes = b""
    pattern: bytes = b""
