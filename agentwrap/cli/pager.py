"""The pager, chosen and started as git does it. Knows processes and the environment; nothing of what is shown."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess


def command_of(env: Mapping[str, str]) -> str:
    """The pager as git chooses it: `$AGENTWRAP_PAGER`, `$PAGER`, `less` if it is there; empty or `cat`: none."""
    for name in ("AGENTWRAP_PAGER", "PAGER"):
        if name in env:
            command = env[name].strip()
            return "" if command == "cat" else command
    from shutil import which

    return "less" if which("less", path=env.get("PATH")) else ""  # a minimal Debian has none


def start(command: str, env: Mapping[str, str]) -> "subprocess.Popen[str]":
    """Start the pager; it reads from the process's `stdin`."""
    import subprocess

    environment = dict(env)
    environment.setdefault("LESS", "FIRX")  # quit if one screen, ignore case, raw colours, leave the text on the screen
    environment.setdefault("LV", "-c")
    return subprocess.Popen(
        command, shell=True, stdin=subprocess.PIPE, env=environment, text=True, encoding="utf-8",
        errors="backslashreplace",
    )  # fmt: skip


def wait_for(process: "subprocess.Popen[str]") -> None:
    """Close the pager's input and wait; Ctrl-C is the pager's business while it runs."""
    try:
        if process.stdin is not None:
            process.stdin.close()
    except BrokenPipeError:
        pass
    while True:
        try:
            process.wait()
            return
        except KeyboardInterrupt:
            continue
