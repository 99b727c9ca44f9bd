"""What a policy is asked, and what it answers. One struct for each kind of act; everything in them is foreign text."""

from typing import Literal

import msgspec

from agentwrap.policy.rules import Rule, Section

Verdict = Literal["allow", "deny", "approve", "unknown"]


class Connect(msgspec.Struct, frozen=True):
    """A connection to `host`, a name or an address as given.

    `address`: what the name led to, where that is known: it is judged too. `inner`: something of the run itself
    listens there. `nameless`: `host` is an address and nobody knows by which name it was asked for, if by any.
    """

    host: str
    port: int
    transport: Literal["tcp", "udp"] = "tcp"
    address: str = ""
    inner: bool = False
    nameless: bool = False

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host and not self.host.startswith("[") else self.host
        return f"connect {host}:{self.port}" + ("/udp" if self.transport == "udp" else "")


class Lookup(msgspec.Struct, frozen=True):
    """A name asked of a name server."""

    name: str

    def __str__(self) -> str:
        return f"lookup {self.name}"


class Unix(msgspec.Struct, frozen=True):
    """A connection to a unix socket; an abstract one begins with `@`. `inner`: something of the run listens there."""

    path: str
    inner: bool = False

    def __str__(self) -> str:
        return f"unix {self.path}"


class Family(msgspec.Struct, frozen=True):
    """A connection by another family of sockets: `netlink`, `vsock`, `packet`, `other`."""

    family: str

    def __str__(self) -> str:
        return f"family {self.family}"


class Write(msgspec.Struct, frozen=True):
    """A change of what stands under a name: content, name, mode, owner, link, folder.

    `folder`: an empty folder is made there or removed, which by itself runs nothing later. `tree`: what comes or goes
    under that name may hold anything: a folder that is moved, a symbolic link. `own_repository`: it is, or lies in, a
    `.git` that the run made itself (`policy.repositories`).
    """

    path: str
    folder: bool = False
    tree: bool = False
    own_repository: bool = False

    def __str__(self) -> str:
        return f"write {self.path}"


class Read(msgspec.Struct, frozen=True):
    """Content read."""

    path: str

    def __str__(self) -> str:
        return f"read {self.path}"


class Exec(msgspec.Struct, frozen=True):
    """A program run."""

    path: str

    def __str__(self) -> str:
        return f"exec {self.path}"


class Call(msgspec.Struct, frozen=True):
    """A request to an MCP server, or (sampling, elicitation, roots) of one. `tool`: the tool or prompt it names.

    `arguments`: JSON text of what conditions are asked about, empty where there is none; None where it is not known.
    `listed`: the digest under which the server listed the tool last, empty where it did not, None where nobody knows.
    `approved`: a human has allowed this very call.
    """

    server: str
    method: str
    tool: str = ""
    arguments: bytes | None = None
    listed: str | None = None
    approved: bool = False

    def __str__(self) -> str:
        named = self.tool if self.method == "tools/call" else " ".join(filter(None, (self.method, self.tool)))
        return f"mcp {self.server} {named}"


Question = Connect | Lookup | Unix | Family | Write | Read | Exec | Call


def section_of(question: Question) -> Section:
    """The section of a policy that has the say."""
    if isinstance(question, Write):
        return "files.write"
    if isinstance(question, Read):
        return "files.read"
    if isinstance(question, Call):
        return "mcp"
    return "exec" if isinstance(question, Exec) else "network"


class Answer(msgspec.Struct, frozen=True):
    """The verdict, the rule that made it, why, and what would have to change for the other verdict.

    `unknown`: what is known of the act is not enough to say; never given where everything is known. `approve`: a human
    has to allow it (calls of MCP alone).
    """

    verdict: Verdict
    rule: Rule
    why: str = ""
    change: str = ""
