"""Says to a server what a file has, one connection after the other, and tells of each answer: size, hash, its end.

    python raw_client.py HOST ADDRESS PORT plain|tls FILE

FILE: JSON, name to base64. A program of its own, to be run bare and wrapped.
"""

import base64
import hashlib
import json
import socket
import ssl
import sys

PATIENCE_S = 300


def ask(sock: socket.socket, sent: bytes) -> list[object]:
    told = hashlib.sha256()
    size = 0
    try:
        sock.sendall(sent)
    except OSError:
        pass  # what it said before it went is read
    try:
        while data := sock.recv(1 << 18):
            told.update(data)
            size += len(data)
        ending = "end"
    except ssl.SSLEOFError:
        ending = "cut"
    except ConnectionError:
        ending = "reset"
    except ssl.SSLError as error:
        ending = str(error.reason)
    except TimeoutError:
        ending = "silence"
    return [size, told.hexdigest()[:16], ending]


def main() -> None:
    host, address, port, how, file = sys.argv[1:]
    with open(file) as opened:
        shapes = {name: base64.b64decode(text) for name, text in json.load(opened).items()}
    context = ssl.create_default_context()
    found = {}
    for name, sent in shapes.items():
        with socket.create_connection((address, int(port)), PATIENCE_S) as sock:
            if how == "tls":
                with context.wrap_socket(sock, server_hostname=host, suppress_ragged_eofs=False) as inner:
                    found[name] = ask(inner, sent)
            else:
                found[name] = ask(sock, sent)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
