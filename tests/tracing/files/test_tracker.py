"""Every route by which a file changes, told call by call as the kernel tells it."""

import ctypes
import hashlib
import mmap
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentwrap.events import FileClass, FileEdit, FileMode, FileRead, FileState, Gap
from agentwrap.tracing.files import Place, Who
from agentwrap.tracing.files.tracker import RENAME_EXCHANGE, RENAME_NOREPLACE

Aged = Callable[[str, bytes], Path]
NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


def sha(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


# -- writing


def test_a_new_file_is_one_creation_with_its_content(bench: Any) -> None:
    shell = bench.process()
    shell.write("a", b"hello")
    assert bench.events == []
    shell.end()
    assert bench.told() == [("Edit", "create", "write", "a")]
    edit = bench.edits[0]
    assert edit.before.type == "absent"
    assert edit.after.raw == sha(b"hello")
    assert (edit.after.size, edit.after.mode, edit.after.uid) == (5, 0o644 & ~_umask(), os.getuid())
    assert bench.content(edit.after.raw, "after") == b"hello"
    assert edit.writers == ("p1",)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_truncate_in_place_keeps_what_was_there(bench: Any, aged: Aged) -> None:
    aged("a", b"old\n")
    tool = bench.process("p7")
    tool.write("a", b"new\n")
    tool.end()
    (edit,) = bench.edits
    assert (edit.change, edit.via, edit.span) == ("modify", "write", "p7")
    assert bench.content(edit.before.raw, "before") == b"old\n"
    assert bench.content(edit.after.raw, "after") == b"new\n"


def test_contents_come_before_the_event_that_names_them(bench: Any, aged: Aged) -> None:
    aged("a", b"old\n")
    tool = bench.process()
    tool.write("a", b"new\n")
    tool.end()
    assert [type(item).__name__ for item in bench.items] == ["Content", "Content", "FileEdit"]


def test_the_same_content_written_again_is_no_edit(bench: Any, aged: Aged) -> None:
    aged("a", b"same")
    tool = bench.process()
    tool.write("a", b"same")
    tool.end()
    bench.tracker.finish()
    assert bench.items == []


def test_an_open_that_writes_nothing_is_no_edit_and_sends_no_content(bench: Any, aged: Aged) -> None:
    aged("a", b"same")
    tool = bench.process()
    fd = tool.open("a", os.O_RDWR)
    os.close(fd)
    tool.end()
    bench.tracker.finish()
    assert bench.items == []


def test_append(bench: Any, aged: Aged) -> None:
    aged("a", b"one\n")
    tool = bench.process()
    tool.write("a", b"two\n", os.O_WRONLY | os.O_APPEND)
    tool.end()
    (edit,) = bench.edits
    assert bench.content(edit.after.raw) == b"one\ntwo\n"


def test_a_failed_exclusive_create_is_nothing(bench: Any, aged: Aged) -> None:
    aged("a", b"here")
    tool = bench.process()
    assert isinstance(tool.open("a", NEW | os.O_EXCL), FileExistsError)
    tool.end()
    bench.tracker.finish()
    assert bench.items == []


def test_a_create_in_a_missing_folder_is_nothing(bench: Any) -> None:
    tool = bench.process()
    assert isinstance(tool.open("no/a", NEW), FileNotFoundError)
    tool.end()
    bench.tracker.finish()
    assert bench.items == []


def test_a_failed_create_is_not_mistaken_for_what_comes_there_later(bench: Any, aged: Aged) -> None:
    aged("d/x", b"old")
    tool = bench.process()
    assert isinstance(tool.open("e/x", NEW), FileNotFoundError)
    tool.rename("d", "e")
    tool.end()
    bench.tracker.finish()
    assert bench.told() == [("Rename", "directory", "d", "e")]


def test_mmap_is_seen_by_comparison(bench: Any, aged: Aged) -> None:
    aged("a", b"x" * 4096)
    tool = bench.process()
    fd = tool.open("a", os.O_RDWR)
    with mmap.mmap(fd, 4096) as memory:
        memory[0:1] = b"y"
    os.close(fd)
    tool.end()
    assert bench.told() == [("Edit", "modify", "write", "a")]


@pytest.mark.parametrize("route", ["sendfile", "copy_file_range", "splice"])
def test_writes_without_write(bench: Any, aged: Aged, route: str) -> None:
    source = os.open(aged("source", b"copied"), os.O_RDONLY)
    tool = bench.process()
    fd = tool.open("a", NEW)
    if route == "sendfile":
        os.sendfile(fd, source, 0, 6)
    elif route == "copy_file_range":
        os.copy_file_range(source, fd, 6)
    else:
        reader, writer = os.pipe()
        os.splice(source, writer, 6)
        os.splice(reader, fd, 6)
        os.close(reader)
        os.close(writer)
    os.close(fd)
    os.close(source)
    tool.end()
    (edit,) = bench.edits
    assert bench.content(edit.after.raw) == b"copied"


def test_truncate_by_path(bench: Any, aged: Aged) -> None:
    aged("a", b"0123456789")
    tool = bench.process()
    tool.truncate("a", 4)
    tool.seen()
    (edit,) = bench.edits
    assert (edit.change, bench.content(edit.before.raw), bench.content(edit.after.raw)) == (
        "modify",
        b"0123456789",
        b"0123",
    )


def test_a_truncate_that_is_looked_for_too_early_is_told_all_the_same(bench: Any, aged: Aged) -> None:
    """Its thread waits for a processor while all that is followed is looked at."""
    path = aged("a", b"0123456789")
    tool = bench.process()
    bench.tracker.truncating(tool.who, bench.at("a"))
    for _ in range(3):
        bench.tracker.sweep()
    os.truncate(path, 4)
    tool.seen()
    bench.tracker.sweep()
    (edit,) = bench.edits
    assert (edit.change, bench.content(edit.before.raw), bench.content(edit.after.raw)) == (
        "modify",
        b"0123456789",
        b"0123",
    )
    assert not bench.tracker.pending


def test_a_failed_truncate_is_nothing(bench: Any, aged: Aged) -> None:
    aged("a", b"0123")
    tool = bench.process()
    bench.tracker.truncating(tool.who, bench.at("a"))
    tool.seen()
    bench.tracker.sweep()
    assert bench.items == []
    assert not bench.tracker.pending


def test_two_writers_are_both_named_the_last_one_last(bench: Any, aged: Aged) -> None:
    aged("a", b"")
    one, two = bench.process("p1"), bench.process("p2")
    first = one.open("a", os.O_WRONLY | os.O_APPEND)
    second = two.open("a", os.O_WRONLY | os.O_APPEND)
    os.write(first, b"1")
    os.write(second, b"2")
    os.close(first)
    os.close(second)
    one.end()
    two.end()
    assert bench.edits[0].writers == ("p1", "p2")
    assert bench.edits[-1].after.raw == sha(b"12")


def test_writes_of_two_processes_one_after_the_other_are_two_edits(bench: Any, aged: Aged) -> None:
    aged("a", b"0")
    one, two = bench.process("p1"), bench.process("p2")
    one.write("a", b"1")
    two.write("a", b"2")
    one.end()
    two.end()
    assert [(edit.span, edit.before.raw, edit.after.raw) for edit in bench.edits] == [
        ("p1", sha(b"0"), sha(b"1")),
        ("p2", sha(b"1"), sha(b"2")),
    ]


def test_only_the_state_before_the_run_is_kept_for_undo(bench: Any, aged: Aged) -> None:
    aged("a", b"0")
    for number in (1, 2):
        tool = bench.process(f"p{number}")
        tool.write("a", b"%d" % number)
        tool.end()
    roles = {(item.role, item.data) for item in bench.items if type(item).__name__ == "Content"}
    assert ("before", b"0") in roles
    assert ("before", b"1") not in roles
    assert ("after", b"1") in roles


def test_a_write_through_another_name_is_told_under_that_name(bench: Any, aged: Aged) -> None:
    path = aged("a", b"old")
    os.link(path, path.with_name("b"))
    tool = bench.process()
    tool.write("b", b"new")
    tool.end()
    assert bench.told() == [("Edit", "modify", "write", "b")]


def test_both_names_of_an_inode_open_at_once(bench: Any, aged: Aged) -> None:
    path = aged("a", b"old")
    os.link(path, path.with_name("b"))
    tool, other = bench.process("p1"), bench.process("p2")
    fd = tool.open("a", os.O_WRONLY)
    os.write(fd, b"1")
    other.write("b", b"2", os.O_WRONLY | os.O_APPEND)
    os.close(fd)
    other.end()
    tool.end()
    assert bench.told() == [("Edit", "modify", "write", "a"), ("Edit", "modify", "write", "b")]


# -- symbolic links


def test_writing_through_a_symlink_is_an_edit_of_its_target(bench: Any, aged: Aged) -> None:
    aged("deep/real", b"old")
    os.symlink("deep/real", os.path.join(bench.folder, b"name"))
    tool = bench.process()
    tool.write("name", b"new")
    tool.end()
    assert bench.told() == [("Edit", "modify", "write", "deep/real")]


def test_writing_through_a_dangling_symlink_makes_its_target(bench: Any) -> None:
    os.symlink("later", os.path.join(bench.folder, b"name"))
    tool = bench.process()
    tool.write("name", b"new")
    tool.end()
    assert bench.told() == [("Edit", "create", "write", "later")]


@pytest.mark.parametrize("flags", [NEW | os.O_NOFOLLOW, NEW | os.O_EXCL])
def test_links_that_are_not_followed(bench: Any, aged: Aged, flags: int) -> None:
    aged("real", b"old")
    os.symlink("real", os.path.join(bench.folder, b"name"))
    tool = bench.process()
    assert isinstance(tool.open("name", flags), OSError)
    tool.end()
    bench.tracker.finish()
    assert bench.items == []


def test_a_loop_of_links(bench: Any) -> None:
    os.symlink("b", os.path.join(bench.folder, b"a"))
    os.symlink("a", os.path.join(bench.folder, b"b"))
    tool = bench.process()
    assert isinstance(tool.open("a", NEW), OSError)
    tool.end()
    bench.tracker.finish()
    assert bench.items == []


def test_a_symlink_is_made_and_removed(bench: Any) -> None:
    tool = bench.process()
    tool.symlink("somewhere", "name")
    tool.unlink("name")
    tool.end()
    assert bench.told() == [("Link", "symbolic", "name", "somewhere"), ("Edit", "transient", "remove", "name")]
    assert bench.edits[0].before.target == b"somewhere"


# -- removing


def test_deleting_an_older_file_keeps_its_content(bench: Any, aged: Aged) -> None:
    aged("a", b"precious")
    tool = bench.process()
    tool.unlink("a")
    tool.seen()
    (edit,) = bench.edits
    assert (edit.change, edit.via, edit.after.type) == ("delete", "remove", "absent")
    assert bench.content(edit.before.raw, "before") == b"precious"


def test_made_and_removed_again_is_one_event(bench: Any) -> None:
    tool = bench.process()
    tool.write("script.sh", b"echo hi")
    tool.unlink("script.sh")
    tool.end()
    bench.tracker.finish()
    assert bench.told() == [("Edit", "transient", "remove", "script.sh")]
    assert bench.content(bench.edits[0].before.raw, "after") == b"echo hi"


def test_a_large_transient_file_has_no_content(bench: Any) -> None:
    tool = bench.process()
    tool.write("big", b"x" * 70_000)
    tool.unlink("big")
    tool.end()
    (edit,) = bench.edits
    assert (edit.before.omitted, edit.before.size) == ("not-kept", 70_000)
    assert bench.gaps == []


def test_removed_long_after_it_was_made_is_still_transient(bench: Any) -> None:
    tool, other = bench.process("p1"), bench.process("p2")
    tool.write("a", b"1")
    tool.end()
    other.unlink("a")
    other.end()
    assert [edit.change for edit in bench.edits] == ["create", "transient"]


def test_an_edit_before_the_deletion_is_told_too(bench: Any, aged: Aged) -> None:
    aged("a", b"old")
    tool = bench.process()
    tool.write("a", b"new")
    tool.unlink("a")
    tool.end()
    assert [edit.change for edit in bench.edits] == ["modify", "delete"]


@pytest.mark.parametrize("call", ["unlink", "rmdir", "mkdir"])
def test_calls_that_fail_tell_nothing(bench: Any, aged: Aged, call: str) -> None:
    aged("full/a", b"")
    tool = bench.process()
    assert not getattr(tool, call)("full")
    tool.seen()
    assert not getattr(tool, call)("missing/b")
    tool.end()
    bench.tracker.finish()
    assert bench.items == []


def test_directories(bench: Any) -> None:
    tool = bench.process()
    tool.mkdir("d")
    tool.mkdir("d/e")
    tool.rmdir("d/e")
    tool.rmdir("d")
    tool.end()
    assert bench.told() == [
        ("Directory", "create", "d"),
        ("Directory", "create", "d/e"),
        ("Directory", "remove", "d/e"),
        ("Directory", "remove", "d"),
    ]


# -- renaming


def test_temporary_then_rename_is_one_edit_of_the_target(bench: Any, aged: Aged) -> None:
    aged("hello.py", b"old")
    claude = bench.process("p3")
    claude.write("hello.py.tmp.1", b"new")
    claude.rename("hello.py.tmp.1", "hello.py")
    claude.end()
    bench.tracker.finish()
    assert bench.told() == [("Edit", "modify", "rename", "hello.py", "hello.py.tmp.1")]
    edit = bench.edits[0]
    assert bench.content(edit.before.raw, "before") == b"old"
    assert bench.content(edit.after.raw, "after") == b"new"


def test_temporary_then_rename_of_another_process(bench: Any, aged: Aged) -> None:
    aged("a", b"old")
    writer, mover = bench.process("p1"), bench.process("p2")
    writer.write("t", b"new")
    mover.rename("t", "a")
    mover.end()
    writer.end()
    (edit,) = bench.edits
    assert (edit.span, edit.writers) == ("p2", ("p1", "p2"))


def test_temporary_renamed_to_a_free_name_is_a_creation(bench: Any) -> None:
    tool = bench.process()
    tool.write("t", b"new")
    tool.rename("t", "a")
    tool.end()
    assert bench.told() == [("Edit", "create", "rename", "a", "t")]


def test_rename_with_the_same_content_is_no_edit(bench: Any, aged: Aged) -> None:
    aged("a", b"same")
    tool = bench.process()
    tool.write("t", b"same")
    tool.rename("t", "a")
    tool.end()
    bench.tracker.finish()
    assert bench.events == []


def test_a_plain_rename(bench: Any, aged: Aged) -> None:
    aged("a", b"1")
    tool = bench.process()
    tool.rename("a", "b")
    tool.end()
    bench.tracker.finish()
    assert bench.told() == [("Rename", "a", "b")]


def test_a_file_moved_and_then_changed_keeps_its_older_content_for_undo(bench: Any, aged: Aged) -> None:
    aged("a", b"1")
    tool = bench.process()
    tool.rename("a", "b")
    tool.write("b", b"2")
    tool.end()
    assert bench.told() == [("Rename", "a", "b"), ("Edit", "modify", "write", "b")]
    assert bench.content(bench.edits[0].before.raw, "before") == b"1"


def test_an_older_file_moved_over_another_tells_both_names(bench: Any, aged: Aged) -> None:
    aged("a", b"1")
    aged("b", b"2")
    tool = bench.process()
    tool.rename("a", "b")
    tool.end()
    assert bench.told() == [("Edit", "modify", "rename", "b", "a"), ("Edit", "delete", "rename", "a")]
    assert bench.content(sha(b"1"), "before") == b"1"
    assert bench.content(sha(b"2"), "before") == b"2"


def test_written_on_after_the_rename(bench: Any) -> None:
    tool = bench.process()
    fd = tool.open("t", NEW)
    os.write(fd, b"1")
    tool.rename("t", "a")
    tool.seen()
    os.write(fd, b"2")
    os.close(fd)
    tool.end()
    assert bench.told() == [("Edit", "create", "rename", "a", "t"), ("Edit", "modify", "write", "a")]
    assert bench.edits[-1].after.raw == sha(b"12")


def test_a_changed_file_moved_away_is_an_edit_and_a_rename(bench: Any, aged: Aged) -> None:
    aged("a", b"1")
    tool = bench.process()
    tool.write("a", b"2")
    tool.rename("a", "b")
    tool.end()
    assert bench.told() == [("Edit", "modify", "write", "a"), ("Rename", "a", "b")]


def test_a_made_file_keeps_being_transient_after_a_rename(bench: Any) -> None:
    tool = bench.process()
    tool.write("a", b"1")
    tool.end()
    tool.rename("a", "b")
    tool.unlink("b")
    tool.end()
    assert [event.change if isinstance(event, FileEdit) else "rename" for event in bench.events] == [
        "create",
        "rename",
        "transient",
    ]


def test_a_renamed_folder_takes_its_files_along(bench: Any, aged: Aged) -> None:
    aged("d/old", b"1")
    tool = bench.process()
    tool.write("d/new", b"2")
    fd = tool.open("d/old", os.O_WRONLY)
    tool.rename("d", "e")
    tool.seen()
    os.write(fd, b"3")
    os.close(fd)
    tool.end()
    assert bench.told() == [
        ("Rename", "directory", "d", "e"),
        ("Edit", "create", "write", "e/new"),
        ("Edit", "modify", "write", "e/old"),
    ]


def _renameat2(old: bytes, new: bytes, flags: int) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    return int(libc.renameat2(-100, old, -100, new, flags))


def test_exchange(bench: Any, aged: Aged) -> None:
    aged("a", b"1")
    aged("b", b"2")
    tool = bench.process()
    one, two = bench.at("a"), bench.at("b")
    bench.tracker.renaming(tool.who, one, two, RENAME_EXCHANGE)
    assert _renameat2(one.path, two.path, RENAME_EXCHANGE) == 0
    tool.end()
    bench.tracker.finish()
    (event,) = bench.events
    assert event.exchange
    assert (event.path, event.target) == (one.path, two.path)


def test_noreplace_onto_an_existing_name_is_nothing(bench: Any, aged: Aged) -> None:
    aged("a", b"1")
    aged("b", b"2")
    tool = bench.process()
    bench.tracker.renaming(tool.who, bench.at("a"), bench.at("b"), RENAME_NOREPLACE)
    tool.end()
    bench.tracker.finish()
    assert bench.items == []


def test_rename_of_two_names_of_one_inode_does_nothing(bench: Any, aged: Aged) -> None:
    path = aged("a", b"1")
    os.link(path, path.with_name("b"))
    tool = bench.process()
    assert tool.rename("a", "b")
    tool.end()
    assert bench.items == []


# -- linking


def test_hard_links(bench: Any, aged: Aged) -> None:
    aged("a", b"1")
    tool = bench.process()
    tool.link("a", "b")
    tool.link("a", "b")
    tool.end()
    assert bench.told() == [("Link", "hard", "b", "a")]


def test_a_file_without_a_name_that_gets_one(bench: Any) -> None:
    tool = bench.process()
    fd = tool.open("", os.O_TMPFILE | os.O_WRONLY)
    assert isinstance(fd, int)
    os.write(fd, b"from nowhere")
    new = bench.at("a")
    link = b"/proc/self/fd/%d" % fd
    bench.tracker.linking_descriptor(tool.who, link, new)
    root = os.open("/", os.O_RDONLY)  # given so that Python uses linkat, with AT_SYMLINK_FOLLOW
    os.link(link, new.path, src_dir_fd=root, follow_symlinks=True)
    os.close(root)
    tool.seen()
    os.write(fd, b", and more")
    os.close(fd)
    tool.end()
    assert bench.told() == [
        ("Edit", "transient", "remove", "(unnamed)"),
        ("Edit", "create", "link", "a"),
        ("Edit", "modify", "write", "a"),
    ]
    assert bench.content(bench.edits[1].after.raw) == b"from nowhere"


def test_files_without_a_name_are_told_once_for_each_folder(bench: Any) -> None:
    tool = bench.process()
    tool.mkdir("sub")
    for folder in ("", "sub", "", "sub"):
        os.close(tool.open(folder, os.O_TMPFILE | os.O_RDWR))
    tool.end()
    assert [one for one in bench.told() if one[0] == "Edit"] == [
        ("Edit", "transient", "remove", "(unnamed)"),
        ("Edit", "transient", "remove", "sub/(unnamed)"),
    ]


def test_nodes(bench: Any) -> None:
    tool = bench.process()
    place = bench.at("pipe")
    bench.tracker.making_node(tool.who, place, stat.S_IFIFO | 0o600)
    os.mkfifo(place.path)
    tool.unlink("pipe")
    tool.end()
    assert bench.told() == [("Special", "fifo", "pipe"), ("Edit", "transient", "remove", "pipe")]


def test_fifos_are_not_opened(bench: Any) -> None:
    os.mkfifo(os.path.join(bench.folder, b"pipe"))
    tool = bench.process()
    bench.tracker.opening(tool.who, bench.at("pipe"), os.O_WRONLY, 0)
    tool.end()
    bench.tracker.finish()
    assert bench.items == []


# -- attributes


def test_modes_are_told_when_they_changed(bench: Any, aged: Aged) -> None:
    aged("a", b"").chmod(0o644)
    tool = bench.process()
    tool.chmod("a", 0o644)
    tool.chmod("a", 0o755)
    tool.end()
    (event,) = bench.events
    assert isinstance(event, FileMode)
    assert (event.change, event.before, event.after) == ("mode", 0o644, 0o755)


def test_a_mode_of_something_that_came_later_is_not_a_change(bench: Any, aged: Aged) -> None:
    aged("d/x", b"")
    one, two = bench.process("p1"), bench.process("p2")
    one.chmod("a", 0o600)
    two.rename("d", "a")
    one.end()
    two.end()
    assert bench.told() == [("Rename", "directory", "d", "a")]


def test_a_mode_changed_just_before_the_folder_moved(bench: Any, aged: Aged) -> None:
    aged("d/x", b"").chmod(0o644)
    one, two = bench.process("p1"), bench.process("p2")
    one.chmod("d/x", 0o600)
    two.rename("d", "e")
    two.end()
    one.end()
    assert bench.told() == [("Mode", "mode", "d/x"), ("Rename", "directory", "d", "e")]


def test_a_mode_changed_through_a_link_is_told_of_its_target(bench: Any, aged: Aged) -> None:
    aged("a", b"").chmod(0o644)
    os.symlink("a", os.path.join(bench.folder, b"name"))
    tool = bench.process()
    tool.chmod("name", 0o755)
    tool.end()
    assert bench.told() == [("Mode", "mode", "a")]


def test_the_mode_of_a_file_that_is_being_made_is_part_of_its_creation(bench: Any) -> None:
    tool = bench.process()
    tool.write("a", b"#!/bin/sh")
    tool.chmod("a", 0o755)
    tool.end()
    (edit,) = bench.events
    assert edit.after.mode == 0o755


@pytest.mark.skipif(os.getuid() != 0, reason="giving files away needs root")
def test_owners(bench: Any, aged: Aged) -> None:
    path = aged("a", b"")
    tool = bench.process()
    bench.tracker.changing_owner(tool.who, bench.at("a"), 1, 2)
    os.chown(path, 1, 2)
    tool.end()
    (event,) = bench.events
    assert (event.change, event.before_owner, event.after_owner) == ("owner", (0, 0), (1, 2))


def test_extended_attributes(bench: Any, aged: Aged) -> None:
    path = aged("a", b"")
    tool = bench.process()
    bench.tracker.changing_xattr(tool.who, bench.at("a"), b"user.note")
    os.setxattr(path, "user.note", b"x")
    bench.tracker.changing_xattr(tool.who, bench.at("a"), b"user.note")
    os.setxattr(path, "user.note", b"x")
    tool.end()
    (event,) = bench.events
    assert (event.change, event.xattr) == ("xattr", b"user.note")


# -- races


def test_replaced_by_somebody_unseen_between_open_and_end(bench: Any, aged: Aged) -> None:
    path = aged("a", b"old")
    tool = bench.process()
    fd = tool.open("a", os.O_WRONLY)
    other = path.with_name("x")
    other.write_bytes(b"foreign")
    other.rename(path)
    os.close(fd)
    tool.end()
    (edit,) = bench.edits
    assert edit.after.raw == sha(b"foreign")


def test_vanished_unseen(bench: Any, aged: Aged) -> None:
    path = aged("a", b"old")
    tool = bench.process()
    fd = tool.open("a", os.O_WRONLY)
    path.unlink()
    os.close(fd)
    tool.end()
    assert bench.told() == [("Edit", "delete", "unknown", "a")]


def test_two_threads_remove_the_same_file(bench: Any, aged: Aged) -> None:
    aged("a", b"1")
    one, two = bench.process("p1"), bench.process("p2")
    bench.tracker.unlinking(one.who, bench.at("a"))
    bench.tracker.unlinking(two.who, bench.at("a"))
    os.unlink(bench.at("a").path)
    one.end()
    two.end()
    assert len(bench.events) == 1


def test_a_failed_removal_is_not_blamed_for_a_later_one(bench: Any, aged: Aged) -> None:
    aged("a", b"1")
    one, two = bench.process("p1"), bench.process("p2")
    bench.tracker.unlinking(one.who, bench.at("a"))  # fails, say for lack of permission; the thread is not seen again
    two.unlink("a")
    two.seen()
    one.seen()
    assert [event.span for event in bench.events] == ["p2"]


def test_removed_by_one_and_made_by_another(bench: Any, aged: Aged) -> None:
    aged("a", b"1")
    one, two = bench.process("p1"), bench.process("p2")
    one.unlink("a")
    two.write("a", b"2")
    two.end()
    one.end()
    assert [(edit.change, edit.span) for edit in bench.edits] == [("delete", "p1"), ("create", "p2")]


def test_a_writer_ends_before_the_thread_that_moved_its_file_is_seen_again(bench: Any, aged: Aged) -> None:
    aged("a", b"old")
    writer, mover = bench.process("p1"), bench.process("p2")
    writer.write("t", b"new")
    mover.rename("t", "a")
    writer.end()
    mover.end()
    assert bench.told() == [("Edit", "modify", "rename", "a", "t")]


def test_a_writer_ends_before_the_thread_that_removed_its_file_is_seen_again(bench: Any, aged: Aged) -> None:
    aged("a", b"old")
    writer, remover = bench.process("p1"), bench.process("p2")
    writer.write("a", b"new")
    remover.unlink("a")
    writer.end()
    remover.end()
    assert [(edit.change, edit.via, edit.span) for edit in bench.edits] == [
        ("modify", "write", "p1"),
        ("delete", "remove", "p2"),
    ]


def test_a_file_is_opened_below_a_folder_that_was_just_moved(bench: Any, aged: Aged) -> None:
    aged("d/x", b"old")
    one, two = bench.process("p1"), bench.process("p2")
    one.write("d/x", b"1")
    two.rename("d", "e")
    one.write("e/x", b"2")
    one.end()
    two.end()
    assert bench.told() == [
        ("Rename", "directory", "d", "e"),
        ("Edit", "modify", "write", "e/x"),
        ("Edit", "modify", "write", "e/x"),
    ]


def test_a_folder_becomes_a_file(bench: Any) -> None:
    tool = bench.process()
    tool.mkdir("a")
    tool.rmdir("a")
    tool.write("a", b"")
    tool.end()
    assert bench.told()[-1] == ("Edit", "create", "write", "a")


def test_nothing_is_raised_into_the_tracer(bench: Any) -> None:
    def broken(path: bytes) -> FileClass:
        raise ZeroDivisionError

    bench.tracker._desk.classify = broken
    tool = bench.process()
    tool.write("a", b"")
    assert [gap.cause for gap in bench.gaps] == ["internal-error"]


# -- caps


def test_over_the_content_cap_the_hash_is_kept(bench_with: Any, aged: Aged) -> None:
    bench = bench_with(max_content_bytes=10, max_hash_bytes=100)
    aged("a", b"x" * 11)
    tool = bench.process()
    tool.write("a", b"y" * 12)
    tool.end()
    (edit,) = bench.edits
    assert (edit.before.omitted, edit.before.raw) == ("over-cap", sha(b"x" * 11))
    assert (edit.after.omitted, edit.after.raw) == ("over-cap", sha(b"y" * 12))
    assert [(gap.what, gap.cause) for gap in bench.gaps] == [("file-write", "over-cap")]


def test_over_the_hash_cap_only_the_size_is_known(bench_with: Any, aged: Aged) -> None:
    bench = bench_with(max_content_bytes=10, max_hash_bytes=20)
    aged("a", b"x" * 21)
    tool = bench.process()
    tool.write("a", b"y" * 22)
    tool.end()
    (edit,) = bench.edits
    assert (edit.before.raw, edit.before.size, edit.after.raw, edit.after.size) == (b"", 21, b"", 22)


def test_too_many_states_before_at_once(bench_with: Any, aged: Aged) -> None:
    bench = bench_with(max_pending_bytes=10, max_spool_bytes=10)
    tool = bench.process()
    for name in ("a", "b", "c"):
        aged(name, name.encode() * 10)
        tool.write(name, b"new")
    tool.end()
    before = {edit.path[-1:]: edit.before.omitted for edit in bench.edits}
    assert before == {b"a": "", b"b": "", b"c": "over-cap"}
    assert bench.content(sha(b"b" * 10)) == b"b" * 10
    assert [gap.cause for gap in bench.gaps] == ["pending-cap"]
    bench.tracker.finish()


@pytest.mark.skipif(os.getuid() == 0, reason="root reads everything")
def test_unreadable(bench: Any, aged: Aged) -> None:
    aged("a", b"old").chmod(0o200)
    tool = bench.process()
    tool.write("a", b"newer", os.O_WRONLY | os.O_TRUNC)
    tool.end()
    (edit,) = bench.edits
    assert (edit.before.omitted, edit.after.omitted) == ("unreadable", "unreadable")
    assert [gap.cause for gap in bench.gaps] == ["unreadable"]


UNREADABLE_AS_NOBODY = """
import os, sys
sys.path[:0] = eval(sys.argv[1])
from agentwrap.tracing.files import *
os.setgid(65534); os.setuid(65534)
items = []
tracker = FileTracker(items.append, FileSettings(), lambda: 1, lambda path: "work")
os.chdir(sys.argv[2])
path = os.fsencode(os.path.join(sys.argv[2], "a"))
fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o200); os.write(fd, b"old"); os.close(fd)
os.utime(path, (1, 1))
tracker.opening(Who(1, 1, "p1"), Place(path, path), os.O_WRONLY | os.O_TRUNC, 0)
fd = os.open(path, os.O_WRONLY | os.O_TRUNC); os.write(fd, b"newer"); os.close(fd)
tracker.process_ended(1, "p1")
print([(type(item).__name__, getattr(item, "cause", "")) for item in items])
"""


@pytest.mark.skipif(os.getuid() != 0, reason="changes to another user")
def test_unreadable_as_another_user(tmp_path: Path) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        command = [sys.executable, "-c", UNREADABLE_AS_NOBODY, repr(sys.path), folder]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    assert done.stdout.strip() == "[('Gap', 'unreadable'), ('FileEdit', '')]", done.stderr


def test_a_path_longer_than_can_be_opened(bench: Any) -> None:
    tool = bench.process()
    here = os.open(bench.folder, os.O_RDONLY)
    path = bench.folder
    name = b"n" * 250
    for _ in range(20):
        os.mkdir(name, dir_fd=here)
        deeper = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = deeper
        path += b"/" + name
    place = Place(path + b"/a", path + b"/a")
    assert len(place.path) > 4096
    bench.tracker.opening(tool.who, place, NEW, 0o644)
    fd = os.open(b"a", NEW, 0o644, dir_fd=here)
    os.write(fd, b"deep")
    os.close(fd)
    tool.end()
    bench.tracker.finish()
    (edit,) = bench.events
    assert edit.path == place.path
    assert bench.content(edit.after.raw) == b"deep"
    os.close(here)


# -- classes


def test_contents_of_caches_are_not_kept(bench_with: Any, aged: Aged) -> None:
    bench = bench_with(lambda _: "cache")
    aged("a", b"old")
    tool = bench.process()
    tool.write("a", b"new!")
    tool.end()
    (edit,) = bench.items
    assert (edit.klass, edit.before.omitted, edit.before.raw) == ("cache", "not-kept", b"")
    assert (edit.after.omitted, edit.after.raw) == ("not-kept", sha(b"new!"))


def test_kernel_interfaces_are_not_read(bench_with: Any) -> None:
    bench = bench_with(lambda _: "system")
    who = Who(1, 1, "p1")
    bench.tracker.opening(who, Place(b"/proc/self/oom_score_adj", b"/proc/self/oom_score_adj"), os.O_WRONLY, 0)
    bench.tracker.process_ended(1, "p1")
    bench.tracker.finish()
    assert bench.items == []


# -- time


def test_a_sweep_finds_that_the_writer_closed_the_file(bench: Any, aged: Aged) -> None:
    aged("a", b"old")
    tool = bench.process("p1", os.getpid())
    fd = tool.open("a", os.O_WRONLY)
    bench.tracker.sweep()
    os.write(fd, b"new")
    bench.pass_time(0.1)
    bench.tracker.sweep()
    assert bench.events == []
    os.close(fd)
    bench.pass_time(0.1)
    bench.tracker.sweep()
    assert bench.told() == [("Edit", "modify", "write", "a")]
    assert not bench.tracker.pending


def test_a_sweep_waits_for_an_open_that_has_not_happened_yet(bench: Any, aged: Aged) -> None:
    path = aged("a", b"old")
    tool = bench.process("p1", os.getpid())
    bench.tracker.opening(tool.who, bench.at("a"), os.O_WRONLY, 0)
    bench.pass_time(0.1)
    bench.tracker.sweep()
    assert bench.tracker.pending
    path.write_bytes(b"new")
    bench.pass_time(1)
    bench.tracker.sweep()
    assert bench.told() == [("Edit", "modify", "write", "a")]


@pytest.fixture
def running() -> Iterator[int]:
    """A thread that is on a processor, or waits for one, at any time."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writing, b"x")
        while True:
            pass
    try:
        os.read(reading, 1)
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(reading)
        os.close(writing)


def test_a_sweep_waits_for_an_open_whose_thread_waits_for_a_processor(bench: Any, aged: Aged, running: int) -> None:
    aged("a", b"old")
    tool = bench.process("p1", os.getpid())
    bench.tracker.opening(tool.who._replace(tid=running), bench.at("a"), os.O_WRONLY, 0)
    bench.pass_time(1)
    bench.tracker.sweep()
    fd = os.open(bench.at("a").path, os.O_WRONLY)
    bench.pass_time(1)
    bench.tracker.sweep()
    os.write(fd, b"new")
    os.close(fd)
    bench.pass_time(1)
    bench.tracker.sweep()
    assert bench.told() == [("Edit", "modify", "write", "a")]


def test_a_sweep_looks_at_a_file_whose_thread_has_run_since(bench: Any, aged: Aged, running: int) -> None:
    path = aged("a", b"old")
    tool = bench.process("p1", os.getpid())
    bench.tracker.opening(tool.who._replace(tid=running), bench.at("a"), os.O_WRONLY, 0)
    path.write_bytes(b"new")
    bench.pass_time(1)
    bench.tracker.sweep()
    assert bench.events == []
    while not bench.events:
        bench.pass_time(1)
        bench.tracker.sweep()
    assert bench.told() == [("Edit", "modify", "write", "a")]


def test_a_file_is_not_looked_at_while_its_writer_waits_for_a_processor(bench: Any, aged: Aged, running: int) -> None:
    aged("a", b"old")
    tool = bench.process("p1", os.getpid())
    bench.tracker.opening(tool.who._replace(tid=running), bench.at("a"), NEW, 0)
    fd = os.open(bench.at("a").path, NEW)
    bench.tracker.sweep()
    bench.pass_time(2)
    bench.tracker.sweep()
    assert bench.events == []
    os.write(fd, b"new")
    os.close(fd)
    bench.pass_time(2)
    bench.tracker.sweep()
    assert bench.told() == [("Edit", "modify", "write", "a")]


GOING: dict[str, tuple[tuple[str, ...], ...]] = {
    "unlink": (("Edit", "transient", "remove", "d/a"),),
    "rename": (("Edit", "create", "rename", "b", "d/a"),),
    "rename of the folder": (("Rename", "directory", "d", "e"), ("Edit", "create", "write", "e/a")),
}


def _going(bench: Any, who: Who, call: str) -> Callable[[], None]:
    """Tell of a call that takes `d/a` away; what is returned makes it."""
    if call == "unlink":
        bench.tracker.unlinking(who, bench.at("d/a"))
        return lambda: os.unlink(bench.at("d/a").path)
    names = [bench.at(name) for name in (("d/a", "b") if call == "rename" else ("d", "e"))]
    bench.tracker.renaming(who, *names, 0)
    return lambda: os.rename(*(place.path for place in names))


@pytest.mark.parametrize("call", GOING)
def test_a_sweep_between_a_call_and_its_effect_leaves_the_file_to_the_call(
    bench: Any, tmp_path: Path, call: str
) -> None:
    (tmp_path / "d").mkdir()
    tool = bench.process("p1", os.getpid())
    tool.write("d/a", b"new")
    bench.tracker.sweep()  # it is followed from here
    make = _going(bench, tool.who, call)
    bench.pass_time(0.1)
    bench.tracker.sweep()  # the name is still there
    assert bench.events == []
    make()
    tool.end()
    assert bench.told() == [*GOING[call]]
    times = [event.at_ns for event in bench.events]
    assert times == sorted(times)


@pytest.mark.parametrize("call", GOING)
def test_a_sweep_tells_of_a_file_that_a_failed_call_left_there(bench: Any, tmp_path: Path, call: str) -> None:
    (tmp_path / "d").mkdir()
    tool = bench.process("p1", os.getpid())
    tool.write("d/a", b"new")
    bench.tracker.sweep()
    _going(bench, tool.who, call)
    tool.seen()
    bench.pass_time(0.1)
    bench.tracker.sweep()
    assert bench.told() == [("Edit", "create", "write", "d/a")]


def test_a_sweep_tells_calls_of_threads_that_are_not_seen_again(bench: Any) -> None:
    tool = bench.process()
    tool.mkdir("d")
    bench.tracker.sweep()
    assert bench.told() == [("Directory", "create", "d")]
    assert not bench.tracker.pending


def test_a_call_that_failed_is_given_up(bench: Any, aged: Aged) -> None:
    path = aged("a", b"1")
    tool = bench.process()
    bench.tracker.unlinking(tool.who, bench.at("a"))
    bench.pass_time(6)
    bench.tracker.sweep()
    path.unlink()  # by somebody else, much later
    tool.end()
    assert bench.events == []


def test_a_growing_log_is_looked_at_ever_less_often(bench: Any) -> None:
    tool = bench.process("p1", os.getpid())
    fd = tool.open("log", NEW | os.O_APPEND)
    for _ in range(2000):
        os.write(fd, b"line\n" * 100)
        bench.pass_time(0.05)
        bench.tracker.sweep()
    os.close(fd)
    tool.end()
    bench.tracker.finish()
    assert 3 < len(bench.edits) < 24
    assert bench.edits[-1].after.size == 2000 * 500


def test_a_million_appends_are_a_handful_of_edits(bench: Any) -> None:
    for number in range(3000):  # each by its own open, as `echo >> log` in a loop does
        tool = bench.process(f"p{number}")
        tool.write("log", b"line\n", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        tool.end()
        if number % 50 == 0:
            bench.tracker.sweep()
    bench.tracker.finish()
    assert len(bench.edits) < 20
    assert bench.edits[-1].after.size == 3000 * 5
    for one, two in zip(bench.edits, bench.edits[1:], strict=False):
        assert two.before.raw == one.after.raw


def test_late_writes_through_a_descriptor_that_was_passed_on(bench: Any, aged: Aged) -> None:
    aged("a", b"old")
    tool = bench.process("p4")
    fd = tool.open("a", os.O_WRONLY | os.O_APPEND)
    os.write(fd, b"1")
    tool.end()
    os.write(fd, b"2")
    os.close(fd)
    bench.tracker.finish()
    assert bench.told() == [("Edit", "modify", "write", "a"), ("Edit", "modify", "unknown", "a")]
    assert bench.edits[-1].span == "p4"
    assert bench.content(bench.edits[-1].after.raw) == b"old12"


def test_inherited_descriptors(bench: Any, aged: Aged) -> None:
    path = aged("out", b"before\n")
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    root = bench.process("p1", os.getpid())
    bench.tracker.inherited(root.who, fd)
    os.write(fd, b"after\n")
    os.close(fd)
    root.end()
    (edit,) = bench.edits
    assert bench.content(edit.before.raw) == b"before\n"
    assert bench.content(edit.after.raw) == b"before\nafter\n"


def test_inherited_pipes_are_nothing(bench: Any) -> None:
    reader, writer = os.pipe()
    bench.tracker.inherited(bench.process("p1", os.getpid()).who, writer)
    os.close(reader)
    os.close(writer)
    bench.tracker.finish()
    assert bench.items == []


def test_very_many_files_of_one_process_do_not_pile_up(bench: Any) -> None:
    tool = bench.process("p1", os.getpid())
    for number in range(9000):
        tool.write(f"{number}", b"x")
        bench.clock_ns += 100_000
    assert len(bench.tracker._desk.pending) < 6000
    tool.end()
    assert len(bench.edits) == 9000


# -- reads


def test_reads_are_counted_per_process_and_path(bench: Any, aged: Aged) -> None:
    aged("a", b"")
    tool = bench.process("p2")
    for _ in range(3):
        bench.tracker.reading(tool.who, bench.at("a"))
    bench.tracker.reading(tool.who, bench.at("missing"))
    assert bench.events == []
    tool.end()
    (event,) = bench.events
    assert isinstance(event, FileRead)
    assert (event.path, event.count, event.span) == (bench.at("a").path, 3, "p2")


# -- other roots


def test_a_file_seen_through_another_root_that_is_the_same_directory(bench: Any, aged: Aged) -> None:
    aged("a", b"old")
    tool = bench.process("p1", os.getpid())
    place = Place(bench.at("a").path, b"/proc/%d/root" % os.getpid() + bench.at("a").path)
    bench.tracker.opening(tool.who, place, os.O_WRONLY | os.O_TRUNC, 0)
    Path(os.fsdecode(place.path)).write_bytes(b"new")
    tool.end()
    (edit,) = bench.edits
    assert (edit.path, edit.after.raw) == (place.path, sha(b"new"))


def test_a_file_in_another_root_is_found_after_the_thread_is_gone(bench: Any, aged: Aged) -> None:
    aged("root/tmp/a", b"old")
    folder = bench.folder + b"/root"
    inner = Place(b"/tmp/a", folder + b"/tmp/a")  # as /proc/TID/root/tmp/a would be
    place = Place(inner.path, b"/proc/self/root" + inner.host)
    tool = bench.process()
    bench.tracker.opening(tool.who, place, os.O_WRONLY, 0)
    os.rename(folder, bench.folder + b"/moved")
    Path(os.fsdecode(bench.folder), "moved/tmp/a").write_bytes(b"new")
    tool.end()
    bench.tracker.finish()
    (edit,) = bench.edits
    assert (edit.path, bench.content(edit.before.raw), bench.content(edit.after.raw)) == (b"/tmp/a", b"old", b"new")


def test_gaps_have_a_sentence_each(bench: Any) -> None:
    from agentwrap.tracing.files.report import COULD_HIDE

    for cause in COULD_HIDE:
        bench.tracker._desk.report.gap(cause, b"/x", "p1", 1)
    assert all(isinstance(gap, Gap) and gap.could_hide for gap in bench.gaps)
    assert FileState().type == "file"
