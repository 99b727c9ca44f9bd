"""All living descendants of a process, from /proc: for the ways of following that may miss a process."""

import os


def descendants(root: int) -> list[int]:
    """Process ids below `root`, parents first (proc_pid_stat(5), field 4). A snapshot: more may be born meanwhile."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue  # gone between listing and reading
        if fields and fields[0] != b"Z":
            children.setdefault(int(fields[1]), []).append(int(entry))
    found, todo = [], [root]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found
