import tracemalloc
from dataclasses import replace

import numpy as np

from sparsebayes.designs import DenseDesign, dense
from sparsebayes.solvers.group import screening
from sparsebayes.solvers.group.clusters import screened_groups
from sparsebayes.solvers.group.ep import LEARNABLE, GroupEP
from sparsebayes.solvers.group.screening import screen, search_columns
from sparsebayes.solvers.group.search import search, starting_values


def _two_groups(weak=1.0):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 1500))
    y = X[:, :3] @ [2.0, -1.0, 1.0] + weak * X[:, 300:303] @ [1.0, 1.0, -2.0]
    y += 0.5 * rng.standard_normal(30)
    design, group_of = DenseDesign(X), np.arange(1500) // 3
    start = starting_values(design, y, 500)
    model = GroupEP(group_of, *start, learn=LEARNABLE, smallest_noise=1e-10, focus_from=0.0)
    return model, design, y


def _on_all(model, design, y):
    return search(replace(model, focus_from=np.inf), design, y).best


def test_a_search_on_screened_columns_ends_where_the_search_on_all_does():
    model, design, y = _two_groups()
    whole, few = _on_all(model, design, y), search_columns(model, design, y)
    assert few.trials[0].start == "screened"
    assert few.best.result.converged
    assert few.best.result.n_iter < 10  # it starts where it ends
    np.testing.assert_allclose(
        few.best.state.inclusion_probability, whole.state.inclusion_probability, atol=1e-3
    )
    assert abs(few.best.evidence - whole.evidence) < 0.01


def test_a_group_that_the_screen_missed_is_found_given_the_others(monkeypatch):
    model, design, y = _two_groups(weak=0.4)
    monkeypatch.setattr(screening, "SCREENED", 1.5)
    assert 100 not in screened_groups(design, y, model.group_of, 45)
    few = screen(model, design, y)
    whole = _on_all(model, design, y).state
    assert whole.inclusion_probability[100] > 0.9
    assert 100 in few.groups
    assert len(few.groups) < 30
    found = few.runs.best.state.inclusion_probability
    np.testing.assert_allclose(found, whole.inclusion_probability[few.groups], atol=0.01)


def test_few_groups_and_odds_of_the_others_have_the_evidence_of_all():
    model, design, y = _two_groups()
    whole, few = _on_all(model, design, y), screen(model, design, y)
    assert abs(few.runs.best.evidence + few.log_evidence_outside - whole.evidence) < 0.01
    outside = np.setdiff1d(np.arange(500), few.groups)
    p = 1.0 / (1.0 + np.exp(-few.log_odds[outside]))
    np.testing.assert_allclose(p, whole.state.inclusion_probability[outside], atol=1e-3)
    # What is learnt knows of the groups left out.
    assert abs(np.log(few.p0[0]) - whole.state.sites.prior_log_odds[0]) < 0.01


def test_groups_given_their_own_priors_keep_the_evidence_of_all():
    model, design, y = _two_groups()
    p0 = np.where(np.arange(500) % 2, 0.004, 0.008)
    model = replace(model, inclusion_prior=p0, slab_variance=2.0, noise_variance=0.25, learn=())
    whole, few = _on_all(model, design, y), screen(model, design, y)
    assert abs(few.runs.best.evidence + few.log_evidence_outside - whole.evidence) < 0.01


def test_columns_read_in_pieces_are_those_read_at_once(monkeypatch):
    model, design, y = _two_groups()
    whole = screen(model, design, y)
    monkeypatch.setattr(screening, "_PIECE", 30 * 100)
    pieces = screen(model, design, y)
    assert np.array_equal(whole.groups, pieces.groups)
    outside = np.isfinite(whole.log_odds)
    np.testing.assert_allclose(pieces.log_odds[outside], whole.log_odds[outside], atol=1e-4)


def test_the_gradient_by_the_prior_knows_the_groups_outside():
    model, design, y = _two_groups()
    few = screen(model, design, y)
    sites = few.runs.best.state.sites
    _, step, gradient = sites.learnt(np.arange(len(few.groups)))
    assert abs(gradient[0]) < 0.01  # it was learnt
    assert abs(step[0]) < 0.01
    inside = sites.inclusion_gradient().sum()
    odds, both = sites.prior_log_odds, []
    for h in (-1e-4, 1e-4):
        sites.prior_log_odds = odds + h
        both.append(sites.log_evidence_out())
    assert abs((both[1] - both[0]) / 2e-4 - (gradient[0] - inside)) < 1e-6


def test_a_search_of_stored_columns_holds_those_taken_once(monkeypatch):
    rng = np.random.default_rng(0)
    n, d = 150, 4500
    X = rng.integers(0, 3, (n, d), dtype=np.int8)
    y = X[:, ::300] @ rng.standard_normal(15) + rng.standard_normal(n)
    y -= y.mean()
    design = dense.StoredDesign(X - np.int8(1))
    start = starting_values(design, y, d)
    model = GroupEP(np.arange(d), *start, learn=LEARNABLE, smallest_noise=1e-10)
    monkeypatch.setattr(screening, "_PIECE", n * 100)
    monkeypatch.setattr(dense, "_PART", n * 100)
    tracemalloc.start()
    try:
        few = screen(model, design, y)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # Once in double and once in single precision; the rest is matrices of n x n, vectors and room.
    assert peak < 5.0 * 8 * n * len(few.groups)
