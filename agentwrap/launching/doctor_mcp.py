"""What `doctor` tells of MCP servers: which are declared for an agent that is started here, and what cannot be read."""

from collections.abc import Mapping

from agentwrap import text
from agentwrap.launching.mcp_servers import Servers
from agentwrap.launching.probes import Probe

_FIX = "mend the file: a server that cannot be read from it is not relayed under its name"
_COLUMNS = 80


def mcp_servers(environment: Mapping[bytes, bytes], cwd: bytes) -> list[Probe]:
    """One probe for all servers, and one for each configuration that declares some, or cannot be read."""
    servers = Servers(environment, cwd)
    found = [Probe("mcp-servers", True, servers.words(), weight="fact")]
    for path, declared in servers.files().items():
        where = text.clip_start(_text(path), _COLUMNS)
        names = text.clip(", ".join(_text(one.name) for one in declared.servers), _COLUMNS) if declared.servers else ""
        if names:
            found.append(Probe("mcp-config", True, f"{where}: {names}", weight="fact"))
        told = [text.clip(one, _COLUMNS) for one in declared.problems]
        found += [Probe("mcp-config", False, f"{where}: {one}", _FIX) for one in told]
    return found


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")
