"""What made a decision, so that whoever meets it finds the line."""

import msgspec


class Rule(msgspec.Struct, frozen=True):
    """What made a decision: a place in a file (`where` is `network.allow`, line from 1), or one of our own (line 0)."""

    where: str
    text: str = ""
    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        told = f"{self.where} `{self.text}`" if self.text else self.where
        return f"{told} ({self.file}:{self.line})" if self.line else told
