"""Rows 1 to 12: names and addresses that are meant to be read as something else than they are."""

import contextlib
import socket

from addresses import (
    ALLOWED,
    LISTED,
    LOOPBACK_PORT,
    METADATA,
    NAT64,
    RESOLVER,
    embedded,
    forbidden,
    forbidden_6,
)
from probing import PATIENCE_S, Row, Told, ask, dial, get, lookup, say


def http(host: str, path: str, at: str = "", *, port: int = 80) -> str:
    with dial(at or host, port) as sock:
        return get(sock, host, f"/{path}")


def row_1(row: Row) -> None:
    row.attempt("an address, where no list is", lambda mark: say(forbidden(1), 80, mark), port=80)
    row.attempt("a name, where no list is", lambda mark: lookup(f"{mark}.row1.example"))


def row_2(row: Row) -> None:
    row.attempt("a name under the suffix (allowed)", lambda mark: http(f"{mark}.suffix.example", mark))
    for name in ("evilsuffix.example", "suffix.example.row2.example", "suffix.example", "allowed.example.row2.example"):
        row.attempt(name, lambda mark, name=name: http(f"{mark}.{name}" if "row2" in name else name, mark))


def row_3(row: Row) -> None:
    row.attempt("upper case and a final dot (allowed)", lambda mark: http("ALLOWED.Example.", mark))
    row.attempt("upper case and a final dot", lambda mark: http(f"{mark}.ROW3.Example.", mark))
    row.attempt(
        "a full-width dot in a Host header",
        lambda mark: http("allowed\u3002example".encode().decode("latin-1"), mark, ALLOWED),
    )
    row.attempt("full-width letters in a query", lambda mark: ask(f"{mark}.row3.\uff45xample".encode(), RESOLVER))
    row.attempt("an A-label that is no name", lambda mark: ask(f"{mark}.row3.xn--example".encode(), RESOLVER))


def row_4(row: Row) -> None:
    bad = b"allowed.example\0.row4.example"
    row.attempt("a NUL inside a label", lambda mark: ask([mark.encode(), bad], RESOLVER))
    row.attempt("a NUL in a Host header", lambda mark: http(bad.decode(), mark, ALLOWED))
    row.attempt(
        "a second Host header behind CR LF", lambda mark: http("allowed.example\r\nHost: row4.example", mark, ALLOWED)
    )
    row.attempt("a bare LF in a Host header", lambda mark: http("row4.example\nHost: allowed.example", mark, ALLOWED))


def row_5(row: Row) -> None:
    for authority in (
        "allowed.example@row5.example",
        "allowed.example\\@row5.example",
        "row5.example#@allowed.example",
    ):

        def absolute(mark: str, authority: str = authority) -> str:
            with dial(ALLOWED, 80) as sock:
                return get(sock, authority, f"http://{authority}/{mark}")

        row.attempt(f"http://{authority}/", absolute)
    row.attempt("user-info in a Host header", lambda mark: http("allowed.example:80@row5.example", mark, ALLOWED))


def row_6(row: Row) -> None:
    four = int.from_bytes(socket.inet_aton(forbidden(6)), "big")
    first, second, third, last = socket.inet_aton(forbidden(6))
    forms = (
        str(four),
        hex(four),
        f"{first:#o}.{second:#o}.{third:#o}.{last:#o}".replace("o", ""),
        f"{first}.{second}.{(third << 8) | last}",
    )
    for form in forms:
        row.attempt(form, lambda mark, form=form: say(lookup(form)[0], 80, mark), port=80)
        row.attempt(f"Host: {form}", lambda mark, form=form: http(form, mark, ALLOWED))


def row_7(row: Row) -> None:
    for host in ("0.0.0.0", "::"):
        row.attempt(
            f"{host}, a port of the machine", lambda mark, host=host: say(host, LOOPBACK_PORT, mark), port=LOOPBACK_PORT
        )


def row_8(row: Row) -> None:
    mapped = f"::ffff:{forbidden(8)}"
    for host in (mapped, embedded(NAT64, 8), embedded("2002::", 8)):
        row.attempt(host, lambda mark, host=host: say(host, 80, mark), port=80)
    row.attempt("::ffff:127.0.0.1", lambda mark: say("::ffff:127.0.0.1", LOOPBACK_PORT, mark), port=LOOPBACK_PORT)


def row_9(row: Row) -> None:
    row.attempt("TCP by IPv6", lambda mark: say(forbidden_6(9), 80, mark), port=80)

    def datagram(mark: str) -> str:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock:
            sock.settimeout(PATIENCE_S)
            sock.sendto(mark.encode(), (forbidden_6(9), 9999))
            return sock.recv(100).decode()

    row.attempt("UDP by IPv6", datagram, port=9999)


def row_10(row: Row) -> None:
    row.attempt("an address with a rule of its own (allowed)", lambda mark: say(LISTED, 8080, mark), port=8080)
    row.attempt("an address", lambda mark: say(forbidden(10), 443, mark), port=443)
    row.attempt("the address with a rule, another port", lambda mark: say(LISTED, 9999, mark), port=9999)


def row_11(row: Row) -> None:
    for host in METADATA:
        row.attempt(host, lambda mark, host=host: say(host, 80, mark), host=host, port=80)
    row.attempt("the machine's loopback", lambda mark: say("127.0.0.1", LOOPBACK_PORT, mark), host="127.0.0.1")


def row_12(row: Row) -> None:
    row.attempt("a name that leads to loopback", lambda mark: http("private.example", mark, port=LOOPBACK_PORT))
    row.attempt("a name that leads to the metadata service", lambda mark: http("metadata.example", mark))

    def rebound(mark: str) -> str:
        found = []
        for _ in range(3):
            with contextlib.suppress(Told):
                found += lookup("rebind.example")
        return http("rebind.example", mark, "127.0.0.1" if "127.0.0.1" in found else "", port=LOOPBACK_PORT)

    row.attempt("a name that changes its mind", rebound, only=ALLOWED)
