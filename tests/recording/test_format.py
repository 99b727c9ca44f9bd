"""docs/format.md against the source: tables, views, kinds and fields; and a program that knows only that page."""

import json
import re
import shutil
import sqlite3
import subprocess
import typing
from pathlib import Path

import msgspec
import pytest
import sample_wall
from recordings import make

from agentwrap.events import AnyEvent, Body, FileState
from agentwrap.evidence.verify import verify
from agentwrap.recording import layout, output, seal
from agentwrap.recording.header import APPLICATION_ID, USER_VERSION
from agentwrap.recording.redact.patterns import PROVIDERS

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = (ROOT / "docs" / "format.md").read_text("utf-8")
READER = Path(__file__).with_name("independent_reader.mjs")


def section(title: str) -> str:
    match = re.search(rf"^#+ (?:\d+\. )?{re.escape(title)}$(.*?)(?=^#+ |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert match, title
    return match[1]


def rows(text: str) -> dict[str, list[str]]:
    """Rows of the tables in `text`: `name` in the first cell -> the other cells."""
    found = re.findall(r"^\| `([\w.]+)` \|(.*)\|$", text, re.MULTILINE)
    return {name: [cell.strip() for cell in rest.split(" | ")] for name, rest in found}


def shown(default: object) -> str:
    if default is msgspec.NODEFAULT:
        return ""
    if isinstance(default, bytes):
        return f"`{json.dumps(default.decode())}`"
    return "`none`" if default == Body() else f"`{json.dumps(default)}`"


def word_for(hint: object) -> str:
    simple = {bytes: "foreign", int: "int", bool: "bool", str: "word", FileState: "state", Body: "body"}
    if hint in simple:
        return simple[hint]  # type: ignore[index]
    shapes = {
        tuple[bytes, ...]: "foreign list",
        tuple[str, ...]: "words",
        tuple[tuple[bytes, bytes], ...]: "foreign pairs",
        tuple[tuple[str, str], ...]: "pairs",
        tuple[int, int]: "pair",
        int | None: "int",
        bool | None: "bool",
    }
    if hint in shapes:
        return shapes[hint]  # type: ignore[index]
    assert typing.get_origin(hint) is typing.Literal, hint
    return "word"


def struct_rows(struct: type[msgspec.Struct], without: set[str]) -> dict[str, list[str]]:
    hints = typing.get_type_hints(struct)
    return {
        field.name: [word_for(hints[field.name]), shown(field.default)]
        for field in msgspec.structs.fields(struct)
        if field.name not in without
    }


KINDS = {str(event.__struct_config__.tag): event for event in typing.get_args(AnyEvent)}


def test_every_kind_has_its_section_and_no_other_has() -> None:
    assert set(re.findall(r"^### `([\w.]+)`", PAGE, re.MULTILINE)) == KINDS.keys()


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_of_a_kind_is_told_with_its_type_and_default(kind: str) -> None:
    told = {name: cells[:2] for name, cells in rows(section(f"`{kind}`")).items()}
    assert told == struct_rows(KINDS[kind], {"at_ns", "span", "pid"})


def test_fields_of_a_file_state() -> None:
    told = {name: cells[:2] for name, cells in rows(section("File states")).items()}
    assert told == struct_rows(FileState, {"raw"})


def test_fields_of_a_body() -> None:
    told = {name: cells[:2] for name, cells in rows(section("Bodies")).items()}
    assert told == struct_rows(Body, {"pieces"})


def database() -> sqlite3.Connection:
    fresh = sqlite3.connect(":memory:")
    fresh.executescript(output.schema_text())
    return fresh


def columns(kind: str) -> dict[str, set[str]]:
    fresh = database()
    names = [row[0] for row in fresh.execute("SELECT name FROM sqlite_master WHERE type = ?", (kind,))]
    found = {name: {row[1] for row in fresh.execute(f"PRAGMA table_info({name})")} for name in names}
    fresh.close()
    return found


def test_every_table_and_column_is_told() -> None:
    told: dict[str, set[str]] = {}
    table = ""
    for first, second in re.findall(r"^\|([^|]*)\|([^|]*)\|[^|]*\|$", section("Tables"), re.MULTILINE):
        table = (re.findall(r"`(\w+)`", first) or [table])[0]
        told.setdefault(table, set()).update(re.findall(r"`(\w+)`", second))
    told.pop("", None)
    assert told == columns("table")


def test_every_view_and_column_is_told() -> None:
    told: dict[str, set[str]] = {}
    for name, text in re.findall(r"^\*\*`(\w+)`\*\*(.*?)(?=^\*\*|\Z)", section("Views"), re.MULTILINE | re.DOTALL):
        told[name] = set(rows(text))
    assert told == columns("view")


def test_numbers_on_the_page() -> None:
    assert f"`0x{APPLICATION_ID:X}`" in PAGE
    assert f"`{USER_VERSION}`. A reader refuses" in PAGE
    assert f"`{seal.MAGIC.decode()}`" in PAGE
    assert len({provider.kind for provider in PROVIDERS}) >= 40


def test_layouts_cover_every_kind() -> None:
    assert {plan.kind for plan in layout.every_layout().values()} == KINDS.keys()


def test_views_answer_in_one_line(tmp_path: Path) -> None:
    path = make.closed(tmp_path / "good.agentlog")
    file = sqlite3.connect(path)
    for view in columns("view"):
        file.execute(f"SELECT * FROM {view}").fetchall()
    assert file.execute("SELECT path, change, class, before_size, after_size FROM file_edit").fetchall() == [
        ("/home/user/project/notes.txt", "modify", "work", 9, 15)
    ]
    assert file.execute("SELECT host, port, count FROM connection").fetchall() == [("192.0.2.7", 443, 1)]
    assert file.execute("SELECT name, status, execs, parent FROM process").fetchall() == [("sh", "exit 0", 1, "run")]
    assert file.execute("SELECT verdict, subject FROM decision").fetchall() == [("deny", "/bin/su")]
    assert file.execute("SELECT what, cause FROM gap").fetchall() == [("file-write", "over-cap")]
    assert len(file.execute("SELECT what FROM coverage").fetchall()) == 2
    file.close()


def test_views_of_a_run_behind_a_wall(tmp_path: Path) -> None:
    path = tmp_path / "wall.agentlog"
    recorder = make.begin(path)
    for event in sample_wall.events():
        recorder.add(event)
    recorder.close()
    file = sqlite3.connect(path)
    asked = "SELECT host, port, verdict, address, protocol, connection, ending, up_bytes, down_bytes FROM connection"
    assert file.execute(asked + " WHERE kind = 'net.decision'").fetchall() == [
        ("api.example.com", 443, "allow", "203.0.113.5", "tls", "c1", "closed", 1200, 30_000),
        ("203.0.113.9", 443, "deny", None, None, "c2", "denied", None, None),
    ]
    names = file.execute("SELECT names ->> 0, qtype, rcode, sum(count) FROM dns GROUP BY 1 ORDER BY 1").fetchall()
    assert names == [("api.example.com", "A", "NOERROR", 1), ("telemetry.example", "A", "NXDOMAIN", 4)]
    counted = "SELECT sum(count) FROM decision WHERE verdict = 'deny' AND rule IS NOT NULL"
    assert file.execute(counted).fetchone() == (7,)
    assert file.execute("SELECT name, mode, layers ->> 0 ->> 0 FROM policy").fetchall() == [("ci", "enforce", "flags")]
    spans = file.execute("SELECT id, parent, name, status, end_ns FROM span WHERE kind = 'connection'").fetchall()
    assert spans == [
        ("c1", "p1", "api.example.com:443", "closed", 13_000_000),
        ("c2", "p2", "203.0.113.9:443", "denied", 7_000_000),
    ]
    file.close()
    assert verify(path, public_key=make.public_key()).word == "intact"


def independent(path: Path, *more: str) -> dict[str, object]:
    for program in ("node", "sqlite3"):
        if shutil.which(program) is None:
            pytest.skip(f"the independent reader needs `{program}`, which is not installed")
    done = subprocess.run(["node", str(READER), str(path), *more], capture_output=True, text=True, timeout=300)
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


GOOD = {"events": 12, "leaves": True, "roots": True, "meta": True, "blobs": True, "lists": True,
        "signatures": True, "closed": True}  # fmt: skip


def test_another_program_recomputes_everything_from_the_page(tmp_path: Path) -> None:
    path = make.closed(tmp_path / "good.agentlog")
    found = independent(path, str(make.FOLDER / "samples.pub"))
    assert {key: found[key] for key in GOOD} == GOOD
    assert (found["seal"], found["sealSigned"]) == (True, True)


@pytest.mark.parametrize(
    ("statement", "wrong"),
    [
        ("UPDATE event SET subject = 'x' WHERE seq = 7", {"leaves", "roots", "seal"}),
        ("UPDATE meta SET value = 'x' WHERE key = 'cwd'", {"meta", "seal"}),
        ("UPDATE blob SET data = CAST('x' AS BLOB)", {"blobs", "seal"}),
        ("INSERT INTO blob VALUES (zeroblob(32), 0, NULL, NULL)", {"lists", "seal"}),
        ("UPDATE part SET ordinal = 1", {"leaves", "roots", "seal"}),
        ("UPDATE checkpoint SET note = replace(note, '12', '13')", {"signatures", "roots", "seal"}),
    ],
)
def test_the_other_program_sees_changes_too(tmp_path: Path, statement: str, wrong: set[str]) -> None:
    path = make.edit(make.closed(tmp_path / "bad.agentlog"), statement)
    found = independent(path, str(make.FOLDER / "samples.pub"))
    assert {key for key, value in found.items() if value is False} >= wrong - {"roots"}
    assert found["seal"] is False


def test_the_samples_are_what_the_script_makes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {path.name: path for path in make.FOLDER.glob("*.agentlog")}
    names = ("good", "model", "torn", "tampered", "shape-only", "from-the-future")
    assert set(before) == {f"{name}.agentlog" for name in names}
    asked = "SELECT seq, at_ns, kind, span, pid, subject, verdict, data, leaf FROM event"
    good, sample = sqlite3.connect(make.closed(tmp_path / "g.agentlog")), sqlite3.connect(before["good.agentlog"])
    try:
        assert good.execute(asked).fetchall() == sample.execute(asked).fetchall()
        assert (
            good.execute("SELECT note FROM checkpoint").fetchall()
            == sample.execute("SELECT note FROM checkpoint").fetchall()
        )
    finally:
        good.close()
        sample.close()
