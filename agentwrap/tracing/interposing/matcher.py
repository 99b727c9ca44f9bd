"""What is asked about each new program: is it a server that somebody declared? Knows no configuration itself."""

from typing import Protocol

from agentwrap.mcp.declared import Declared


class Matcher(Protocol):
    """Pure: the same words always give the same answer. It is asked at each exec of the run, so it must be quick."""

    def match(self, path: bytes, argv: tuple[bytes, ...], cwd: bytes) -> Declared | None:
        """The server that this exec starts, None for any other program.

        `path`: the file, absolute; `argv`: as given to execve(2), but for a script `argv[0]` is the script's own path
        (the kernel has put its interpreter there, execve(2)). `cwd`: the process's working directory.
        """

    def by_hand(self, argv: tuple[bytes, ...]) -> bytes | None:
        """The name N where these words are `agentwrap mcp --name N -- COMMAND`, in whichever way agentwrap is called.

        What this process becomes next is the server N.
        """
