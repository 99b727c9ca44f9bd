"""A planted secret, in every place and form that a run can show it, is in no byte of the file or of its -wal."""

import base64
import hashlib
import json
import typing
import urllib.parse
from pathlib import Path
from typing import Any

import msgspec
import pytest
from recording.redact.fakes import fakes
from recordings import make

from agentwrap.events import (
    AnyEvent,
    Content,
    FileEdit,
    FileLink,
    FileRename,
    FileState,
    Gap,
    NetConnect,
    ProcessExec,
    ProcessStart,
    RunEnd,
    RunStart,
    Secrets,
)
from agentwrap.recording.encode import Encoder
from agentwrap.recording.layout import layout_of
from agentwrap.recording.reader import Reader
from agentwrap.recording.redact import Redactor
from agentwrap.recording.writer import Recorder

IN_ENVIRONMENT = 'tr0ub4dor&3 "quoted" /and/ more'
LATER = "Zx9-later-secret-0815"
FOUND = fakes()["github-token ghp_"]


def forms(secret: str) -> list[bytes]:
    raw = secret.encode()
    found = [raw, json.dumps(secret)[1:-1].encode(), urllib.parse.quote(secret, safe="").encode()]
    for before in range(3):
        text = base64.b64encode(b"::"[:before] + raw)
        found += [text, text.translate(bytes.maketrans(b"+/", b"-_"))]
    return found


