"""Which of the words of a reading command is the file."""

from pathlib import Path

import pytest

from agentwrap.cli.reading import SUFFIX, file_and_filter
from agentwrap.recording import places


def test_the_ending_is_the_one_that_recordings_have() -> None:
    assert SUFFIX == places.SUFFIX


@pytest.mark.parametrize(
    ("words", "file", "rest"),
    [
        (["run.agentlog"], "run.agentlog", ""),
        (["run.agentlog", "kind:file"], "run.agentlog", "kind:file"),
        (["m4", "run.agentlog"], "run.agentlog", "m4"),
        (["kind:file", "x/run.agentlog", "-path:*.py"], "x/run.agentlog", "kind:file -path:*.py"),
        (["./other", "kind:file"], "other", "kind:file"),
    ],
)
def test_the_file_may_stand_anywhere(words: list[str], file: str, rest: str) -> None:
    path, chosen = file_and_filter(words)
    assert (path, str(chosen)) == (Path(file), rest)
