"""Looking at many items at once: where no secret is in all of them together, none is looked at by itself. Pure.

Most of what it takes to look at a short text does not depend on its length. What is learned on the way makes what was
found before worthless: the items behind it are looked at one by one again.
"""

from collections.abc import Sequence

from agentwrap.events import Content, Item, Secrets
from agentwrap.recording.encode import ALWAYS, WORDLESS
from agentwrap.recording.layout import LAYOUTS
from agentwrap.recording.redact import Redactor

TOGETHER = 64
"""Items at a time."""
_FEWEST = 4
_LONGEST_BYTES = 8192
_REST = 16
"""So often nothing is tried where it was in vain: who reads of passwords goes on to do so."""


class Ahead:
    """What was looked at last, and under which knowledge. Items are told apart by identity, and held for that."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._known = 0
        self._harmless: dict[int, Item] = {}
        self._resting = 0

    def look(self, items: Sequence[Item]) -> None:
        """Look at the items that come next; what was looked at before is forgotten."""
        self._harmless = {}
        if self._resting:
            self._resting -= 1
            return
        texts: list[bytes] = []
        paths: list[bytes] = []
        looked: dict[int, Item] = {}
        for item in items:
            if isinstance(item, Content):
                if item.scattered or len(item.data) > _LONGEST_BYTES:
                    continue
                texts.append(item.data)
            elif isinstance(item, Secrets) or type(item) in ALWAYS:
                continue
            else:
                (paths if type(item) in WORDLESS else texts).append(LAYOUTS[type(item)].joined(item))
            looked[id(item)] = item
        if len(looked) < _FEWEST:
            return
        self._known = self._redactor.knowledge
        if self._redactor.harmless(texts) and self._redactor.harmless(paths, words=False):
            self._harmless = looked
        else:
            self._resting = _REST

    def harmless(self, item: Item) -> bool:
        """Whether nothing known now is in `item`; false where it was not looked at."""
        return self._harmless.get(id(item)) is item and self._known == self._redactor.knowledge
