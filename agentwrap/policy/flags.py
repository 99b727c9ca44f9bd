"""A policy out of options: `--allow`, `--deny`, `--ro`, `--rw`. Pure: paths come in absolute.

What no option is about is left alone: `--allow` closes the rest of the network and no file, `--rw` the rest of the
files and no connection. Beside a policy file, options add to its lists and change no default.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from agentwrap.policy.document import load
from agentwrap.policy.paths import Places, as_pattern
from agentwrap.policy.rules import COMMAND_LINE, HostRules, Mode, PathRules, Policy, Rule, Section
from agentwrap.policy.suggest import quoted

SECTIONS: tuple[Section, ...] = ("network", "files.write", "files.read", "exec")


class Given(msgspec.Struct, frozen=True):
    """What the options say. Paths are absolute; `folders` are those among them that are folders, or not there."""

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    ro: tuple[str, ...] = ()
    rw: tuple[str, ...] = ()
    folders: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.allow or self.deny or self.ro or self.rw)


def flags_text(given: Given, *, mode: Mode = "enforce") -> str:
    """The options as the text of a policy."""
    lines = ["version = 1", f"name = {quoted(COMMAND_LINE)}", f"mode = {quoted(mode)}"]
    if given.allow or given.deny:
        default = "deny" if given.allow else "allow"
        lines += ["", "[network]", f"default = {quoted(default)}"]
        lines += [*_list("allow", given.allow), *_list("deny", given.deny)]
    if given.ro or given.rw:
        default = "deny" if given.rw else "allow"
        # With a list of what may be changed the rest is closed, and what holds one of them is no hole in it.
        closed = [path for path in given.ro if not any(_holds(path, open_) for open_ in given.rw)]
        lines += ["", "[files.write]", f"default = {quoted(default)}"]
        lines += [*_list("allow", _patterns(given.rw, given)), *_list("deny", _patterns(closed, given))]
    return "\n".join(lines) + "\n"


def flags_policy(
    given: Given, places: Places, configs: Mapping[str, tuple[str, ...]], *, base: Policy | None = None
) -> Policy:
    """The policy of the options. `base`: the policy file that they stand beside.

    Raises AgentwrapError `usage` as `document.load` does.
    """
    text = flags_text(given, mode=base.mode if base is not None else "enforce")
    policy = leave_unsaid(load(text.encode("utf-8", "surrogateescape"), COMMAND_LINE, places, configs))
    if base is None:
        return policy
    changes: dict[str, object] = {}
    for section in SECTIONS:
        theirs = _rules_of(base, section)
        if section not in policy.silent:
            same = {"default": theirs.default, "default_rule": theirs.default_rule}
            changes[_field(section)] = msgspec.structs.replace(_rules_of(policy, section), **same)
    return msgspec.structs.replace(policy, **changes)


def leave_unsaid(policy: Policy) -> Policy:
    """The same policy, silent about the sections that do not stand in it."""
    silent = frozenset(section for section in SECTIONS if section not in policy.stated)
    left = {"default": "allow", "default_rule": Rule("flags.default", "allow, as no option is about it", COMMAND_LINE)}
    changes: dict[str, object] = {
        _field(section): msgspec.structs.replace(_rules_of(policy, section), **left) for section in silent
    }
    return msgspec.structs.replace(policy, silent=silent, **changes)


def _field(section: Section) -> str:
    return section.rpartition(".")[2]


def _rules_of(policy: Policy, section: Section) -> HostRules | PathRules:
    found: HostRules | PathRules = getattr(policy, _field(section))
    return found


def _holds(path: str, inner: str) -> bool:
    return path != inner and inner.startswith(path.rstrip("/") + "/")


def _patterns(paths: Sequence[str], given: Given) -> Iterable[str]:
    """Patterns for paths, without those that lie in a folder named beside them."""
    folders = [path for path in paths if path in given.folders]
    for path in dict.fromkeys(paths):
        if not any(_holds(folder, path) for folder in folders):
            yield as_pattern(path.rstrip("/")) + "/**" if path in given.folders else as_pattern(path)


def _list(key: str, entries: Iterable[str]) -> list[str]:
    once = list(dict.fromkeys(entries))
    return [f"{key} = [", *(f"  {quoted(entry)}," for entry in once), "]"] if once else []
