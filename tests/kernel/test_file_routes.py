"""Every way to change a file, by real calls through the whole product, against what the recording tells.

The calls are in `routes.c`; all of them are made in one run for each way of following.
"""

import functools
import os
from pathlib import Path

import pytest
from rows import MODES, Rows, mode_name
from wrapping import is_root, program, wrap

OLD, NEW, OTHER = "'old\\n'", "'new\\n'", "'other\\n'"
REWRITTEN = [f"modify f {OLD} -> {NEW}"]
CREATED = [f"create n {NEW}"]

ROUTES: dict[str, list[str]] = {
    "rewrite": REWRITTEN,
    "create": CREATED,
    "creat_call": CREATED,
    "old_open": REWRITTEN,
    "append": [f"modify f {OLD} -> 'old\\nmore\\n'"],
    "vectors": REWRITTEN,
    "mapped": REWRITTEN,
    "copy_range": [f"modify f {OLD} -> {OTHER}"],
    "send_file": [f"modify f {OLD} -> {OTHER}"],
    "spliced": REWRITTEN,
    "allocated": [f"modify f {OLD} -> 'old\\n\\x00\\x00'"],
    "by_truncate": [f"modify f {OLD} -> 'ol'"],
    "by_ftruncate": [f"modify f {OLD} -> 'ol'"],
    "tmpfile_empty_path": ["transient (unnamed)", *CREATED],
    "tmpfile_by_proc": ["transient (unnamed)", *CREATED],
    "rename_over": REWRITTEN,
    "rename_over_elsewhere": ["mkdir d", *REWRITTEN],
    "renamed": ["rename f h"],
    "exchanged": ["exchange f g"],
    "noreplace": ["rename f h"],
    "noreplace_refused": [],
    "directory_renamed": ["mkdir d", "rename d e", f"create e/t {NEW}"],
    "hard_link": ["hard h f", f"modify h {OLD} -> {NEW}"],
    "symbolic": ["symbolic l f"],
    "through_symlink": ["symbolic l f", *REWRITTEN],
    "nofollow": ["symbolic l f"],
    "linked_folder": ["mkdir d", "symbolic l d", f"create d/n {NEW}"],
    "at_folder": REWRITTEN,
    "open_how": REWRITTEN,
    "proc_descriptor": REWRITTEN,
    "dev_descriptor": REWRITTEN,
    "proc_directory": REWRITTEN,
    "proc_by_link": ["symbolic l /proc/self/cwd", *REWRITTEN],
    "two_threads": REWRITTEN,
    "mode": ["mode f 644 -> 600"],
    "mode_descriptor": ["mode f 644 -> 600"],
    "mode_at": ["mode f 644 -> 600"],
    "mode_at2": ["mode f 644 -> 600"],
    "mode_at2_empty": ["mode f 644 -> 600"],
    "mode_proc": ["mode f 644 -> 600"],
    "attribute": ["xattr f user.x"],
    "attribute_removed": ["xattr f user.x", "xattr f user.x"],
    "folders": ["mkdir d", "mkdir d/e", "rmdir d/e"],
    "tree": ["mkdir a", "mkdir a/b", "transient a/b/n", "rmdir a/b", "rmdir a"],
    "fifo": ["fifo p"],
    "removed": [f"delete f {OLD}"],
    "removed_at": [f"delete f {OLD}"],
    "removed_while_open": [f"delete f {OLD}"],
    "replaced": [f"delete f {OLD}", f"create f {NEW}"],
    "same_content": [],
    "only_opened": [],
    "failures": [],
    "edges": ["mkdir d", "rmdir d"],
    "link_followed": ["symbolic l f", "hard h f"],
    "link_not_followed": ["symbolic l f", "hard h l"],
    "slashes": ["mkdir d", "rename d e", "mode e 755 -> 700", "rmdir e"],
    "mapped_and_left": REWRITTEN,
}
SHARED = {
    "append_inherited": "old\none\ntwo\nthree\n",
    "passed": "new\n",
    "after_the_openers_end": "new\n",
}
# A file may be looked at before the next call comes to it, and is told by the name it had then. As true, one row more.
LOOKED_AT_EARLIER: dict[str, list[str]] = {
    "rename_over": [f"create .f.tmp {NEW}", *REWRITTEN],
    "rename_over_elsewhere": ["mkdir d", f"create d/t {NEW}", *REWRITTEN],
    "directory_renamed": ["mkdir d", f"create d/t {NEW}", "rename d e"],
    "tree": ["mkdir a", "mkdir a/b", f"create a/b/n {NEW}", "transient a/b/n", "rmdir a/b", "rmdir a"],
}
# And while it is open, if that is long (`rows.LONG_OPEN_NS`).
LOOKED_AT_OPEN = {"directory_renamed": ["mkdir d", "create d/t ''", "rename d e", f"modify e/t '' -> {NEW}"]}
ROOT_ROUTES: dict[str, list[str]] = {
    "owner": ["owner f (0, 0) -> (12, 34)"],
    "owner_descriptor": ["owner f (0, 0) -> (12, 0)"],
    "owner_at": ["owner f (0, 0) -> (0, 34)"],
}


