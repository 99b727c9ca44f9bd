"""All living descendants of a process: for the ways of following that may miss a process."""

import psutil


def descendants(root: int) -> list[int]:
    """Process ids below `root`, without the dead that wait to be reaped. A snapshot: more may be born meanwhile."""
    try:
        found = psutil.Process(root).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    return [process.pid for process in found if _lives(process)]


def _lives(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
