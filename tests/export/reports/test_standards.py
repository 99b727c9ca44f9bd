"""OSCAL and SARIF against the standards' own rules, as others have made them into programs."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from mcp_story import MERGE, Story

from agentwrap.evidence.report.reviewed import Review
from agentwrap.export.reports import oscal, sarif

# It warns while it is imported, and unpacks its tables where it is run: so it runs by itself.
VALIDATE = """
import sys
from oscal import AssessmentResults
for path in sys.argv[1:]:
    document = AssessmentResults.loads(open(path, encoding="utf-8").read())
    print("valid" if document.is_valid and document.validate() else "invalid")
"""


def hostile_run(folder: Path) -> Review:
    """Every outcome, with exceptions about texts that mean something to Markdown and to links."""
    story = Story()
    story.fine()
    story.denied()
    story.approved()
    story.answer(story.begin("merge", MERGE))
    story.ask("r2", approver=b"alice")
    story.tool()
    story.tool(b"[x](1)`|<b>\xe2\x80\xae", "other")
    story.tool(b"[x](1)`|<b>\xe2\x80\xae", "another", change="changed")
    story.tool(b"unkept", kept=False)
    return story.review(folder)


@pytest.mark.skipif(find_spec("oscal") is None, reason="the package oscal is not installed")
def test_oscal_is_valid_by_the_rules_of_its_metaschema(tmp_path: Path) -> None:
    review = hostile_run(tmp_path)
    good = tmp_path / "good.json"
    good.write_bytes(b"".join(oscal.render(review)))
    document = oscal.document(review)
    del document["assessment-results"]["import-ap"]
    bad = tmp_path / "bad.json"
    bad.write_text(json.dumps(document))
    done = subprocess.run(
        [sys.executable, "-c", VALIDATE, good, bad], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.stdout.split() == ["valid", "invalid"], done.stderr


@pytest.mark.skipif(find_spec("pydantic_sarif") is None, reason="the package pydantic-sarif is not installed")
def test_sarif_is_valid_by_its_schema(tmp_path: Path) -> None:
    from pydantic_sarif.model import StaticAnalysisResultsFormatSarifVersion210JsonSchema as Log

    review = hostile_run(tmp_path)
    document = sarif.document(review)
    told = Log.model_validate(document)
    (run,) = told.runs
    assert {one.kind.value for one in run.results} == {"pass", "fail", "notApplicable", "open"}
    # Of what is no failure, `level` has to be `none` (3.27.10).
    assert {(one.kind.value == "fail", one.level.value) for one in run.results} == {(True, "error"), (False, "none")}
    document["runs"][0]["results"][0]["kind"] = "perhaps"
    with pytest.raises(ValueError, match="kind"):
        Log.model_validate(document)
