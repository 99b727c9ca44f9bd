"""Bytes that wait: in memory, then in a file without a name, never beyond the bounds."""

from agentwrap.tracing.files.spool import Spool


def test_memory_first_then_the_file_then_nothing() -> None:
    spool = Spool(10, 10)
    one, two, three = spool.put(b"1" * 10), spool.put(b"2" * 10), spool.put(b"3")
    assert one is not None
    assert two is not None
    assert three is None
    assert spool.held_bytes == 10
    assert (one.read(), two.read()) == (b"1" * 10, b"2" * 10)
    spool.close()


def test_what_is_dropped_makes_room() -> None:
    spool = Spool(10, 10)
    for _ in range(3):
        memory, file = spool.put(b"1" * 10), spool.put(b"2" * 10)
        assert memory is not None
        assert file is not None
        assert file.read() == b"2" * 10
        memory.drop()
        file.drop()
    assert spool.held_bytes == 0
    spool.close()


def test_nothing_needs_no_file() -> None:
    spool = Spool(0, 0)
    held = spool.put(b"")
    assert held is not None
    assert held.read() == b""
    spool.close()
