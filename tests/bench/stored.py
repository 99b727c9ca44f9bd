"""What a conversation costs in the file: `python tests/bench/stored.py [TURNS]`.

Beside it, from the same conversation: what is new in it, and what a file of every request on its own would take, as it
is and with gzip. Also how long the recorder works on one turn, and on a request that is new in all its pieces.
"""

import contextlib
import gzip
import hashlib
import sqlite3
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from recordings import conversation

from agentwrap.events import Body, Content, HttpExchange, Item, ModelRequest, Secrets
from agentwrap.recording.redact import Redactor
from agentwrap.recording.redact.streams import texts_of
from agentwrap.recording.writer import Recorder

_OF_LISTS = (
    "SELECT (SELECT count(*) * 52 FROM part) + (SELECT coalesce(sum(size + 85), 0) FROM blob"
    " WHERE sha256 NOT IN (SELECT sha256 FROM body_piece WHERE sha256 IS NOT NULL))"
)
"""Bytes of `part` and of lists: a row of `part` has 52, and a blob 85 beside its data."""


def written(path: Path, items: list[Item]) -> float:
    """Record items into a new file; seconds of processor time."""
    recorder = Recorder.create(
        path, run_id="00000000000000fe", meta={}, redactor=Redactor(b"k" * 32), signer=None, now=lambda: 0
    )
    began = time.process_time()
    for item in items:
        if isinstance(item, Content):
            recorder.content(item)
        elif not isinstance(item, Secrets):
            recorder.add(item)
            recorder.commit()
    elapsed = time.process_time() - began
    recorder.close()
    return elapsed


def figures(turns: int, words: int, folder: Path) -> dict[str, float]:
    """Bytes for each turn of one conversation, and milliseconds of the recorder."""
    items = list(conversation.items(turns, words=words))
    path = folder / f"{turns}-{words}.agentlog"
    elapsed = written(path, items)
    contents = {item.sha: item.data for item in items if isinstance(item, Content)}
    requests = [
        b"".join(contents[piece] for piece in item.request.pieces) for item in items if isinstance(item, ModelRequest)
    ]
    with contextlib.closing(sqlite3.connect(path)) as file:
        lists = file.execute(_OF_LISTS).fetchone()[0]
        rows = file.execute("SELECT sum(length(data) + length(kind) + 60) FROM event").fetchone()[0]
    totals = {
        "file": path.stat().st_size,
        "new": sum(map(len, contents.values())),
        "events": rows,
        "parts and lists": lists,
        "requests": sum(map(len, requests)),
        "requests, gzip": sum(len(gzip.compress(request)) for request in requests),
    }
    return {**{name: total / turns for name, total in totals.items()}, "recorder ms": elapsed * 1e3 / turns}


def large(folder: Path) -> float:
    """Seconds of processor time for one request of 5 MB in 10,000 pieces."""
    pieces = [b'{"role":"user","content":"%09d %b"},' % (n, b"some words " * 42) for n in range(10_000)]
    digests = tuple(hashlib.sha256(piece).digest() for piece in pieces)
    event = HttpExchange(at_ns=1, exchange="h1", host=b"h", method=b"POST", path=b"/",
                         request=Body(sum(map(len, pieces)), digests))  # fmt: skip
    contents = [Content(digest, piece, "body") for digest, piece in zip(digests, pieces, strict=True)]
    return written(folder / "large.agentlog", [*contents, event])


def redaction() -> float:
    """Seconds of processor time to redact a streamed answer of 76 KB, the best of many."""
    redactor = Redactor(b"k" * 32)
    event = b'data: {"choices":[{"index":0,"delta":{"content":"some words of %d"}}]}\n\n'
    best = float("inf")
    for number in range(30):
        body = b"".join(event % (number * 10_000 + n) for n in range(1_250))[:76_000]
        texts = texts_of(body)  # of a model's answer they are known
        began = time.process_time()
        redactor.clean_scattered(body, texts)
        best = min(best, time.process_time() - began)
    return best


def main(argv: list[str]) -> int:
    turns = int(argv[0]) if argv else 100
    with tempfile.TemporaryDirectory() as folder:
        for words in (60, 600):
            told = figures(turns, words, Path(folder))
            line = ", ".join(f"{name} {value:,.1f}" for name, value in told.items())
            sys.stdout.write(f"{turns} turns, {words} words a message; for each turn: {line}\n")
        sys.stdout.write(f"redaction of a streamed answer of 76 KB: {redaction() * 1e3:.2f} ms\n")
        sys.stdout.write(f"a request of 5 MB in 10,000 new pieces: {large(Path(folder)) * 1e3:,.0f} ms\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
