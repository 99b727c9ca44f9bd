"""Asking a human during a run: whether there is one, and the desk between gateway, recorder and terminal."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from agentwrap.launching.options import RunOptions
from agentwrap.session.following import working_directory
from agentwrap.session.recorder import is_written

if TYPE_CHECKING:
    from agentwrap.approvals.desk import Desk
    from agentwrap.events import Item
    from agentwrap.gateway.started import StartedGateway
    from agentwrap.mcp.relay.started import StartedRelay
    from agentwrap.recording.pump import RecorderPump

Say = Callable[[str], None]


def attended(options: RunOptions) -> bool:
    """Whether the policy wants a human to be asked (mode `ask`, a rule that says `approve`), and there may be one."""
    from agentwrap.policy.layers import asks_about_mcp, mode_of

    if not options.layers or not (mode_of(options.layers) == "ask" or asks_about_mcp(options.layers)):
        return False
    from agentwrap.approvals import desk

    return not desk.nobody_to_ask(waits_anyway=options.ask_waits)


def kept(items: "list[Item]", options: RunOptions) -> "list[Item]":
    """What of questions is recorded: of the arguments of calls only what is kept of them elsewhere."""
    from agentwrap.events import AskWaiting

    if options.mcp_arguments != "digest" or not any(isinstance(item, AskWaiting) for item in items):
        return items
    return [msgspec.structs.replace(item, arguments=b"") if isinstance(item, AskWaiting) else item for item in items]


def open_desk(
    options: RunOptions,
    tracer_pid: int,
    pump: "RecorderPump",
    gateway: "StartedGateway | None",
    now: Callable[[], int],
    say: Say,
    relay: "StartedRelay | None" = None,
) -> "Desk":
    """The desk of a run, after its last fork: for what the gateway asks, and the relay of MCP servers."""
    from agentwrap.approvals import desk
    from agentwrap.recording.places import state_dir

    def record(items: "list[Item]") -> None:
        pump.put(items)
        if not is_written(pump):
            raise OSError(pump.failure or "the recording cannot be written")

    facts = desk.facts_of(
        options.run_id, options.command, options.output, options.cwd or working_directory(), options.layers
    )
    return desk.open_desk(
        os.environ, state_dir(os.environ), facts,
        roots=(os.getpid(), tracer_pid), now=now, record=record, say=say, layers=options.layers,
        tell=desk.route(gateway.tell if gateway is not None else None, relay.tell if relay is not None else None),
    )  # fmt: skip
