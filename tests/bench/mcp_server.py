"""An MCP server that answers every request at once with the same small result. Nothing but the standard library."""

import os

RESULT = b'{"jsonrpc":"2.0","id":%b,"result":{"content":[{"type":"text","text":"done"}],"isError":false}}\n'


def main() -> None:
    begun: list[bytes] = []
    while data := os.read(0, 1 << 20):
        if b"\n" not in data:
            begun.append(data)
            continue
        *lines, rest = b"".join([*begun, data]).split(b"\n")
        begun = [rest] if rest else []
        left = memoryview(b"".join(RESULT % line[line.index(b'"id":') + 5 :].split(b",", 1)[0] for line in lines))
        while left:
            left = left[os.write(1, left) :]


if __name__ == "__main__":
    main()
