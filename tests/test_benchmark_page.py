import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SPEC = importlib.util.spec_from_file_location("page", ROOT / "benchmarks" / "page.py")
page = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(page)


def _write(path, method, score, ours, data="set"):
    scores = {"RMSE": score, "cover": float("nan")}
    package = "sparsebayes" if ours else "scikit-learn"
    page.record(
        path, "test", data, method, scores, ours=ours, package=package, repeats=2, command="run"
    )


def test_rows_that_we_lose_are_kept_and_said(tmp_path):
    path = tmp_path / "rows.jsonl"
    for data, ours, theirs in [("won", 1.0, 2.0), ("lost", 3.0, 2.0), ("even", 2.0, 2.001)]:
        _write(path, "mine", ours, True, data)
        _write(path, "yours", theirs, False, data)
    text = page.page(page.read_rows(path))
    assert "better in 1, even in 1, worse in 1" in text
    assert "| test | lost | 2 | worse | 1.500 |" in text
    lost = text.split("### test: lost")[1].split("###")[0]
    assert lost.index("| yours | 2 | – | scikit-learn") < lost.index("| **mine** | 3 | – |")
    assert "run" in text.split("How to run them again")[1]


def test_the_last_row_of_a_method_counts_and_a_line_that_is_none_is_named(tmp_path):
    path = tmp_path / "rows.jsonl"
    _write(path, "mine", 5.0, True)
    _write(path, "mine", 4.0, True)
    (row,) = page.read_rows(path)
    assert row["scores"] == {"RMSE": 4.0, "cover": None}
    assert page.verdict([row])[0] == "no rival measured"
    path.write_text(path.read_text() + json.dumps({"data": 1}) + "\n")
    with pytest.raises(SystemExit, match="line 3"):
        page.read_rows(path)


def test_the_page_is_that_of_its_rows():
    """If not: python benchmarks/page.py."""
    assert page.PAGE.read_text("utf-8") == page.page(page.read_rows(page.ROWS))