class Routes:
    """One run of all routes for each way of following, made when first asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._program = program(folder, "routes", (Path(__file__).parent / "routes.c").read_text())
        self.run = functools.cache(self._run)

    def _run(self, options: tuple[str, ...]) -> tuple[dict[str, str], Rows]:
        folder = self._folder / mode_name(options)
        work = folder / "work"
        names = [*ROUTES, *SHARED, *(ROOT_ROUTES if is_root() else ())]
        for name in names:
            (work / name).mkdir(parents=True)
            for file, text in (("f", "old\n"), ("g", "other\n")):
                path = work / name / file
                path.write_text(text)
                path.chmod(0o644)
                # Long before the run: a file changed this very moment cannot be told by its times.
                os.utime(path, ns=(10**18, 10**18))
        run = wrap(folder, self._program, *names, options=options)
        assert run.status == 0, run.stderr
        results = dict(line.split() for line in run.stdout.decode().splitlines() if len(line.split()) == 2)
        return results, Rows(run.recording, work)


@pytest.fixture(scope="module")
def routes(tmp_path_factory: pytest.TempPathFactory) -> Routes:
    return Routes(tmp_path_factory.mktemp("routes"))


def _told(rows: Rows, route: str) -> list[str]:
    # A path in a route's folder is told without the folder, in targets too.
    return [word.replace(f"{route}/", "") for word in rows.files(f"{route}/")]


@pytest.mark.parametrize("options", MODES, ids=mode_name)
@pytest.mark.parametrize("route", ROUTES)
def test_a_change_is_told_as_what_it_is(routes: Routes, options: tuple[str, ...], route: str) -> None:
    results, rows = routes.run(options)
    if results[route] in ("EOPNOTSUPP", "ENOSYS") or (route == "tmpfile_empty_path" and results[route] == "ENOENT"):
        pytest.skip(f"the kernel or its file system has no {route}: {results[route]}")
    assert results[route] == "ok"
    told = _told(rows, route)
    # A look that began after the call was let go, and before it happened, has a later time than the call.
    earlier = [sorted(those[route]) for those in (LOOKED_AT_EARLIER, LOOKED_AT_OPEN) if route in those]
    assert told == ROUTES[route] or sorted(told) in earlier, told


@pytest.mark.skipif(not is_root(), reason="only root gives files away")
@pytest.mark.parametrize("options", MODES, ids=mode_name)
@pytest.mark.parametrize("route", ROOT_ROUTES)
def test_a_new_owner_is_told(routes: Routes, options: tuple[str, ...], route: str) -> None:
    results, rows = routes.run(options)
    assert (results[route], _told(rows, route)) == ("ok", ROOT_ROUTES[route])


@pytest.mark.parametrize("options", MODES, ids=mode_name)
def test_nothing_of_all_this_is_a_gap(routes: Routes, options: tuple[str, ...]) -> None:
    _results, rows = routes.run(options)
    gaps = [(gap.data["cause"], gap.data.get("detail")) for gap in rows.of("gap") if gap.data["cause"] != "no-ptrace"]
    assert gaps == []


@pytest.mark.parametrize("options", MODES, ids=mode_name)
@pytest.mark.parametrize("route", SHARED)
def test_one_open_and_several_writers(routes: Routes, options: tuple[str, ...], route: str) -> None:
    """How many edits it is depends on who ends when; nothing is lost or told twice."""
    results, rows = routes.run(options)
    assert results[route] == "ok"
    states = [word.removeprefix("modify f ").split(" -> ") for word in _told(rows, route)]
    assert states[0][0] == OLD
    assert states[-1][1] == repr(SHARED[route])
    assert [state[1] for state in states[:-1]] == [state[0] for state in states[1:]]
