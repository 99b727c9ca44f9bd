"""A loaded policy as values: rules with the line they stand on, lists of rules, sections, the policy itself."""

from typing import Literal

import msgspec

from agentwrap.policy.coverage import Requirement
from agentwrap.policy.globs import Glob
from agentwrap.policy.hosts import Host
from agentwrap.policy.mcp_rules import McpRules
from agentwrap.policy.names import HostPattern
from agentwrap.policy.paths import PathPattern, Places
from agentwrap.policy.rule import Rule

Mode = Literal["observe", "ask", "enforce"]
Default = Literal["allow", "deny"]
Section = Literal["network", "files.write", "files.read", "exec", "mcp"]
COMMAND_LINE = "command line"  # what stands for the file of a policy made of options
MODES: tuple[Mode, ...] = ("observe", "ask", "enforce")  # from weakest to strictest
__all__ = [
    "COMMAND_LINE", "MODES", "Default", "HostRule", "HostRules", "Mode", "ModelRules", "PathList", "PathRule",
    "PathRules", "Policy", "Rule", "Section",
]  # fmt: skip


class HostRule(msgspec.Struct, frozen=True):
    """One entry of `network.allow` or `network.deny`; a placeholder means several patterns."""

    rule: Rule
    patterns: tuple[HostPattern, ...]

    def fits(self, host: Host, port: int | None) -> bool:
        """Whether one of its patterns fits."""
        return any(pattern.fits(host, port) for pattern in self.patterns)


class PathRule(msgspec.Struct, frozen=True):
    """One entry of a list of paths."""

    rule: Rule
    pattern: PathPattern


class PathList(msgspec.Struct, frozen=True):
    """Paths in order; those without wildcards are found without trying all."""

    literal: dict[str, PathRule] = {}
    wild: tuple[PathRule, ...] = ()

    @classmethod
    def of(cls, rules: list[PathRule]) -> "PathList":
        """A list out of rules."""
        literal: dict[str, PathRule] = {}
        for rule in rules:
            if rule.pattern.literal:
                literal.setdefault(rule.pattern.expanded, rule)
        return cls(literal, tuple(rule for rule in rules if not rule.pattern.literal))

    def __len__(self) -> int:
        return len(self.literal) + len(self.wild)

    def match(self, path: str) -> PathRule | None:
        """The rule that fits a path in normal form: the one that names it, else the first in order."""
        found = self.literal.get(path)
        return found or next((rule for rule in self.wild if rule.pattern.fits(path)), None)

    def below(self, path: str) -> PathRule | None:
        """A rule that something below `path` could fit."""
        every = (*self.literal.values(), *self.wild)
        return next((rule for rule in every if rule.pattern.may_lie_below(path)), None)


class HostRules(msgspec.Struct, frozen=True):
    """`[network]`. `default_rule` is where the default stands."""

    default: Default
    default_rule: Rule
    allow: tuple[HostRule, ...] = ()
    deny: tuple[HostRule, ...] = ()


class PathRules(msgspec.Struct, frozen=True):
    """`files.write`, `files.read` or `[exec]`."""

    default: Default
    default_rule: Rule
    allow: PathList = PathList()
    deny: PathList = PathList()


class ModelRules(msgspec.Struct, frozen=True):
    """`[model]`: hosts whose TLS is ended, so that model calls are read, and hosts that are passed through."""

    intercept: tuple[HostRule, ...] = ()
    passing: tuple[HostRule, ...] = ()


class Policy(msgspec.Struct, frozen=True):
    """One file, read and checked. Sections that are not in it have the default of the mode (`document.load`).

    `silent`: sections that are left to other layers and to nobody's rules if there is none (`flags.flags_policy`).
    `mcp_stdio`: command lines of servers that no configuration names. `self_approval`: whether whom the agent acts for
    may allow what waits. `on_behalf_of` is a name once the policy holds for a run (`attribution`).
    `source`: the text it was read from.
    """

    file: str
    name: str
    mode: Mode
    places: Places
    network: HostRules
    write: PathRules
    read: PathRules
    exec: PathRules
    unix: PathList = PathList()
    model: ModelRules = ModelRules()
    mcp: McpRules = McpRules()
    mcp_stdio: tuple[Glob, ...] = ()
    self_approval: Default = "allow"
    agent: str = ""
    on_behalf_of: str = ""
    require: tuple[Requirement, ...] = ()
    stated: frozenset[str] = frozenset()
    silent: frozenset[Section] = frozenset()
    source: str = ""

    def restricts(self) -> tuple[str, ...]:
        """The kinds of coverage without which a recording cannot tell whether this policy was kept."""
        kinds: list[str] = []
        if self.network.default == "deny" or self.network.deny:
            kinds += ["connect", "dns", "udp", "unix"]
        built_in = self.mode != "observe" and "files.write" not in self.silent
        if self.write.default == "deny" or self.write.deny or built_in:
            kinds.append("file-write")
        if self.read.default == "deny" or self.read.deny:
            kinds.append("file-read")
        if self.exec.default == "deny" or self.exec.deny:
            kinds.append("exec")
        if self.mcp.restricts():
            kinds += ["mcp-stdio", "mcp-http"]
        return ("process", *kinds) if kinds else ()
