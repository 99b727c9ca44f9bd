"""The shape of the source, held by a test: who may import whom, what the pure half may touch, how long things get.

`problems(root)` is the checker; it is tried on small trees that break each rule, so that it cannot pass by being blind.
"""

import ast
import fnmatch
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# A module belongs to the layer of its longest prefix here; it may import its own layer and those named beside it.
BASE = {"events", "errors", "text", "policy"}
WRITE = {
    *("launching", "tracing", "gateway", "approvals", "session"),
    *("recording.writer", "recording.pump", "recording.again"),
}
READ = {"views", "export", "evidence", "recording.reader", "recording.snapshot"}
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "text": set(),
    # What a row looks like to whoever reads, shows or exports it; the reader fits it without knowing.
    "rows": set(),
    "events": set(),
    "policy": {"events", "errors", "text"},
    "launching": BASE | {"mcp"},
    # The tracer tells the gateway who connects, and speaks in frames that the gateway speaks, too.
    "gateway.callers": BASE,
    "tracing.wire": BASE,
    # How gateway and relay are attended; they speak in frames.
    "launching.sidecar": BASE | {"tracing.wire"},
    # What is known of MCP by itself; whoever stands between client and server is a process of its own.
    "mcp": BASE | {"models"},
    "mcp.handover": BASE,
    "mcp.relay": BASE | {"launching", "launching.sidecar", "mcp", "mcp.handover", "tracing.wire"},
    "tracing": BASE | {"launching", "gateway.callers", "tracing.wire", "mcp", "mcp.handover"},
    "gateway": BASE | {"launching", "launching.sidecar", "tracing.wire", "gateway.callers", "models", "mcp"},
    "models": BASE,
    "claims": BASE,
    # For programs of the run: it must load nothing of ours.
    "emit": set(),
    "demo": set(),
    "approvals": BASE,
    "recording": BASE,
    "recording.reader": BASE | {"recording"},
    # A copy with more hidden is read and written in one go.
    "recording.again": BASE | {"recording", "recording.reader"},
    "recording.snapshot": BASE | {"recording", "recording.reader"},
    "evidence": BASE | {"rows", "recording", "recording.reader", "models", "mcp"},
    "views.source": BASE | {"rows"},
    "views": BASE | {"rows", "views.source", "recording.reader", "evidence", "models", "mcp"},
    "export": BASE | {"rows", "views.source", "recording.reader", "evidence", "models", "mcp"},
    # Bytes to a server: it need not know whose they are.
    "delivery": BASE,
    "session": BASE
    | {"launching", "tracing", "gateway", "gateway.callers", "tracing.wire", "approvals", "recording", "models"}
    | {"claims", "mcp", "mcp.handover", "mcp.relay"},
    "cli": BASE
    | {"session", "launching", "approvals", "recording", "recording.again", "models", "mcp"}
    | {"evidence", "views", "export", "delivery", *READ, "views.source", "rows"},
}
# The pure half takes facts and gives answers: no file, clock, process, socket or chance.
PURE = {
    *("events", "errors", "text", "rows", "policy", "export", "views", "models", "gateway.capture", "claims.lines"),
    *("recording.envelope", "recording.merkle", "recording.redact", "recording.patterns"),
    *("recording.lists", "recording.former_views", "recording.spans", "recording.model_spans", "recording.span_row"),
    *("evidence.linking", "evidence.turns", "evidence.mcp_calls"),
    *("evidence.tool_arguments", "evidence.messages", "evidence.contexts"),
    *(f"evidence.report.{name}" for name in ("controls", "fields", "facts", "principal", "reviewed", "said", "story")),
    *(f"evidence.report.{name}" for name in ("completeness", "attribution", "approval", "asks", "again", "decisions")),
    *(f"evidence.report.{name}" for name in ("tools", "results", "connections", "gaps", "net_decisions")),
    "evidence.report.written_policy",
    *("launching.seccomp", "launching.plan", "launching.enforcement", "launching.survey", "launching.environment"),
    *("gateway.proxying.passing", "gateway.proxying.requests", "delivery.endpoint"),
    *("gateway.callers", "gateway.dns", "gateway.client_hello", "gateway.http_head", "gateway.first_flight"),
    *("gateway.http_body", "gateway.http_answers", "gateway.h2_requests"),
    *("gateway.known_names", "gateway.refusals", "gateway.reach"),
    *("gateway.netlink.messages", "gateway.netlink.nftables"),
    *("approvals.registry", "approvals.messages", "approvals.permission"),
    *("tracing.stops", "tracing.registers", "tracing.processes", "tracing.noise", "tracing.syscalls"),
    *("tracing.guard.sockaddr", "tracing.guard.messages", "tracing.interposing.words", "tracing.interposing.matcher"),
    *("mcp.gate", "mcp.strict", "mcp.answers"),
    *("mcp.declared", "mcp.configs", "mcp.decoder", "mcp.http", "mcp.http_exchanges", "mcp.event_stream"),
    *("mcp.rpc", "mcp.lines", "mcp.sessions", "mcp.calls", "mcp.hellos", "mcp.asked", "mcp.state"),
    *("mcp.over_http", "mcp.listings", "mcp.joining", "mcp.normal_form", "recording.mcp_spans"),
}
IMPURE = {
    *("os", "io", "shutil", "tempfile", "mmap", "fcntl", "sqlite3", "pathlib"),
    *("time", "datetime", "random", "secrets", "uuid"),
    *("socket", "select", "subprocess", "threading", "multiprocessing", "asyncio", "ctypes"),
    *("trio", "psutil", "pyroute2", "ptrace"),
}
# What a pure module may take from an impure one: names and functions of their arguments alone.
PURE_NAMES = {
    *("uuid.UUID", "uuid.uuid5"),
    *("os.fsdecode", "os.fsencode", "socket.AF_INET", "io.StringIO", "io.BytesIO"),
    *("pathlib.PurePath", "pathlib.PurePosixPath", "datetime.timedelta"),
    *(f"os.path.{name}" for name in ("basename", "commonpath", "dirname", "join", "normpath", "split", "splitext")),
}
HEAVY = ("trio", "pyroute2", "cryptography", "psutil", "ptrace", "textual", "asyncio", "difflib", "sqlite3")
MODULE_LINES, FUNCTION_LINES = 600, 80
GENERATED = ("tracing/syscalls/tables/*",)


