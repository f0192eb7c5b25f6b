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


def test_rows_of_other_files_replace_those_of_the_same_cell(tmp_path):
    here, there = tmp_path / "here.jsonl", tmp_path / "there.jsonl"
    _write(here, "mine", [5.0, 6.0], True)
    _write(there, "mine", [4.0], True)
    _write(there, "yours", [3.0], False)
    page.merge(here, [there])
    found = {(r["method"], r["seed"]): r["scores"]["RMSE"] for r in page.read_rows(here)}
    assert found == {("mine", 0): 4.0, ("mine", 1): 6.0, ("yours", 0): 3.0}
    assert len(here.read_text().splitlines()) == 3


def test_tables_are_compared_on_the_splits_that_both_methods_have(tmp_path):
    path = tmp_path / "rows.jsonl"
    for method, nll in [("table_model", [1.0, 9.0]), ("CatBoost", [2.0])]:
        for seed, value in enumerate(nll):
            numbers = {"RMSE": value, "NLL": value, "CRPS": value, "95 % coverage": 0.95}
            numbers["CPU s"] = 1.0
            ours = method == "table_model"
            page.append(path, "tables", "set", method, numbers, ours=ours, seed=seed)
    text = page.page(page.read_rows(path))
    assert "| CatBoost | 1 of 1 | 0.500 | 0.500 (set) | 1 |" in text
    assert "| CatBoost | 1 of 1 | 1 of 1 | 0.950 | 1 of 1 |" in text


def test_a_method_with_fewer_tables_or_splits_is_named(tmp_path):
    path = tmp_path / "rows.jsonl"
    runs = [("table_model", data, seed) for data in ("one", "two") for seed in (0, 1)]
    runs += [("Other", data, seed) for data in ("one", "two") for seed in (0, 1)]
    runs += [("EBM", "one", 0)]
    for method, data, seed in runs:
        scores = {"RMSE": 1.0, "NLL": 1.0, "CRPS": 1.0, "95 % coverage": 0.95, "CPU s": 1.0}
        ours = method == "table_model"
        page.append(path, "tables", data, method, scores, ours=ours, seed=seed)
    text = " ".join(page.page(page.read_rows(path)).split())
    assert "EBM was run on 1 of 2 tables, with fewer splits on 1 of them." in text
    assert "Other was run" not in text


def test_methods_without_a_common_split_are_not_counted(tmp_path):
    path = tmp_path / "rows.jsonl"
    _write(path, "mine", [1.0], True)
    page.append(path, "accuracy", "set", "yours", {"RMSE": 2.0, "CPU s": 1.0}, ours=False, seed=7)
    table, words = page.compared(page.Section(page.read_rows(path), "accuracy"), "RMSE")
    assert words == ""
    assert table[2].endswith("| – |")


def test_dask_and_devices_are_shown_with_the_difference_of_their_models(tmp_path):
    path = tmp_path / "rows.jsonl"
    numbers = {"seconds": 2.0, "one process": 3.0, "difference": 1e-9}
    page.append(path, "dask", "many rows", "two workers", numbers)
    numbers = {"seconds": 0.5, "NumPy": 20.0, "difference": 1e-8, "std difference": 2e-7}
    page.append(path, "device", "a fit", "a GPU", numbers)
    page.append(path, "device", "a long fit", "a GPU", {"seconds": 4.0})
    text = page.page(page.read_rows(path))
    assert "| many rows | 3 | 2 | 1.50 | 1e-09 |" in text
    assert "| a fit | 0.5 | 20 | 40.0 | 1e-08 | 2e-07 |" in text
    assert "| a long fit | 4 | – | – | – | – |" in text
    assert "on one a GPU" in text