def pieces(secret: str) -> list[bytes]:
    """What must not be in the file: every form, less the letters at its ends that hold bits of its neighbours."""
    return [form[len(form) // 4 : -len(form) // 4] for form in forms(secret)]


def plant(recorder: Recorder) -> None:
    user = {"uid": 0, "gid": 0}
    environment = ((b"PATH", b"/bin"), (b"DB_PASSWORD", IN_ENVIRONMENT.encode()), (b"NOTE", FOUND.encode()))
    command = (b"agent", *(b"--x=" + form for form in forms(IN_ENVIRONMENT)), FOUND.encode())
    recorder.add(
        RunStart(
            at_ns=0,
            command=command,
            cwd=b"/" + FOUND.encode(),
            environment=environment,
            mode="x",
            uid=0,
            gid=0,
            options=(("output", f"/tmp/{FOUND}"),),
        )
    )
    recorder.secrets(Secrets(values=((b"LATER_TOKEN", LATER.encode()),)))
    recorder.add(ProcessStart(at_ns=1, span="p1", pid=2, parent="run", how="fork", comm=LATER.encode()))
    for number, form in enumerate(f for secret in (IN_ENVIRONMENT, LATER, FOUND) for f in forms(secret)):
        path = b"/tmp/" + form
        recorder.add(ProcessExec(at_ns=2, span="p1", pid=2, path=path, exe=path, argv=(b"sh", b"-c", b"echo " + form),
                                 cwd=path, euid=0, **user))  # fmt: skip
        before, after = b"key = '" + form + b"'\n", b"before " + form + b" after %d\n" % number
        for role, data in (("before", before), ("after", after)):
            recorder.content(Content(sha=hashlib.sha256(data).digest(), data=data, role=role))  # type: ignore[arg-type]
        recorder.add(FileEdit(
            at_ns=3, span="p1", pid=2, path=path, change="modify", temporary=path + b"~",
            before=FileState(size=len(before), raw=hashlib.sha256(before).digest(), target=path),
            after=FileState(size=len(after), raw=hashlib.sha256(after).digest()),
        ))  # fmt: skip
        recorder.add(FileRename(at_ns=4, path=path, target=path))
        recorder.add(FileLink(at_ns=4, path=b"/l", target=path, link="symbolic"))
        recorder.add(NetConnect(at_ns=5, family="unix", path=path))
        recorder.add(Gap(at_ns=6, what="exec", cause="x", could_hide="y", from_ns=0, detail=form))
    recorder.checkpoint()


def begin(tmp_path: Path, shape_only: bool) -> Recorder:
    ticks = make.Ticks()
    meta = {"command": json.dumps(["agent", FOUND]), "cwd": f"/{FOUND}"}
    return Recorder.create(
        tmp_path / "run.agentlog", run_id="ab12", meta=meta, redactor=Redactor(make.RUN_KEY), signer=None,
        shape_only=shape_only, undo=tmp_path / "undo", now=ticks,
    )  # fmt: skip


@pytest.mark.parametrize("shape_only", [False, True])
def test_a_planted_secret_is_found_nowhere(tmp_path: Path, shape_only: bool) -> None:
    recorder = begin(tmp_path, shape_only)
    plant(recorder)
    recorder.commit()
    live = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    assert {"run.agentlog", "run.agentlog-wal"} <= live.keys()
    recorder.add(RunEnd(at_ns=9, status=0))
    recorder.close()
    closed = recorder.path.read_bytes()
    for secret in (IN_ENVIRONMENT, LATER, FOUND):
        for piece in pieces(secret):
            for name, data in {**live, "closed": closed}.items():
                assert piece not in data, (name, piece)
    assert (b"\xc2\xabshape:" if shape_only else b"\xc2\xabredacted:env:") in closed
    assert make.RUN_KEY not in closed
    assert make.RUN_KEY.hex().encode() not in closed


def test_names_of_the_environment_stay_and_so_does_what_is_no_secret(tmp_path: Path) -> None:
    recorder = begin(tmp_path, shape_only=False)
    plant(recorder)
    recorder.close()
    with Reader.open(recorder.path) as reader:
        environment = dict(next(reader.rows()).data["environment"])
    assert environment["PATH"] == "/bin"
    assert environment["DB_PASSWORD"].startswith("«redacted:env:")
    assert environment["NOTE"].startswith("«redacted:github-token:")


def test_a_redacted_content_says_so_and_can_be_compared_by_whoever_has_the_run_key(tmp_path: Path) -> None:
    recorder = begin(tmp_path, shape_only=False)
    data = f"token: {FOUND}\n".encode()
    digest = hashlib.sha256(data).digest()
    recorder.content(Content(sha=digest, data=data, role="before"))
    absent = FileState(type="absent")
    recorder.add(
        FileEdit(at_ns=1, path=b"/x", change="delete", before=FileState(raw=digest, size=len(data)), after=absent)
    )
    recorder.close()
    with Reader.open(recorder.path) as reader:
        (row,) = reader.rows()
        before = row.data["before"]
        stored = reader.blob(before["sha256"])
    assert before["redacted"] is True
    assert before["keyed"] == Redactor((tmp_path / "undo" / "key").read_bytes()).keyed(data)
    assert stored is not None
    assert stored.startswith(b"token: \xc2\xabredacted:github-token:")
    assert digest.hex().encode() not in recorder.path.read_bytes()
    # The raw bytes are where undo finds them, for the owner alone.
    kept = tmp_path / "undo" / "content" / digest.hex()
    assert kept.read_bytes() == data
    assert kept.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "undo").stat().st_mode & 0o777 == 0o700


def test_shape_only_keeps_kinds_sizes_times_and_counts(tmp_path: Path) -> None:
    recorder = make.begin(tmp_path / "s.agentlog", shape_only=True)
    make.feed(recorder)
    recorder.close()
    raw = recorder.path.read_bytes()
    for word in (b"notes.txt", b"one line", b"192.0.2.7", b"echo", b"/home/user", b"/usr/bin/dash", b"big.bin"):
        assert word not in raw
    with Reader.open(recorder.path) as reader:
        assert reader.meta["shape_only"] == "1"
        edit = next(reader.rows(kinds=["file.edit"]))
        assert (edit.data["before"]["size"], edit.data["after"]["size"], edit.at_ns) == (9, 15, 5_000_000)
        assert reader.connection.execute("SELECT count(*) FROM blob").fetchone() == (0,)
        assert [row.kind for row in reader.rows()] == [row.kind for row in sample_rows()]


def sample_rows() -> list[object]:
    with Reader.open(make.FOLDER / "good.agentlog") as reader:
        return list(reader.rows())


# Paths, addresses and names: nobody assigns anything in them.
NO_TEXTS = {
    *("process.start", "file.edit", "file.rename", "file.directory", "file.mode", "file.link", "file.special"),
    *("file.read", "net.connect", "net.bind", "net.listen", "net.send", "mcp.message"),
}


def some(hint: Any) -> Any:
    """A value of a field's type."""
    if typing.get_origin(hint) is typing.Literal:
        return typing.get_args(hint)[0]
    if typing.get_origin(hint) is tuple:
        return ()
    plain = {int: 1, str: "x", bytes: b"x", bool: False}
    return plain[hint] if hint in plain else hint()


TEXTS = [(one, field) for one in typing.get_args(AnyEvent) for field, _ in layout_of(one).foreign]


@pytest.mark.parametrize(("event_class", "field"), TEXTS)
def test_a_short_password_that_is_assigned_in_a_text_is_in_no_event(event_class: Any, field: str) -> None:
    hints = typing.get_type_hints(event_class)
    made = {
        info.name: some(hints[info.name])
        for info in msgspec.structs.fields(event_class)
        if info.default is msgspec.NODEFAULT and info.default_factory is msgspec.NODEFAULT
    }
    # Too short to be looked for elsewhere: nothing but what stands before it tells it.
    made[field] = b'{"user": "bob", "password": "hunter22x"}'
    data = Encoder(Redactor(make.RUN_KEY), lambda _raw: None, False).columns(event_class(**made))[6]
    assert (b"hunter22x" in data) == (layout_of(event_class).kind in NO_TEXTS)
