"""What a transparent relay must never do, line by line, on real pipes and sockets; and how ends are passed on."""

import fcntl
import os
import pty
import socket
import threading
from pathlib import Path

import pytest
from relayed import KINDS, Kind, Relayed, read_line, read_to_end, write_until_refused

ODD = (
    b'{"jsonrpc":"2.0","id":1,"result":{"n":1E400,"n":1,"big":12345678901234567890.10, "z" :  [ ] }}',
    b'{"jsonrpc":"2.0","id":"1","result":1}',
    '{"text":"a\u2028b\u2029c\u0085d"}'.encode(),
    b'{"text":"\\u2028\\ud800"}\r',
    b"Secure MCP server running on stdio",
    b"",
    b"   ",
    b'[{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","method":"b"}]',
    b"\xff\xfe\x00garbage\x00",
    b'{"jsonrpc":"2.0","id":1.5,"method":null}',
    b"Content-Length: 7\r",
    b'{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"acp"}}',
    b"{" * 3000,
)


def shut(fd: int) -> None:
    with socket.socket(fileno=os.dup(fd)) as end:
        end.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize("kind", KINDS)
def test_both_directions_and_both_ends(kind: Kind) -> None:
    with Relayed() as relayed:
        pair = relayed.session(kind)
        os.write(pair.write, b'{"id":1}\n')
        assert os.read(pair.stdin, 100) == b'{"id":1}\n'
        os.write(pair.stdout, b'{"id":1,"result":1E400}\n')
        assert os.read(pair.read, 100) == b'{"id":1,"result":1E400}\n'
        if kind == "pipes":
            pair.close("write")
        else:
            shut(pair.write)
        assert os.read(pair.stdin, 100) == b""
        os.write(pair.stdout, b"bye")
        pair.close("stdin", "stdout")
        assert read_to_end(pair.read) == b"bye"
        closed = relayed.closed()
        pair.close()
    assert closed.ending == "client-closed"
    assert relayed.told(up=True) == b'{"id":1}\n'
    assert relayed.told(up=False) == b'{"id":1,"result":1E400}\nbye'
    assert relayed.heard.lost is False


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_rewritten_dropped_or_added(kind: Kind) -> None:
    data = b"\n".join(ODD) + b"\nwithout an end"
    with Relayed() as relayed:
        pair = relayed.session(kind)
        for write, read in ((pair.write, pair.stdin), (pair.stdout, pair.read)):
            os.write(write, data)
            got = b""
            while len(got) < len(data):
                got += os.read(read, 65536)
            assert got == data
        pair.close()
    assert relayed.told(up=True) == relayed.told(up=False) == data


def test_the_first_byte_does_not_wait_for_the_line() -> None:
    with Relayed() as relayed:
        pair = relayed.session()
        for byte in b'{"a"':
            os.write(pair.write, bytes([byte]))
            assert os.read(pair.stdin, 100) == bytes([byte])
        pair.close()


def test_nobody_waits_for_what_is_told() -> None:
    with Relayed() as relayed:
        pair = relayed.session()
        with relayed.heard.slow:
            for _ in range(100):
                os.write(pair.write, b"question\n")
                assert os.read(pair.stdin, 100) == b"question\n"
                os.write(pair.stdout, b"answer\n")
                assert os.read(pair.read, 100) == b"answer\n"
        pair.close()
    assert relayed.told(up=False) == b"answer\n" * 100


