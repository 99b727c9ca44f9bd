"""The table as the recorder loads it says what the whole package says, and leaves nothing behind."""

import subprocess
import sys
from pathlib import Path

import pytest

from agentwrap.models import prices

needs_table = pytest.mark.skipif(prices.load() is None, reason="genai-prices is not installed")

ASKED = [
    ("anthropic", "claude-sonnet-4-5"), ("anthropic", "claude-opus-4-1"), ("openai", "gpt-4o"), ("openai", "gpt-5"),
    ("google", "gemini-2.5-pro"), ("anthropic", "no-such-model"),
]  # fmt: skip
# Tokens on both sides of where tiers begin.
SUMS = f"""
def told(package):
    for provider, model in {ASKED!r}:
        for tokens in (10, 150_000, 900_000):
            usage = package.Usage(
                input_tokens=tokens, cache_read_tokens=tokens // 3, cache_write_tokens=2, output_tokens=tokens // 7
            )
            try:
                price = package.calc_price(usage, model_ref=model, provider_id=provider).total_price
                print(provider, model, tokens, price)
            except LookupError as error:
                print(provider, model, type(error).__name__)
"""


def _said(*lines: str, path: tuple[Path, ...] = ()) -> str:
    code = "\n".join(["import sys", f"sys.path[:0] = {[str(one) for one in path]!r}", *lines])
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


@needs_table
def test_its_prices_are_those_of_the_whole_package() -> None:
    whole = _said(SUMS, "import genai_prices", "told(genai_prices)")
    assert "anthropic claude-sonnet-4-5 10 0" in whole
    load = ("from agentwrap.session import price_table", "price_table.load()")
    assert _said(SUMS, *load, "import genai_prices", "told(genai_prices)") == whole


@needs_table
def test_what_it_does_not_load_can_be_loaded_afterwards() -> None:
    loaded = "print('pydantic' in sys.modules, 'genai_prices.update_prices' in sys.modules)"
    later = ("import pydantic", "print(pydantic.BaseModel.__name__)", "import genai_prices.update_prices as updates")
    load = ("from agentwrap.session import price_table", "price_table.load()")
    said = _said(*load, loaded, *later, "print(updates.DEFAULT_UPDATE_URL[:5])")
    assert said.split() == ["False", "False", "BaseModel", "https"]


def _package(folder: Path, uses: str) -> Path:
    (folder / "genai_prices").mkdir()
    (folder / "genai_prices/__init__.py").write_text(f"from .update_prices import UpdatePrices\n{uses}\n")
    (folder / "genai_prices/update_prices.py").write_text("class UpdatePrices: real = True\n")
    (folder / "pydantic.py").write_text("class BaseModel: pass\nclass Field: real = True\n")
    return folder


@pytest.mark.parametrize(
    ("uses", "whole"),
    [("import pydantic; pydantic.Field(alias='a')", "False"), ("import pydantic; class_ = pydantic.BaseModel", "True")],
)
def test_a_version_that_relies_on_more_is_loaded_as_it_is(tmp_path: Path, uses: str, whole: str) -> None:
    said = _said(
        "from agentwrap.session import price_table",
        "price_table.load()",
        "import genai_prices",
        "print(hasattr(genai_prices.UpdatePrices, 'real'))",
        path=(_package(tmp_path, uses),),
    )
    assert said.split() == [whole]


def test_a_missing_package_is_missing(tmp_path: Path) -> None:
    (tmp_path / "genai_prices.py").write_text("raise ImportError('none here')\n")
    asked = "print(price_table.estimate('anthropic', b'claude-sonnet-4-5', Usage(10, 0, 0, 1)))"
    told = ("from agentwrap.session import price_table", "from agentwrap.models.shape import Usage", asked)
    assert _said(*told, path=(tmp_path,)).split() == ["None"]


@needs_table
def test_an_estimate_waits_for_whoever_loads() -> None:
    asked = "price_table.estimate('anthropic', b'claude-sonnet-4-5', Usage(10, 0, 0, 1))"
    said = _said(
        "import threading",
        "from agentwrap.session import price_table",
        "from agentwrap.models.shape import Usage",
        "thread = threading.Thread(target=price_table.load)",
        "thread.start()",
        f"first = {asked}",
        "thread.join()",
        f"print(first == {asked} != None, 'pydantic' in sys.modules)",
    )
    assert said.split() == ["True", "False"]
