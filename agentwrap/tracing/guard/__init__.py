"""Calls about internet sockets, performed for the tracee where no namespace can hold it."""

from agentwrap.tracing.guard.calls import ANSWERED, PASS
from agentwrap.tracing.guard.guard import Guard
from agentwrap.tracing.guard.route import GuardSettings

__all__ = ["ANSWERED", "PASS", "Guard", "GuardSettings"]
