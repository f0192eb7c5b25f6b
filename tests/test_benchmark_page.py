import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SPEC = importlib.util.spec_from_file_location("page", ROOT / "benchmarks" / "page.py")
page = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(page)


def _write(path, method, scores, ours, data="set"):
    for seed, score in enumerate(scores):
        numbers = {"RMSE": score, "CPU s": 1.0}
        page.append(path, "accuracy", data, method, numbers, ours=ours, seed=seed)


def test_sets_that_we_lose_are_kept_and_counted(tmp_path):
    path = tmp_path / "rows.jsonl"
    for data, ours, theirs in [("won", 1.0, 2.0), ("lost", 3.0, 2.0), ("even", 2.0, 2.001)]:
        _write(path, "mine", [ours, ours], True, data)
        _write(path, "yours", [theirs, theirs], False, data)
    text = page.page(page.read_rows(path))
    assert "better in 1, even in 1, worse in 1" in " ".join(text.split())
    assert "| lost | 3 ± 0 | 2 ± 0 | 1.500 ± 0.000 (2) |" in text
    assert "suite --sections accuracy" in text


def test_ratios_are_paired_by_split(tmp_path):
    path = tmp_path / "rows.jsonl"
    _write(path, "mine", [1.0, 10.0, 5.0], True)
    _write(path, "yours", [2.0, 20.0], False)
    section = page.Section(page.read_rows(path), "accuracy")
    assert section.ratio("set", "mine", "yours", "RMSE") == (0.5, 0.0, 2)


def test_the_last_row_of_a_cell_counts_and_a_line_that_is_none_is_named(tmp_path):
    path = tmp_path / "rows.jsonl"
    _write(path, "mine", [5.0], True)
    _write(path, "mine", [4.0], True)
    (row,) = page.read_rows(path)
    assert row["scores"]["RMSE"] == 4.0
    path.write_text(path.read_text() + json.dumps({"data": 1}) + "\n")
    with pytest.raises(SystemExit, match="line 3"):
        page.read_rows(path)


@pytest.mark.parametrize(
    ("small", "chosen"),
    [
        ([1.1, 0.85, 1.2, 1.0], "small"),  # as good as the best, up to one standard error
        ([1.3, 1.2, 1.4, 1.3], "large"),  # worse in each part
    ],
)
def test_the_simplest_setting_within_a_standard_error_of_the_best_is_chosen(small, chosen):
    parts = {"large": (50.0, [1.0, 0.95, 1.1, 0.97]), "small": (10.0, small)}
    rows = []
    for method, (candidates, errors) in parts.items():
        scores = {f"held-back error {i}, V": error for i, error in enumerate(errors)}
        scores |= {"candidates": candidates, "RMSE, V, window 5": 1.0}
        rows.append({"method": method, "scores": scores})
    assert page.chosen_setting(rows)["method"] == chosen


def test_errors_of_the_test_record_do_not_choose_a_setting():
    held = {"held-back error 0, V": 1.0, "candidates": 3.0}
    better = {"held-back error 0, V": 2.0, "candidates": 3.0, "RMSE, V, window 5": 0.0}
    rows = [{"method": "a", "scores": held}, {"method": "b", "scores": better}]
    assert page.chosen_setting(rows)["method"] == "a"


def test_the_page_is_that_of_its_rows():
    """If not: python3 dev.py bench-page."""
    assert page.PAGE.read_text("utf-8") == page.page(page.read_rows(page.ROWS))
