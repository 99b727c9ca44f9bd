from pathlib import Path

from policy_texts import HEAD, refusal

from agentwrap.policy.document import load
from agentwrap.policy.keys import KEYS, PLANNED, keys_of
from agentwrap.policy.paths import Places

ROOT = Path(__file__).resolve().parents[2]


def test_every_key_is_known_once_and_told() -> None:
    assert len({key.path for key in KEYS}) == len(KEYS)
    assert all(key.meaning and (key.required or key.otherwise) for key in KEYS)
    assert set(keys_of("network")) == {"default", "allow", "deny", "unix"}
    told = (ROOT / "docs/reference/policy.md").read_text("utf-8")
    assert all(f"| `{key.name}` |" in told for key in KEYS)


def test_planned_keys_are_refused_by_name() -> None:
    for name in PLANNED:
        assert f"`{name}` has no effect in this version" in refusal(f"{HEAD}[{name}]\nx = 1\n").evidence


def test_the_example_of_the_reference_is_a_policy() -> None:
    text = (ROOT / "docs/reference/policy.md").read_text("utf-8")
    example = text.split("```toml\n")[1].split("```")[0]
    assert load(example.encode(), "x", Places("/w", "/h"), {}).name == "ci"
