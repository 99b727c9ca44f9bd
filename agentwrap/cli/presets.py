"""The policies that come with the program, by name."""

from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "policies"


def names() -> tuple[str, ...]:
    """Names of the presets, in order."""
    try:
        return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))
    except OSError:
        return ()


def find(word: str) -> Path:
    """The file that `--policy WORD` means: a preset's bare name is the preset, whatever lies here under that name.

    Anything else is a path: an agent that leaves a file called `ci-egress` behind changes nothing.
    """
    if "/" not in word and word in names():
        return FOLDER / f"{word}.toml"
    return Path(word)
