import numpy as np
import pytest

from papers import hernandezlobato2013 as paper
from papers import load_paper
from papers.data import list_datasets
from papers.frame import Store, outcome, run_cells
from sparsebayes.datasets import make_grouped_signal


def test_every_printed_row_is_one_that_is_run():
    chosen, printed = load_paper("group")
    for table in chosen.tables:
        rows = {cell.row for cell in table.cells(False)}
        missing = {row for number, row, _ in printed if number == table.number} - rows
        assert not missing or all("lasso, " in row for row in missing)  # celer may be absent


def test_permuted_labels_keep_the_sizes_of_the_groups_and_change_only_the_share():
    groups = np.arange(512) % 128
    for share in (0.0, 0.1, 1.0):
        mixed = paper.permute(groups, share, np.random.default_rng(0))
        assert np.array_equal(np.bincount(mixed), np.bincount(groups))
        changed = np.sum(mixed != groups)
        assert 0.9 * share * 512 - 4 <= changed <= share * 512


def test_groups_help_ep_and_wrong_groups_do_not():
    grouped = [paper.signal("EP", seed)["error"] for seed in range(4)]
    alone = [paper.signal("EP, no groups", seed)["error"] for seed in range(4)]
    wrong = [paper.signal_with_wrong_groups("EP", 100, seed)["error"] for seed in range(4)]
    assert np.mean(grouped) < 0.6 * np.mean(alone)
    assert np.mean(grouped) < 0.6 * np.mean(wrong)


def test_no_permutation_and_no_knowledge_are_the_plain_signal():
    plain = paper.signal("EP", 5)["error"]
    assert paper.signal_with_wrong_groups("EP", 0, 5)["error"] == plain
    assert paper.signal_with_knowledge(None, 64, 5)["error"] == plain


def test_naming_the_true_groups_helps_when_rows_are_few():
    blind = [paper.signal_with_knowledge(None, 40, seed)["error"] for seed in range(4)]
    told = [paper.signal_with_knowledge(4, 40, seed)["error"] for seed in range(4)]
    assert np.mean(told) < np.mean(blind)


@pytest.mark.slow
def test_a_designed_curve_starts_from_the_same_rows_as_a_random_one():
    curves = [paper.designed("group ARD", rule, 1)["curve"] for rule in ("eigenvector", "random")]
    assert [len(curve) for curve in curves] == [33, 33]
    assert len({curve[0] for curve in curves}) == 1
    assert curves[0][-1] != curves[1][-1]


def test_the_group_lasso_path_starts_empty_and_meets_its_optimality_condition():
    pytest.importorskip("celer")
    X, y, _, groups = make_grouped_signal(random_state=0)
    path = list(paper.group_lasso_path(X, y, groups))
    assert not np.any(path[0])
    norms = [np.linalg.norm(X[:, groups == g].T @ y) for g in range(128)]
    penalty = paper.PENALTIES[10] * max(norms)
    slopes = [np.linalg.norm(X[:, groups == g].T @ (y - X @ path[10])) for g in range(128)]
    on = [np.any(path[10][groups == g]) for g in range(128)]
    np.testing.assert_allclose(np.array(slopes)[on], penalty, rtol=0.01)
    assert max(slopes) < 1.01 * penalty


def test_the_group_lasso_is_left_out_without_celer(monkeypatch):
    monkeypatch.setattr(paper, "find_spec", lambda name: None)
    chosen, _ = load_paper("group")
    rows = {cell.row + cell.column for table in chosen.tables for cell in table.cells(False)}
    assert not any("lasso, " in row for row in rows)
    assert "Bayesian group lasso" in rows


def test_quick_labels_are_run_and_drawn(tmp_path):
    chosen, printed = load_paper("group")
    table = chosen.choose("labels")[0]
    cells = [cell for cell in table.cells(True) if cell.column == "EP"]
    store = Store(tmp_path, "group", True)
    assert not any(run_cells([(store, cells)]).values())
    found = outcome(table, cells, store, printed)
    assert [line.n for line in found.lines] == [1] * 7
    assert len(table.figure(found.results).axes[0].lines) == 1


def test_a_digit_is_seen_better_with_groups_from_other_images():
    if not any(entry.name == "mnist" and entry.path for entry in list_datasets()):
        pytest.skip("The file of MNIST digits is not here.")
    assert paper.digit("EP", 0)["error"] < 0.5 * paper.digit("EP, no groups", 0)["error"]
