"""The conductor: the one place where launching, tracing, the gateway and recording are wired together for a run."""

from agentwrap.session.conductor import Session
from agentwrap.session.endings import die_of

__all__ = ["Session", "die_of"]
