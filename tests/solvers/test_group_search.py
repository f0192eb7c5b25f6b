from dataclasses import replace

import numpy as np
import pytest

from sparsebayes.designs import DenseDesign, WeightedDesign
from sparsebayes.linalg.blocks import column_blocks
from sparsebayes.solvers import run
from sparsebayes.solvers.group.ep import LEARNABLE, GroupEP, log_evidence
from sparsebayes.solvers.group.search import _best, search, starting_values
from tests.group_helpers import few_groups, signal


def _search(X, y, group_of, **settings):
    design = DenseDesign(X)
    start = starting_values(design, y, group_of.max() + 1)
    return search(
        GroupEP(group_of, *start, learn=LEARNABLE, smallest_noise=1e-10), design, y, **settings
    )


def test_finds_the_groups_of_few_rows_without_knowing_any_hyperparameter():
    X, y, group_of, _, active = few_groups(75, 5)
    found = _search(X, y, group_of)
    assert found.best.result.converged
    assert np.array_equal(np.flatnonzero(found.best.state.inclusion_probability > 0.5), active)
    assert found.best.start.startswith("cooled")


def test_high_noise_needs_no_cooling():
    X, y, group_of, _, _ = signal(6)
    assert [t.start for t in _search(X, y, group_of).trials] == ["plain"]
    assert [t.start for t in _search(X, y, group_of, anneal=True).trials][:2] == ["plain", "cooled"]


def test_one_run_if_asked():
    X, y, group_of, _, _ = few_groups(75, 3)
    assert len(_search(X, y, group_of, anneal=False, max_iter=30).trials) == 1


def test_a_callback_ends_the_search():
    X, y, group_of, _, _ = few_groups(75, 3)
    calls = []

    def stop(iteration, info, state):
        calls.append(iteration)
        return len(calls) >= 3

    found = _search(X, y, group_of, callback=stop)
    assert len(calls) == 3
    assert found.best.result.stop_reason == "callback"


def test_the_kept_run_goes_on_to_max_iter():
    X, y, group_of, _, _ = few_groups(60, 3)
    found = _search(X, y, group_of, max_iter=400, anneal=False)
    assert found.best.result.n_iter > 100
    assert len(found.best.result.history["change"]) == found.best.result.n_iter


def test_column_sites_hand_over_to_group_sites():
    X, y, group_of, _, _ = signal(2)
    by_column = GroupEP(group_of, 4 / 128, 1 / 3, 1.0, sites="column", tol=1e-6)
    columns = run(by_column, DenseDesign(X), y, max_iter=500).state.sites
    warm = columns.regrouped(column_blocks(group_of))
    np.testing.assert_allclose(warm.inclusion, columns.inclusion, atol=1e-12)
    by_group = GroupEP(group_of, 4 / 128, 1 / 3, 1.0)
    cold = run(by_group, DenseDesign(X), y, max_iter=500)
    hot = run(replace(by_group, warm=warm), DenseDesign(X), y, max_iter=500)
    np.testing.assert_allclose(
        hot.state.inclusion_probability, cold.state.inclusion_probability, atol=1e-3
    )


def test_the_kept_run_is_the_best_of_all_where_they_ended():
    # Far too few rows: no run settles, and the first to go on to max_iter wanders off.
    X, y, group_of, _, _ = few_groups(40, 2, d=400)
    found = _search(X, y, group_of, max_iter=250)
    assert len(found.trials) > 3
    # Far from a fixed point an evidence means little: those that came as near to one.
    rest = found.best.settled, found.best.near
    others = [x.evidence for x in found.trials if (x.settled, x.near) >= rest]
    assert found.best.near
    assert found.best.evidence > max(others) - 5.0


def test_a_finer_tol_asks_for_more_digits_and_not_for_other_runs():
    # Nothing but noise, in columns of very different sizes: slow to settle.
    rng = np.random.default_rng(9)
    X, y, group_of = rng.standard_normal((16, 40)), rng.standard_normal(16), np.arange(40) // 2
    X *= np.logspace(0.0, 6.0, 40)
    design = DenseDesign(X)
    start = starting_values(design, y, 20)
    coarse, fine = (
        search(GroupEP(group_of, *start, learn=LEARNABLE, smallest_noise=1e-10, tol=tol), design, y)
        for tol in (1e-4, 1e-6)
    )
    assert [trial.start for trial in fine.trials] == [trial.start for trial in coarse.trials]
    assert abs(fine.best.evidence - coarse.best.evidence) < 0.01


@pytest.mark.parametrize("weight", [1.0, 1000.0])
def test_a_run_that_explains_every_row_is_doubtful_whatever_the_rows_weigh(weight):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((20, 40)), rng.standard_normal(20)
    design = WeightedDesign(DenseDesign(X), np.full(20, weight))
    solver = GroupEP(np.arange(40), 0.5, 1.0, 1e-6)
    found = search(solver, design, np.sqrt(weight) * y)
    assert found.best.saturated
    assert len(found.trials) > 2


def test_a_run_whose_evidence_cannot_be_goes_last(monkeypatch):
    # Rounding errors can lift the evidence of EP above the highest likelihood.
    X, y, group_of, _, _ = few_groups(75, 5)
    found = _search(X, y, group_of)
    worst = min(found.trials, key=lambda trial: trial.evidence)
    true = log_evidence

    def lifted(state):
        return 1e9 if state is worst.state else true(state)

    monkeypatch.setattr("sparsebayes.solvers.group.search.log_evidence", lifted)
    assert worst.evidence == -np.inf
    assert _best([worst, found.best]) is found.best
    assert _best([found.best, worst]) is found.best
