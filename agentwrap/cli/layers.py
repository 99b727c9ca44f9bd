"""Which policies hold here: options, the project's file, the user's, the system's. Each file is read once.

What is hashed, compared with the trusted ones, loaded and recorded is the same bytes: nobody gets to change a file
between two looks.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from agentwrap.cli import policy_files, presets, trust
from agentwrap.cli.package_hosts import configured, policy_bytes
from agentwrap.cli.policy_files import standing
from agentwrap.errors import AgentwrapError
from agentwrap.evidence.asked import places_in
from agentwrap.policy.document import MAX_BYTES, load
from agentwrap.policy.flags import Given, flags_policy
from agentwrap.policy.layers import Layer, Name
from agentwrap.policy.paths import Places
from agentwrap.policy.rules import Policy
from agentwrap.recording import places as where

_ENV = "env:"


class Source(msgspec.Struct, frozen=True):
    """A policy file as it was read; `shown`: how it is called in rules and errors."""

    name: Name
    path: Path
    shown: str
    data: bytes


class Wish(msgspec.Struct, frozen=True):
    """What the command line says about policies. `own`: files that are ours besides, as the recording."""

    policy: str | None = None
    given: Given = Given()
    config: tuple[str, ...] = ()
    own: tuple[str, ...] = ()


def gather(ours: Mapping[str, str], agents: Mapping[str, str], cwd: Path, wish: Wish) -> tuple[Layer, ...]:
    """Every layer of a run of a program in `cwd`, none where nothing says anything.

    `ours`: our environment, which says where our files are; `agents`: the program's, which says what `~` is to it.
    Raises AgentwrapError where a policy cannot be read, is not well written, or the list of trusted ones is unusable.
    """
    sources = _sources(ours, cwd, wish.policy)
    if not sources and not wish.given:
        return ()
    places = run_places(ours, agents, cwd, [str(source.path) for source in sources], wish.own)
    configs = configured(agents, cwd, wish.config)
    layers = [_layer(ours, source, places, configs) for source in sources]
    if wish.given:
        base = next((layer.policy for layer in layers if layer.name == "flags"), None)
        policy = flags_policy(wish.given, places, configs, base=base)
        layers.insert(0, Layer("flags", policy))
    return tuple(layers)


def _layer(ours: Mapping[str, str], source: Source, places: Places, configs: Mapping[str, tuple[str, ...]]) -> Layer:
    policy = load(source.data, source.shown, places, configs)
    trusted = source.name != "project" or trust.is_trusted(ours, source.path, source.data)
    if trusted and policy.on_behalf_of.startswith(_ENV):
        policy = msgspec.structs.replace(policy, on_behalf_of=_named(ours, policy))
    return Layer(source.name, policy, trusted=trusted)


def _named(ours: Mapping[str, str], policy: Policy) -> str:
    """Whom `env:NAME` names here. Raises AgentwrapError where it names nobody: all calls would be nobody's."""
    variable = policy.on_behalf_of.removeprefix(_ENV)
    found = ours.get(variable, "").strip()
    if not found and variable in ("USER", "LOGNAME"):  # containers often have neither
        from agentwrap.cli.asking import default_approver

        found = default_approver(ours)
    if not found:
        told = f"{policy.file}: {policy.on_behalf_of}"
        raise AgentwrapError(
            "usage", f"`on_behalf_of` names nobody: {variable} is not set", evidence=told,
            hint=f"{variable}=NAME agentwrap ..., or on_behalf_of = a name",
        )  # fmt: skip
    return found


def _sources(ours: Mapping[str, str], cwd: Path, given: str | None) -> list[Source]:
    """The files, read once each, in the order of the layers."""
    found: list[Source] = []
    if given is not None:
        path = presets.find(given)
        if not os.path.lexists(path) and given not in presets.names():
            raise AgentwrapError(
                "not-found", f"there is no policy `{given}`",
                evidence=f"presets: {', '.join(presets.names())}", hint="--policy takes a file or the name of a preset",
            )  # fmt: skip
        found.append(_read("flags", path, given))
    for name, file in standing(ours, cwd):
        if given is not None and os.path.realpath(file) == os.path.realpath(found[0].path):
            continue  # named on the command line: whoever did has read it
        found.append(_read(name, file, str(file)))
    return found


def _read(name: Name, path: Path, shown: str) -> Source:
    return Source(name, path, shown, policy_bytes(path, MAX_BYTES))


def run_places(
    ours: Mapping[str, str], agents: Mapping[str, str], cwd: Path, files: Sequence[str], more: Sequence[str] = ()
) -> Places:
    """What `~`, `$CWD` and `$TMP` are to the program, and which files are ours: by their names and where these lead."""
    inner = places_in(agents, str(cwd))
    names = [*map(str, where.own_paths(ours)), f"/run/user/{os.geteuid()}/agentwrap", str(policy_files.SYSTEM.parent)]
    names += [os.path.abspath(file) for file in (*files, *more)]
    own = dict.fromkeys(one for name in names for one in (name, os.path.realpath(name)))
    key = str(where.key_paths(ours)[0])
    secret = dict.fromkeys((key, os.path.realpath(key)))
    sockets = dict.fromkeys(one for path in _sockets(agents) for one in (path, os.path.realpath(path)))
    return msgspec.structs.replace(inner, own=tuple(own), secret=tuple(secret), sockets=tuple(sockets))


def _sockets(agents: Mapping[str, str]) -> Iterator[str]:
    """Sockets of other programs that the environment names: agents for keys, buses, container engines, tmux."""
    for name in ("SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", "DOCKER_HOST", "CONTAINER_HOST", "PODMAN_HOST", "TMUX"):
        for word in agents.get(name, "").split(";"):
            path = word.removeprefix("unix:").removeprefix("path=").partition(",")[0]
            path = "/" + path.lstrip("/") if path.startswith("/") else ""
            if path:
                yield path
