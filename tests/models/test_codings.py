import gzip
import random
import subprocess
import sys
import tracemalloc
import zlib
from collections.abc import Callable

import brotli
import pytest
from hypothesis import given
from hypothesis import strategies as st

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

from agentwrap.models.codings import (
    BROKEN,
    CODINGS_MAX,
    ENDS_EARLY,
    MORE_BEHIND,
    NOT_KNOWN,
    TOO_MANY,
    TOO_MUCH,
    Decoding,
    decode,
    decode_timed,
)

LIMIT = 1 << 20
TEXT = b"".join(b'data: {"delta": %d}\n\n' % number for number in range(3000))
Coder = Callable[[bytes], bytes]


def raw_deflate(data: bytes) -> bytes:
    coder = zlib.compressobj(wbits=-15)
    return coder.compress(data) + coder.flush()


def zstd_stream(data: bytes) -> bytes:
    """Without the size of the content in the frame's head, with a checksum."""
    coder = zstd.ZstdCompressor(options={zstd.CompressionParameter.checksum_flag: 1})
    return coder.compress(data) + coder.flush()


CODERS: dict[str, tuple[bytes, Coder]] = {
    "gzip": (b"gzip", gzip.compress),
    "x-gzip": (b" X-GZIP ", gzip.compress),
    "zlib": (b"deflate", zlib.compress),
    "deflate": (b"deflate", raw_deflate),
    "br": (b"br", brotli.compress),
    "zstd": (b"zstd", zstd.compress),
    "zstd-stream": (b"zstd", zstd_stream),
}
every = pytest.mark.parametrize(("name", "coder"), CODERS.values(), ids=CODERS)


@every
def test_what_was_coded_comes_out(name: bytes, coder: Coder) -> None:
    assert decode(coder(TEXT), name, LIMIT) == (TEXT, "")
    assert decode(coder(TEXT), name, len(TEXT)) == (TEXT, "")
    assert decode(coder(b""), name, LIMIT) == (b"", "")
    assert decode(b"", name, LIMIT) == (b"", "")


@given(data=st.binary(max_size=3000), names=st.lists(st.sampled_from(sorted(CODERS)), max_size=CODINGS_MAX))
def test_one_upon_the_other_in_any_pieces(data: bytes, names: list[str]) -> None:
    coded = data
    for name in names:
        coded = CODERS[name][1](coded)
    encodings = b", ".join(CODERS[name][0] for name in names)
    assert decode(coded, encodings, LIMIT) == (data, "")
    decoding = Decoding(encodings, LIMIT)
    rng = random.Random(len(coded))
    out, position = b"", 0
    while position < len(coded):
        size = rng.choice((1, 2, 7, 500))
        out += decoding.feed(coded[position : position + size])
        position += size
    decoding.end()
    assert (out, decoding.problem) == (data, "")


@pytest.mark.parametrize("encodings", [b"", b"identity", b" Identity , ,identity"])
def test_nothing_is_coded(encodings: bytes) -> None:
    assert decode(TEXT, encodings, LIMIT) == (TEXT, "")
    assert decode(TEXT, encodings, 10) == (TEXT[:10], TOO_MUCH)


def test_codings_that_are_not_known_leave_the_body_as_it_is() -> None:
    assert decode(TEXT, b"compress", LIMIT) == (TEXT, NOT_KNOWN)
    assert decode(TEXT, b"gzip, compress", LIMIT) == (TEXT, NOT_KNOWN)
    assert decode(gzip.compress(TEXT), b"compress, gzip", LIMIT) == (TEXT, NOT_KNOWN)
    assert decode(TEXT, b"gzip" + b", gzip" * CODINGS_MAX, LIMIT) == (TEXT, TOO_MANY)
    assert decode(gzip.compress(TEXT)[:-9], b"compress, gzip", LIMIT)[1] == ENDS_EARLY
    assert decode(TEXT, b"compress", 10) == (TEXT[:10], TOO_MUCH)


