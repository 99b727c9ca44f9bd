"""Between client and server: keeps what each said, byte for byte. Arguments: a folder, the server's command."""

import os
import subprocess
import sys
import threading
from pathlib import Path


def copy(source: int, to: int, kept: Path) -> None:
    with kept.open("wb", buffering=0) as file:  # its client may end us before we are at the end
        while data := os.read(source, 1 << 16):
            file.write(data)
            while data:
                data = data[os.write(to, data) :]
    os.close(to)


def main() -> int:
    folder = Path(sys.argv[1])
    server = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert server.stdin is not None
    assert server.stdout is not None
    down = threading.Thread(target=copy, args=(server.stdout.fileno(), 1, folder / "down"))
    down.start()
    threading.Thread(target=copy, args=(0, server.stdin.fileno(), folder / "up"), daemon=True).start()
    down.join()
    return server.wait()


if __name__ == "__main__":
    sys.stdout.flush()
    os._exit(main())