def under(module: str, prefixes: object) -> str:
    """The longest of `prefixes` that `module` is or lies in, empty if none."""
    fitting = [one for one in prefixes if module == one or module.startswith(one + ".")]  # type: ignore[attr-defined]
    return max(fitting, key=len, default="")


def imports(tree: ast.AST) -> Iterator[str]:
    """Every imported name in full: `from a.b import c` gives `a.b.c`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def import_problems(module: str, tree: ast.AST) -> Iterator[str]:
    layer = under(module, ALLOWED)
    for name in imports(tree):
        first, _, rest = name.partition(".")
        target = under(rest, ALLOWED) if first == "agentwrap" else ""
        if target:
            if not layer and module not in ("__main__", ""):
                yield f"{module} is in no layer of the table"
            elif layer and target not in ALLOWED[layer] | {layer}:
                yield f"{module} imports {rest}"
            if under(rest, WRITE) and layer.startswith(("recording", *READ)) and not under(module, WRITE):
                yield f"{module} imports {rest}: the writing and the reading side meet in the file only"
        elif first in IMPURE and under(module, PURE) and name not in PURE_NAMES:
            yield f"{module} is pure and imports {name}"


def shape_problems(module: str, path: Path, tree: ast.Module, text: str) -> Iterator[str]:
    if not ast.get_docstring(tree):
        yield f"{module} has no docstring"
    if text.count("\n") > MODULE_LINES:
        yield f"{module} has {text.count(chr(10))} lines, {MODULE_LINES} are allowed"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or 0) - node.lineno + 1
            if length > FUNCTION_LINES:
                yield f"{module}.{node.name} has {length} lines, {FUNCTION_LINES} are allowed"
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(called, ast.Name) and called.id == "print" and path.parts[-2:] != ("cli", "output.py"):
            yield f"{module} prints (line {called.lineno}); only cli.output does"


def problems(package: Path) -> list[str]:
    """Everything wrong with the source under `package`, one line each."""
    found = []
    for path in sorted(package.rglob("*.py")):
        relative = path.relative_to(package)
        module = ".".join(relative.with_suffix("").parts).removesuffix("__init__").removesuffix(".")
        text = path.read_text("utf-8")
        tree = ast.parse(text)
        found += import_problems(module, tree)
        if not any(fnmatch.fnmatch(str(relative), pattern) for pattern in GENERATED):
            found += shape_problems(module, path, tree, text)
    return found


def test_the_source_keeps_its_shape() -> None:
    assert problems(ROOT / "agentwrap") == []


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("views/lines.py", "import agentwrap.session", "views.lines imports session"),
        ("views/lines.py", "from agentwrap.recording import writer", "meet in the file only"),
        ("views/lines.py", "from agentwrap.recording.writer import Recorder", "meet in the file only"),
        ("tracing/loop.py", "def f():\n    from agentwrap.views import lines", "tracing.loop imports views.lines"),
        ("recording/reader.py", "from agentwrap.recording import writer", "recording.reader imports recording.writer"),
        ("recording/merkle.py", "from agentwrap.recording import writer", "meet in the file only"),
        ("recording/writer.py", "from agentwrap.recording import reader", "recording.writer imports recording.reader"),
        ("events/file.py", "from agentwrap.policy import parse", "events.file imports policy.parse"),
        ("policy/decide.py", "import time", "policy.decide is pure and imports time"),
        ("policy/decide.py", "from datetime import datetime", "is pure and imports datetime.datetime"),
        ("views/tree.py", "def f():\n    from os import environ", "is pure and imports os.environ"),
        ("export/jsonl.py", "from agentwrap.views import lines", "export.jsonl imports views.lines"),
        ("novelty/x.py", "from agentwrap.events import base", "novelty.x is in no layer"),
        ("launching/plan.py", "print('x')", "launching.plan prints"),
        ("launching/plan.py", "x = 1\n" * 600, "has 601 lines"),
        ("launching/plan.py", "def long():\n" + "    x = 1\n" * 80, "launching.plan.long has 81 lines"),
        ("launching/plan.py", "#", "launching.plan has no docstring"),
    ],
)
def test_the_checker_sees_what_it_forbids(tmp_path: Path, name: str, text: str, complaint: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True)
    path.write_text(text if text == "#" else f'"""Told."""\n{text}')
    assert [one for one in problems(tmp_path) if complaint in one], problems(tmp_path)


def test_what_is_allowed_is_left_alone(tmp_path: Path) -> None:
    for name, text in (
        ("views/lines.py", "from agentwrap.recording.reader import Row\nfrom agentwrap import text"),
        ("views/tree.py", "from os.path import join"),
        ("session.py", "from agentwrap.recording import writer\nfrom agentwrap.launching import plan"),
        ("cli/output.py", "print(1)"),
        ("tracing/syscalls/tables/x.py", "x = 1\n" * 700),
        ("launching/probe.py", "import os, time"),
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'"""Told."""\n{text}')
    assert problems(tmp_path) == []


def test_the_command_line_starts_without_what_only_a_run_needs() -> None:
    code = f"import sys, agentwrap.cli.main; print(*sorted(set({HEAVY!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.split() == []


def test_every_file_of_the_package_is_shipped() -> None:
    """A data file that no pattern of `package-data` names is missing once installed, not in a checkout."""
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["agentwrap"]
    package = ROOT / "agentwrap"
    shipped = {path for pattern in patterns for path in package.glob(pattern)}
    files = (path for path in package.rglob("*") if path.is_file())
    # What a neighbour compiles lies for a moment under a name that ends in a number (importlib, _write_atomic).
    data = {path for path in files if path.suffix != ".py" and path.parent.name != "__pycache__"}
    assert data - shipped == set()


def test_no_folder_of_modules_is_left_out_of_the_package() -> None:
    folders = {path.parent for path in (ROOT / "agentwrap").rglob("*.py")}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").exists()] == []