@every
def test_what_ends_early_gives_what_came_out(name: bytes, coder: Coder) -> None:
    coded = coder(TEXT)
    for length in range(1, len(coded), len(coded) // 23):
        out, problem = decode(coded[:length], name, LIMIT)
        assert problem == ENDS_EARLY
        assert TEXT.startswith(out)
    assert decode(coded[: len(coded) // 2], name, LIMIT)[0] or "zstd" in name.decode()  # its blocks are large


@every
@given(data=st.data())
def test_bent_bytes_never_raise_and_stay_within_the_limit(name: bytes, coder: Coder, data: st.DataObject) -> None:
    coded = bytearray(coder(TEXT[:2000]))
    for position in data.draw(st.lists(st.integers(0, len(coded) - 1), max_size=4)):
        coded[position] ^= data.draw(st.integers(1, 255))
    coded += data.draw(st.binary(max_size=20))
    out, _ = decode(bytes(coded), name, 3000)
    assert len(out) <= 3000


@given(data=st.binary(max_size=300), encodings=st.lists(st.sampled_from([b"gzip", b"br", b"zstd", b"deflate", b"x"])))
def test_nonsense_never_raises(data: bytes, encodings: list[bytes]) -> None:
    assert len(decode(data, b",".join(encodings), 1000)[0]) <= 1000


@pytest.mark.parametrize("name", ["gzip", "br", "zstd"])
def test_plain_text_that_is_called_compressed(name: str) -> None:
    assert decode(b'{"type": "error"}', name.encode(), LIMIT) == (b"", BROKEN[name])


@pytest.mark.parametrize("name", ["gzip", "zlib", "br", "zstd-stream"])
def test_what_was_good_before_something_broken_comes_out(name: str) -> None:
    """Whole and in pieces: a wrong checksum takes nothing away, nor does nonsense in the middle."""
    encodings, coder = CODERS[name]
    coded = coder(TEXT)
    bad_end = coded[:-1] + bytes([coded[-1] ^ 0xFF])
    if name != "br":  # it has none
        out, problem = decode(bad_end, encodings, LIMIT)
        assert (problem, out == TEXT) == (BROKEN[encodings.decode()], True)
    half = coded[: len(coded) // 2]
    before, _ = decode(half, encodings, LIMIT)
    after, problem = decode(half + b"\xff" * 2000, encodings, LIMIT)
    assert after.startswith(before)
    assert problem in (BROKEN[encodings.decode()], MORE_BEHIND, ENDS_EARLY)


def test_several_members_and_frames() -> None:
    assert decode(gzip.compress(b"a") + gzip.compress(b"b") + bytes(512), b"gzip", LIMIT) == (b"ab", "")
    skippable = b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc"
    frames = zstd.compress(b"a") + skippable + zstd_stream(b"b")
    assert decode(frames, b"zstd", LIMIT) == (b"ab", "")
    decoding = Decoding(b"gzip", LIMIT)
    out = b"".join(decoding.feed(bytes([byte])) for byte in gzip.compress(b"a") + gzip.compress(b"b") + b"\0")
    decoding.end()
    assert (out, decoding.problem) == (b"ab", "")
    assert decode(gzip.compress(b"a") + b"\x1f", b"gzip", LIMIT) == (b"a", ENDS_EARLY)


@pytest.mark.parametrize("name", ["gzip", "zlib", "deflate", "br"])
def test_bytes_behind_the_end(name: str) -> None:
    encodings, coder = CODERS[name]
    assert decode(coder(TEXT) + b"more", encodings, LIMIT) == (TEXT, MORE_BEHIND)
    decoding = Decoding(encodings, LIMIT)
    assert decoding.feed(coder(TEXT)) == TEXT
    assert decoding.feed(b"more") == b""
    assert decoding.problem == MORE_BEHIND


@pytest.mark.parametrize(("name", "coder"), [CODERS[one] for one in ("gzip", "zlib", "br", "zstd")])
def test_a_bomb_stops_at_the_limit(name: bytes, coder: Coder) -> None:
    bomb = coder(bytes(16 << 20))
    tracemalloc.start()
    try:
        out, problem = decode(bomb, name, LIMIT)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (out, problem) == (bytes(LIMIT), TOO_MUCH)
    assert peak < 16 * LIMIT
    twice = name + b", " + name
    assert decode(coder(bomb), twice, LIMIT) == (bytes(LIMIT), TOO_MUCH)


def test_nothing_comes_out_after_a_problem() -> None:
    decoding = Decoding(b"gzip", 10)
    assert decoding.feed(gzip.compress(TEXT)) == TEXT[:10]
    assert decoding.feed(gzip.compress(TEXT)) == b""
    decoding.end()
    assert decoding.problem == TOO_MUCH


def test_pieces_keep_their_times() -> None:
    coder = zlib.compressobj(wbits=31)
    events = [b"event: ping\n\n", b'data: {"text": "Hi"}\n\n']
    pieces = [coder.compress(b""), *[coder.compress(event) + coder.flush(zlib.Z_SYNC_FLUSH) for event in events]]
    pieces.append(coder.flush())
    times = [(len(piece), 10 * number) for number, piece in enumerate(pieces)]
    expected = b"".join(events), [(len(events[0]), 10), (len(events[1]), 20)]
    assert decode_timed(b"".join(pieces), times, b"gzip", LIMIT) == (*expected, "")
    assert decode_timed(b"".join(pieces), times[:-1], b"gzip", LIMIT) == (*expected, ENDS_EARLY)
    assert decode_timed(b"abc", [(1, 5), (2, 6)], b"", LIMIT) == (b"abc", [(1, 5), (2, 6)], "")


def test_the_libraries_wait_until_they_are_needed() -> None:
    code = (
        "import sys; from agentwrap.models.codings import decode; decode(b'x', b'gzip', 9);"
        "print(*{'brotli', 'backports.zstd', 'compression.zstd'} & set(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split() == []