@pytest.mark.parametrize("kind", KINDS)
def test_who_reads_slowly_stops_who_writes_and_nothing_is_lost(kind: Kind) -> None:
    with Relayed() as relayed:
        pair = relayed.session(kind)
        os.set_blocking(pair.write, False)
        data, sent = os.urandom(1 << 16), 0
        relayed.heard.keep = False
        while True:
            try:
                sent += os.write(pair.write, data[sent % len(data) :])
            except BlockingIOError:
                if relayed.heard.sizes[True] and not _moves(relayed):
                    break
        assert sent < 4 << 20
        os.set_blocking(pair.write, True)
        # The other direction goes on meanwhile.
        os.write(pair.stdout, b"still\n")
        assert os.read(pair.read, 100) == b"still\n"
        pair.close("write")
        if kind == "socket":
            pair.close("read")
        got = read_to_end(pair.stdin)
        pair.close()
    assert len(got) == sent
    assert got == (data * (sent // len(data) + 1))[:sent]
    assert relayed.heard.sizes[True] == sent


def _moves(relayed: Relayed) -> bool:
    before = relayed.heard.sizes[True]
    with relayed.heard.changed:
        return relayed.heard.changed.wait_for(lambda: relayed.heard.sizes[True] != before, 0.2)


@pytest.mark.parametrize("kind", KINDS)
def test_descriptions_that_others_share_keep_their_flags(kind: Kind) -> None:
    with Relayed() as relayed:
        if kind == "pipes":
            (up_read, up_write), (down_read, down_write) = os.pipe(), os.pipe()
        else:
            left, right = socket.socketpair()
            up_write = down_read = left.detach()
            up_read, down_write = os.dup(right.fileno()), right.detach()
            down_read = os.dup(down_read)
        shared = [os.dup(up_read), os.dup(down_write)]
        server_in, server_out = os.pipe(), os.pipe()
        relayed.hand_over((up_read, down_write, server_in[1], server_out[0]))
        os.write(up_write, b"x")
        assert os.read(server_in[0], 9) == b"x"
        os.write(server_out[1], b"y")
        assert os.read(down_read, 9) == b"y"
        assert [fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_NONBLOCK for fd in shared] == [0, 0]
        for fd in (*shared, up_write, down_read, server_in[0], server_out[1]):
            os.close(fd)


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_stops_reading_is_seen_by_who_writes(kind: Kind) -> None:
    with Relayed() as relayed:
        pair = relayed.session(kind)
        os.write(pair.write, b"one\n")
        assert os.read(pair.stdin, 100) == b"one\n"
        pair.close("stdin", "stdout")
        assert read_to_end(pair.read) == b""
        assert relayed.closed().ending == "server-closed"
        with pytest.raises(BrokenPipeError):
            os.write(pair.write, b"two\n")
        pair.close()


def test_a_server_may_close_its_input_alone() -> None:
    with Relayed() as relayed:
        pair = relayed.session()
        pair.close("stdin")
        assert write_until_refused(pair.write)
        os.write(pair.stdout, b"I only talk\n")
        assert read_line(pair.read) == b"I only talk\n"
        pair.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_that_left_is_seen_by_the_server(kind: Kind) -> None:
    with Relayed() as relayed:
        pair = relayed.session(kind)
        pair.close("write", "read")
        assert os.read(pair.stdin, 9) == b""
        assert write_until_refused(pair.stdout)
        closed = relayed.closed()
        pair.close()
    assert closed.ending == "client-closed"


def test_what_was_on_its_way_to_nobody_is_told() -> None:
    with Relayed() as relayed:
        pair = relayed.session()
        os.write(pair.write, b"x")
        assert os.read(pair.stdin, 9) == b"x"
        with relayed.stopped():
            os.write(pair.stdout, b"last words\n")
            pair.close("read")
        pair.close("stdout", "write", "stdin")
        relayed.closed()
    assert relayed.told(up=False) == b"last words\n"


def test_files_devices_and_terminals_as_ends(tmp_path: Path) -> None:
    source, target = tmp_path / "requests", tmp_path / "answers"
    source.write_bytes(b"request\n" * 30_000)
    with Relayed() as relayed:
        server_in, server_out = os.pipe(), os.pipe()
        out = os.open(target, os.O_CREAT | os.O_WRONLY)
        relayed.hand_over((os.open(source, os.O_RDONLY), out, server_in[1], server_out[0]))
        assert read_to_end(server_in[0]) == source.read_bytes()
        os.write(server_out[1], b"answer\n" * 5000)
        os.close(server_out[1])
        relayed.closed(1)
        assert target.read_bytes() == b"answer\n" * 5000
        os.close(server_in[0])

        ours, theirs = pty.openpty()
        server_in, server_out = os.pipe(), os.pipe()
        relayed.hand_over((os.open("/dev/null", os.O_RDONLY), theirs, server_in[1], server_out[0]))
        assert os.read(server_in[0], 9) == b""
        os.write(server_out[1], b"to a terminal" * 100)
        os.close(server_out[1])
        got = b""
        while len(got) < 1300:
            got += os.read(ours, 4096)
        assert got == b"to a terminal" * 100
        relayed.closed(2)
        for fd in (ours, server_in[0]):
            os.close(fd)


def test_ten_servers_at_once() -> None:
    with Relayed() as relayed:
        pairs = [relayed.session(KINDS[number % 3]) for number in range(10)]
        got: dict[int, bytes] = {}

        def echo(number: int) -> None:
            pair = pairs[number]
            for line in range(300):
                os.write(pair.write, b"%d of %d\n" % (line, number))
                os.write(pair.stdout, read_line(pair.stdin))
                got[number] = got.get(number, b"") + read_line(pair.read)

        threads = [threading.Thread(target=echo, args=(number,)) for number in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for pair in pairs:
            pair.close()
        for number in range(10):
            relayed.closed(number + 1)
    for number in range(10):
        wanted = b"".join(b"%d of %d\n" % (line, number) for line in range(300))
        assert got[number] == relayed.told(up=True, session=number + 1) == wanted
        assert relayed.told(up=False, session=number + 1) == wanted
