"""The options of `agentwrap run` that say what the command may do, and what they come to: layers, ports, a network."""

import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agentwrap.cli.policy_files import standing
from agentwrap.errors import EXIT_FAILED, AgentwrapError

if TYPE_CHECKING:
    from agentwrap.policy.flags import Given
    from agentwrap.policy.layers import Layer

Function = Callable[..., Any]
_ABOUT_POLICY = ("policy", "allow", "deny", "ro", "rw")


class Published(click.ParamType[tuple[int, int]]):
    """`HOST:INNER`, two ports, or one for both."""

    name = "ports"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        """(port of this machine, port of the command's own network)."""
        words = str(value).split(":")
        good = len(words) <= 2 and all(word.isascii() and word.isdigit() and 0 < len(word) <= 5 for word in words)
        ports = [int(word) for word in words] if good else [0]
        if not all(0 < port < 65536 for port in ports):
            self.fail(f"`{value}` is no pair of ports (examples: 8080:3000, 3000)", param, ctx)
        return ports[0], ports[-1]


def policy_options(function: Function) -> Function:
    """Put the options on the command."""
    options = [
        click.option("--policy", metavar="FILE|PRESET",
                     help="What the command may do: a policy file, or a preset by its name."),
        click.option("--allow", multiple=True, metavar="HOST[:PORT]", help="Let it reach this host, and no other."),
        click.option("--deny", multiple=True, metavar="HOST[:PORT]", help="Keep it from reaching this host."),
        click.option("--ro", multiple=True, metavar="PATH", help="Keep it from changing PATH and what is in it."),
        click.option("--rw", multiple=True, metavar="PATH", help="Let it change PATH, and nothing else."),
        click.option("--config", multiple=True, metavar="NAME=HOST",
                     help="What `config:pip` or `config:npm` of a policy stands for, besides what is configured here."),
        click.option("--network", type=click.Choice(["auto", "gateway", "none", "host"]), default="auto",
                     show_default=True, help="A network of its own with one way out, none, or this machine's."),
        click.option("--tier", type=click.Choice(["auto", "wall", "guard"]), default="auto", show_default=True,
                     help="How the network is confined: in namespaces, by the tracer, or the stronger one there is."),
        click.option("-p", "--publish", multiple=True, type=Published(), metavar="HOST:INNER",
                     help="Lead this machine's loopback port HOST to the command's port INNER."),
        click.option("--ask-timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS",
                     help="In mode `ask`: deny what nobody answered by then (300); wait without a terminal, too."),
        click.option("--fail-on-deny", is_flag=True, help="Exit 123 if the policy denied anything."),
    ]  # fmt: skip
    for option in reversed(options):
        function = option(function)
    return function


def layers_of(
    given: Mapping[str, Any], environment: Mapping[bytes, bytes], cwd: bytes | None, output: Path
) -> "tuple[Layer, ...]":
    """The layers of a run, out of the values of its options. Raises AgentwrapError, with the status of a failed run."""
    from agentwrap.session.following import working_directory

    folder = Path(os.fsdecode(cwd if cwd is not None else working_directory()))
    named = any(given[name] for name in _ABOUT_POLICY)
    layers: tuple[Layer, ...] = ()
    if named or _wants_gateway(given) or standing(os.environ, folder):
        layers = _gathered(given, environment, folder, output)
    _no_contradiction(given, layers)
    return layers


def _gathered(
    given: Mapping[str, Any], environment: Mapping[bytes, bytes], folder: Path, output: Path
) -> "tuple[Layer, ...]":
    import msgspec

    from agentwrap.cli.layers import Wish, gather

    own = tuple(f"{output}{suffix}" for suffix in ("", "-wal", "-shm", "-journal"))
    wish = Wish(given["policy"], _given(given), given["config"], own)
    agents = {os.fsdecode(name): os.fsdecode(value) for name, value in environment.items()}
    try:
        layers = gather(os.environ, agents, folder, wish)
        if not layers and _wants_gateway(given):
            # A gateway without a policy judges by the one that lets everything pass.
            layers = gather(os.environ, agents, folder, msgspec.structs.replace(wish, policy="observe"))
    except AgentwrapError as error:
        error.exit_status = EXIT_FAILED
        raise
    return layers


def _wants_gateway(given: Mapping[str, Any]) -> bool:
    """Whether a network of its own is asked for, be it only to publish a port of it."""
    return bool(given["network"] == "gateway" or (given["publish"] and given["network"] == "auto"))


def _given(given: Mapping[str, Any]) -> "Given":
    from agentwrap.policy.flags import Given

    ro, rw = _absolute(given["ro"]), _absolute(given["rw"])
    folders = frozenset(path for path in (*ro, *rw) if _may_be_folder(path))
    return Given(given["allow"], given["deny"], ro, rw, folders)


def _absolute(paths: tuple[str, ...]) -> tuple[str, ...]:
    """By its name and by where that leads: rules hold for both."""
    return tuple(dict.fromkeys(one for path in paths for one in (os.path.abspath(path), os.path.realpath(path))))


def _may_be_folder(path: str) -> bool:
    try:
        return not stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return True


def _no_contradiction(given: Mapping[str, Any], layers: "tuple[Layer, ...]") -> None:
    network = given["network"]
    if network == "host" and layers and _closes_network(layers):
        raise AgentwrapError(
            "usage", "the policy closes the network, and `--network host` leaves it open",
            evidence="\n".join(f"{layer.name}: {layer.policy.file}" for layer in layers),
            hint="leave out one of them", exit_status=EXIT_FAILED,
        )  # fmt: skip
    if given["publish"] and network == "host":
        raise AgentwrapError(
            "usage", "with `--network host` there is nothing to publish: the port is this machine's own",
            hint="leave out -p, or say `--network gateway`", exit_status=EXIT_FAILED,
        )  # fmt: skip
    inner = [ports[0] for ports in given["publish"]]
    if len(set(inner)) != len(inner):
        raise AgentwrapError("usage", "a port of this machine is published twice", exit_status=EXIT_FAILED)


def _closes_network(layers: "tuple[Layer, ...]") -> bool:
    from agentwrap.policy.layers import mode_of, restricts_network

    return restricts_network(layers) and mode_of(layers) != "observe"


def requirements_of(asked: str, layers: "tuple[Layer, ...]") -> str:
    """What has to be covered: `--require`, and what the policies require. Raises AgentwrapError `usage`."""
    if not layers:
        return asked
    from agentwrap.policy.coverage import parse_requirements, requirement_text

    words = [asked] if asked else []
    if asked:
        parse_requirements(asked)
    words += [requirement_text(layer.policy.require) for layer in layers if layer.policy.require]
    return ",".join(words)


def words_for(layers: "tuple[Layer, ...]", network: str, tier: str, *, attended: bool) -> str:
    """What the line at the start of a run says of the policy, and of what stands between the run and the network.

    `attended`: where the policy asks, somebody can be asked.
    """
    told = f", {'no network' if network == 'none' else 'network'} ({tier})" if tier else ""
    if not layers:
        return told
    from agentwrap.policy.layers import asks_about_mcp, mode_of

    names = dict.fromkeys(layer.policy.name for layer in layers)
    unheard = any(not layer.trusted for layer in layers)
    trust = "  (the project's policy is not trusted: it only narrows)" if unheard else ""
    mode: str = mode_of(layers)
    if (mode == "ask" and tier) or asks_about_mcp(layers):
        mode += ": agentwrap pending" if attended else ": nobody is there to be asked, see --ask-timeout"
    return f", policy {' + '.join(names)} ({mode}){told}{trust}"
