"""What came out of judging a recording by a policy, as values: for whoever shows it, without what judges."""

from typing import Any

import msgspec


class Violation(msgspec.Struct):
    """An act the policy refuses. `seq`: the first event, `count`: how many of this program."""

    seq: int
    what: str
    who: str
    rule: str
    why: str
    change: str
    count: int = 1


class CannotTell(msgspec.Struct):
    """Acts about which nothing can be said, by reason. `what`: the first of them."""

    why: str
    seq: int
    what: str
    count: int = 1


class Judged(msgspec.Struct):
    """What came out. `acts`: how many questions were asked; `violations` holds the first ten thousand kinds of them."""

    policy: str
    acts: int = 0
    violated: int = 0
    violations: list[Violation] = []
    cannot_tell: list[CannotTell] = []

    def document(self) -> dict[str, Any]:
        """The JSON form; names are stable."""
        return {
            "policy": self.policy,
            "acts": self.acts,
            "violated": self.violated,
            "violations": [msgspec.structs.asdict(one) for one in self.violations],
            "cannot_tell": [msgspec.structs.asdict(one) for one in self.cannot_tell],
        }
