"""Where things are in the outside world of the adversary: documentation names and addresses, for all its parts.

Each row of the table has a forbidden address of its own in both families, so that whatever arrives there is known to be
that row's. Standard library alone: the programs inside read it too.
"""

RESOLVER = "192.0.2.53"
ALLOWED = "192.0.2.10"
ALLOWED_6 = "2001:db8::10"
SUFFIX = "192.0.2.11"
LISTED = "192.0.2.12"  # allowed as an address, port 8080
METADATA = ("169.254.169.254", "100.100.100.200", "fd00:ec2::254")
NAT64 = "64:ff9b::"
TCP_PORTS = (22, 53, 80, 443, 853, 3128, 5353, 8077, 8080, 9999)
UDP_PORTS = (443, 5353, 8077, 9999)
LOOPBACK_PORT = 8077
LAST_ROW = 60

POLICY = """\
version = 1
name = "adversary"
mode = "enforce"

[network]
default = "deny"
allow = [
  "allowed.example:80",
  "allowed.example:443",
  "*.suffix.example:80",
  "private.example:8077",
  "metadata.example:80",
  "rebind.example:8077",
  "192.0.2.12:8080",
]
unix = ["{folder}/passer.sock"]

[files]
write = {{ default = "deny", allow = ["$CWD/**"] }}
"""
CLOSED = """\
version = 1
name = "closed"
mode = "enforce"

[network]
default = "deny"

[files.write]
default = "allow"
"""
OPEN = CLOSED.replace("closed", "open").replace('"deny"', '"allow"')
ASK = POLICY.replace('"enforce"', '"ask"')


def forbidden(row: int) -> str:
    """The row's IPv4 address that no rule allows."""
    return f"198.51.100.{100 + row}"


def forbidden_6(row: int) -> str:
    """The same of IPv6."""
    return f"2001:db8::f:{row}"


def embedded(prefix: str, row: int) -> str:
    """The IPv4 address written inside an IPv6 one: `2002::` (6to4, RFC 3056) or behind a NAT64 prefix (RFC 6052)."""
    high, low = 0xC633, 0x6400 | (100 + row)
    return f"2002:{high:x}:{low:x}::1" if prefix == "2002::" else f"{prefix}{high:x}:{low:x}"


def token(row: int, letter: str) -> str:
    """What an attempt sends: found at a server, it got there. Usable as a label of a name."""
    return f"r{row}{letter}z"


def answers(name: str, asked_before: int) -> tuple[list[str], list[str]]:
    """What the world's resolver tells of a name: IPv4 and IPv6 addresses. `rebind.example` changes after one answer."""
    if name in ("allowed.example", "xn--allowed-example.example"):
        return [ALLOWED], [ALLOWED_6]
    if name.endswith(".suffix.example"):
        return [SUFFIX], []
    if name == "private.example":
        return ["127.0.0.1"], []
    if name == "metadata.example":
        return [METADATA[0]], []
    if name == "rebind.example":
        return [ALLOWED if asked_before < 1 else "127.0.0.1"], []
    labels = name.split(".")
    for row in range(1, LAST_ROW + 1):
        if f"row{row}" in labels:
            return [forbidden(row)], [forbidden_6(row)]
    return [], []


def everything(row_limit: int = LAST_ROW) -> list[str]:
    """All addresses that the world has on its loopback, besides the loopback's own."""
    found = [RESOLVER, ALLOWED, ALLOWED_6, SUFFIX, LISTED, *METADATA]
    for row in range(1, row_limit + 1):
        found += [forbidden(row), forbidden_6(row)]
    return [*found, embedded(NAT64, 8), embedded("2002::", 8)]
