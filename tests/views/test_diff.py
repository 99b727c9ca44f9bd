import difflib
import shutil
import subprocess
from pathlib import Path

import pytest
from fake_recording import FakeRecording
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.views import diff
from agentwrap.views.styled import plain

lines_of_few = st.lists(st.sampled_from([b"a\n", b"b\n", b"c\n", b"\n", b"d\r\n"]), max_size=30).map(b"".join)
contents = st.tuples(lines_of_few, st.sampled_from([b"", b"end", b"b"])).map(b"".join)


def shown(before: bytes | None, after: bytes | None) -> list[str]:
    return [plain(line) for line in diff.unified(before, after, "/dir/file.txt")]


def test_a_change_is_a_unified_diff_with_three_lines_of_context() -> None:
    before = b"".join(b"%d\n" % n for n in range(20))
    after = before.replace(b"10\n", b"ten\n")
    assert shown(before, after) == [
        "--- a/dir/file.txt", "+++ b/dir/file.txt", "@@ -8,7 +8,7 @@",
        " 7", " 8", " 9", "-10", "+ten", " 11", " 12", " 13",
    ]  # fmt: skip


def test_created_and_deleted_files_are_against_nothing() -> None:
    assert shown(None, b"x\n") == ["--- /dev/null", "+++ b/dir/file.txt", "@@ -0,0 +1 @@", "+x"]
    assert shown(b"x", None) == [
        "--- a/dir/file.txt", "+++ /dev/null", "@@ -1 +0,0 @@", "-x", "\\ No newline at end of file",
    ]  # fmt: skip


def test_foreign_characters_of_a_line_are_escaped_and_tabs_stay() -> None:
    assert shown(None, b"\ta\x1b[31m\xff\r\n")[-1] == "+\ta\\x1b[31m\\xff\\r"


@given(contents, contents)
def test_opcodes_rebuild_both_sides(before: bytes, after: bytes) -> None:
    old, new = diff._lines(before), diff._lines(after)
    assert b"".join(old) == before
    at = (0, 0)
    for tag, i1, i2, j1, j2 in diff.opcodes(old, new):
        assert (i1, j1) == at
        assert (tag == "equal") == (old[i1:i2] == new[j1:j2])
        at = (i2, j2)
    assert at == (len(old), len(new))


@given(contents, contents)
def test_counts_are_those_of_the_diff(before: bytes, after: bytes) -> None:
    body = shown(before, after)[2:]
    assert diff.counts(before, after) == (sum(line[0] == "+" for line in body), sum(line[0] == "-" for line in body))


@given(lines_of_few, lines_of_few)
def test_hunks_are_those_of_difflib_where_nothing_was_cut_off(before: bytes, after: bytes) -> None:
    old, new = diff._lines(b"x\n" + before), diff._lines(b"y\n" + after)
    codes = difflib.SequenceMatcher(None, old, new, autojunk=False)
    assert list(diff._hunks(codes.get_opcodes())) == [
        group for group in codes.get_grouped_opcodes(3) if any(code[0] != "equal" for code in group)
    ]


@pytest.mark.skipif(not shutil.which("patch"), reason="needs patch(1)")
@pytest.mark.parametrize("after", [b"1\n2\n4\n5", b"0\n1\n2\n3\n4\n", b"", b"1\n\t2\n3\n4\n"])
def test_patch_can_apply_it(tmp_path: Path, after: bytes) -> None:
    before = b"1\n2\n3\n4\n"
    (tmp_path / "file.txt").write_bytes(before)
    lines = [plain(line) for line in diff.unified(before, after, "file.txt")]
    text = "\n".join(lines) + "\n"
    subprocess.run(["patch", "-p1", "-s"], input=text.encode(), cwd=tmp_path, check=True, timeout=300)
    assert (tmp_path / "file.txt").read_bytes() == after


def test_contents_that_differ_everywhere_are_told_as_replaced() -> None:
    old, new = [b"a%d\n" % n for n in range(3000)], [b"b%d\n" % n for n in range(3000)]
    assert diff.opcodes(old, new) == [("replace", 0, 3000, 0, 3000)]


def state(content: bytes, **more: object) -> dict[str, object]:
    import hashlib

    return {"size": len(content), "sha256": hashlib.sha256(content).hexdigest(), **more}


def of_edit(before: dict[str, object], after: dict[str, object], *blobs: bytes) -> list[str]:
    source = FakeRecording(blobs=blobs)
    return [plain(line) for line in diff.of_edit(source, {"before": before, "after": after}, "/f")]


def test_what_is_not_text_or_not_kept_is_described() -> None:
    absent: dict[str, object] = {"type": "absent"}
    assert of_edit(absent, state(b"\0\1"), b"\0\1")[0].startswith("binary: absent -> 2B sha256 ")
    assert of_edit(absent, {"size": 9_000_000, "omitted": "over-cap", "raw_sha256": "ab" * 32}) == [
        "absent -> 9.0MB sha256 abababababab (content over the cap, not kept)"
    ]
    assert of_edit(absent, {"type": "symlink", "target": "a\nb"}) == ["absent -> symlink to a\\nb"]
    assert of_edit(absent, state(b"lost"))[0].startswith("absent -> 4B sha256")
    assert of_edit(absent, {"size": 5, "keyed": "00"}) == ["absent -> 5B"]
    kept = state(b"same", redacted=True)
    assert of_edit(kept, kept, b"same") == ["what changed is redacted"]
    assert of_edit(absent, {}) == ["--- /dev/null", "+++ b/f"]
    assert of_edit(absent, state(b"x\n"), b"x\n")[-1] == "+x"
