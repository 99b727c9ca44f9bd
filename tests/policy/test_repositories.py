"""Which `.git` a run made itself: found out from names that come, go and move."""

import pytest
from policy_texts import policy

from agentwrap.policy.decide import decide
from agentwrap.policy.questions import Write
from agentwrap.policy.repositories import OwnRepositories, repository_of


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/w/.git", "/w/.git"),
        ("/w/.git/config", "/w/.git"),
        ("/w/.git/modules/x/.git/config", "/w/.git"),
        ("/w/.github/x", ""),
        ("/w/x.git/config", ""),
        ("/w", ""),
        ("/", ""),
    ],
)
def test_the_outermost_repository_counts(path: str, found: str) -> None:
    assert repository_of(path) == found


def test_what_is_made_is_own_with_all_in_it_until_it_moves() -> None:
    own = OwnRepositories()
    own.came("/w/new/.git")
    assert "/w/new/.git" in own
    assert "/w/new/.git/hooks/x" in own
    assert "/w/.git/config" not in own
    own.moved("/w/new", away=True)
    assert "/w/new/.git" not in own
    own.came("/w/new/.git")
    assert "/w/new/.git" not in own  # a place that somebody left


def test_what_git_keeps_for_a_new_worktree_is_own() -> None:
    own = OwnRepositories()
    own.came("/w/.git/worktrees/mine")
    assert "/w/.git/worktrees/mine/commondir" in own
    assert "/w/.git/worktrees/theirs/commondir" not in own
    assert "/w/.git/config" not in own
    own.went("/w/.git/worktrees/mine")
    own.came("/w/.git/worktrees/mine")
    assert "/w/.git/worktrees/mine" in own
    own.went("/w/.git/worktrees/theirs")
    own.came("/w/.git/worktrees/theirs")
    assert "/w/.git/worktrees/theirs" not in own


def test_only_a_git_folder_is_one() -> None:
    own = OwnRepositories()
    for path in ("/w/git", "/w/.git/x/.git", "/w/.git/config"):
        own.came(path)
        assert path not in own


def test_what_was_there_and_is_removed_does_not_come_again() -> None:
    own = OwnRepositories()
    own.went("/w/.git")
    own.came("/w/.git")
    assert "/w/.git" not in own


def test_what_was_own_may_be_removed_and_made_again() -> None:
    own = OwnRepositories()
    for _ in range(2):
        own.came("/w/.git")
        assert "/w/.git" in own
        own.went("/w/.git")
        assert "/w/.git" not in own


def test_what_comes_over_it_is_not_own() -> None:
    own = OwnRepositories()
    own.came("/w/new/.git")
    own.moved("/w/new", away=False)
    assert "/w/new/.git" not in own


def test_too_many_are_none() -> None:
    own = OwnRepositories()
    for number in range(5_000):
        own.came(f"/w/{number}/.git")
    assert "/w/0/.git" in own
    assert "/w/4999/.git" not in own
    own = OwnRepositories()
    for number in range(20_000):
        own.moved(f"/t/{number}", away=True)
    assert not own.may_come("/w/last/.git")


def test_the_decision_differs_for_what_lies_in_git_alone() -> None:
    enforced = policy('[files.write]\ndefault = "allow"\n')
    for path in ("/w/.git/config", "/w/.git/hooks/x", "/w/.git/modules/s/config"):
        assert decide(enforced, Write(path)).verdict == "deny"
        assert decide(enforced, Write(path, own_repository=True)).verdict == "allow"
    assert decide(enforced, Write("/w/.git", tree=True)).verdict == "deny"
    assert decide(enforced, Write("/w/.git", tree=True, own_repository=True)).verdict == "allow"
    for path in ("/w/.git/.vscode/x", "/w/.husky/x"):
        assert decide(enforced, Write(path, own_repository=True)).verdict == "deny"
