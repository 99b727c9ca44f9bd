"""Rows 33 to 38: sockets and descriptors of the machine, behind which somebody else acts."""

import contextlib
import os
import socket
from pathlib import Path

from addresses import forbidden
from probing import PATIENCE_S, Row, converse


def _unix(path: str, mark: str) -> str:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(PATIENCE_S)
        sock.connect(path)
        return converse(sock, mark.encode())


def _each(row: Row, *paths: str) -> None:
    for path in paths:
        row.attempt(path.replace("\0", "@"), lambda mark, path=path: _unix(path, mark), path=path.replace("\0", "@"))


def _mine(name: str) -> str:
    return f"/run/user/{os.environ.get('ADVERSARY_UID', os.getuid())}/{name}"


def row_33(row: Row) -> None:
    _each(row, "/run/docker.sock", "/var/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock")

    def by_link(mark: str) -> str:
        link = Path(f"link-{mark}")
        link.symlink_to("/run/docker.sock")
        return _unix(str(link), mark)

    def by_descriptor(mark: str) -> str:
        """The same socket by a path that names a folder's descriptor."""
        folder = os.open("/run", os.O_PATH | os.O_DIRECTORY)
        return _unix(f"/proc/self/fd/{folder}/docker.sock", mark)

    def by_working_folder(mark: str) -> str:
        os.chdir("/run")
        return _unix("docker.sock", mark)

    row.attempt("by a symbolic link", by_link)
    row.attempt("by /proc/self/fd", by_descriptor)
    row.attempt("by a relative path", by_working_folder)


def row_34(row: Row) -> None:
    _each(row, "/run/dbus/system_bus_socket", _mine("bus"), "/run/systemd/private", _mine("systemd/private"))


def row_35(row: Row) -> None:
    _each(row, "\0adversary")


def row_36(row: Row) -> None:
    def datagram(mark: str) -> str:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.sendto(mark.encode(), "/run/systemd/notify")
        return "sent"

    def connected(mark: str) -> str:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.connect("/run/systemd/notify")
            sock.send(mark.encode())
        return "sent"

    row.attempt("sendto", datagram, path="/run/systemd/notify")
    row.attempt("connect and send", connected, path="/run/systemd/notify")


def row_37(row: Row) -> None:
    def inherited(mark: str) -> str:
        """A connected socket that was open when agentwrap was started."""
        for number in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                sock = socket.socket(fileno=os.dup(int(number)))
                if sock.family == socket.AF_INET and sock.getpeername()[0] == forbidden(37):
                    return converse(sock, mark.encode())
        raise FileNotFoundError(2, "no such descriptor here: it was closed")

    def passed(mark: str) -> str:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(PATIENCE_S)
            sock.connect(os.environ["ADVERSARY_FOLDER"] + "/passer.sock")
            _, numbers, _, _ = socket.recv_fds(sock, 100, 4)
            with socket.socket(fileno=numbers[0]) as given:
                return converse(given, mark.encode())

    row.attempt("inherited", inherited, absent="what was open at the start is closed")
    row.attempt(
        "passed by SCM_RIGHTS, from an allowed socket", passed, path=os.environ["ADVERSARY_FOLDER"] + "/passer.sock"
    )


def row_38(row: Row) -> None:
    _each(
        row,
        _mine("keyring/ssh"),
        _mine("gnupg/S.gpg-agent"),
        _mine("wayland-0"),
        _mine("pipewire-0"),
        "\0/tmp/.X11-unix/X0",
    )
