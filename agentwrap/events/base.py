"""What every event has, and the one rule about its fields.

**Bytes are foreign, str is ours.** A field of type `bytes` holds what the agent or the machine chose (a path, an
argument, an address): the recorder redacts it before it is hashed or stored, and views escape it. A `str` field holds
a word of our own closed vocabulary and is stored as it is. An event never holds a decoded foreign string.

Knows nothing of SQLite, of clocks, or of who produces or reads events.
"""

import msgspec


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind"):
    """One fact.

    `at_ns`: nanoseconds since the start of the run, CLOCK_MONOTONIC. `span`: id of the span the fact belongs to
    (`run`, or the process's `p1`, `p2`, ...). `pid`: process id as the supervisor's PID namespace sees it, 0 for none.
    """

    at_ns: int
    span: str = "run"
    pid: int = 0

    @property
    def subject(self) -> bytes:
        """The one thing this event is about, for lists and filters (raw, foreign bytes)."""
        return b""

    @property
    def verdict(self) -> str:
        """`allow`, `deny`, or nothing where no judgement was made."""
        return ""
