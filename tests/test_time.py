"""Long parts of a fit end with its time, leave a valid model, and say what they do."""

import threading
import time

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import sparsebayes as sb
from sparsebayes import callbacks, labels
from sparsebayes.callbacks import PULSE, Budget, Reporter
from sparsebayes.designs import CentredDesign, KernelDesign
from sparsebayes.designs.lowrank import low_rank
from sparsebayes.estimators.stacked_classifier import StackedClassifier
from sparsebayes.kernels import StationaryKernel
from sparsebayes.posterior import likelihood_slopes
from sparsebayes.solvers import AutoRVM, run
from sparsebayes.solvers.backfitting.mean_solvers import conjugate_gradients, gauss_seidel
from sparsebayes.solvers.gp.neighbour_scales import _Search
from sparsebayes.solvers.gp.neighbours import NeighbourProcess
from sparsebayes.solvers.rvm.dense_start import dense_starts, rotate
from sparsebayes.solvers.rvm.laplace_exact import find_mode
from sparsebayes.solvers.rvm.laplace_start import DenseStart
from tests.helpers import dense_log_evidence
from tests.label_helpers import moons
from tests.solvers.test_neighbour_scales import fitted, surface


class Ending(Budget):
    """A budget that is over when it has been asked more than `left` times."""

    def __init__(self, left=0):
        super().__init__()
        self.left = left

    @property
    def over(self):
        self.left -= 1
        if self.left < 0:
            self.reason = "time_limit"
        return bool(self.reason)


def ending(left=0):
    return Reporter(None, Ending(left))


def data(n=150, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 3))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(n)


def kernel_problem(n=400):
    X, y = data(n)
    design = CentredDesign(KernelDesign(X, StationaryKernel("rbf", 0.5)))
    return design, design.target(y)


# Relevance vectors.


def test_relevance_vectors_start_from_few_functions_when_the_time_is_over():
    design, t = kernel_problem()
    solver = AutoRVM(reporter=ending())
    result = run(solver, design, t, max_iter=1)
    assert result.state.candidates.approximation.rows.shape[1] <= 200
    assert len(result.state.waiting) == 1
    assert 0 < len(result.state.active) <= 150
    posterior, lam = solver.solution(result.state, design, t).posterior, result.state.lam
    sigma2 = posterior.noise_variance
    columns = design.columns(result.state.active)
    dense = dense_log_evidence(columns, t, lam / sigma2, sigma2)
    assert posterior.log_evidence - design.log_volume == pytest.approx(dense, abs=2.0)
    assert np.corrcoef(columns @ posterior.mean, t)[0, 1] > 0.9


@pytest.mark.parametrize("left", [1, 2])
def test_dense_starts_end_with_the_time(left):
    design, t = kernel_problem(150)
    factor = low_rank(design, 60, np.random.default_rng(0))
    problem = rotate(factor.candidates(), factor.coordinates(t), float(t @ t), 149.0, None, 1e-10)
    every = dense_starts(problem, [1.0, 0.1, 0.01], 50)[0]
    some = dense_starts(problem, [1.0, 0.1, 0.01], 50, ending(left - 1))[0]
    assert len(some) == left
    for (kept, lam), (expected, other) in zip(some, every, strict=False):
        np.testing.assert_array_equal(kept, expected)
        np.testing.assert_array_equal(lam, other)


def test_leading_directions_have_the_rest_of_the_target_as_residual():
    design, t = kernel_problem(150)
    factor = low_rank(design, 60, np.random.default_rng(0))
    z, tt = factor.coordinates(t), float(t @ t)
    problem = rotate(factor.candidates(), z, tt, 149.0, None, 1e-10).leading(20)
    assert np.sum(problem.z**2) + problem.residual[0] == pytest.approx(tt)
    ((kept, _),), norms = dense_starts(problem, [1.0], 100)
    assert len(kept) > 5
    U = np.linalg.svd(factor.candidates(), full_matrices=False)[0][:, :20]
    np.testing.assert_allclose(norms, np.sum((U.T @ factor.candidates()) ** 2, axis=0), rtol=1e-8)


def test_polishing_that_has_no_time_is_no_convergence():
    design, t = kernel_problem(150)
    asked = AutoRVM(reporter=Reporter())
    state = run(asked, design, t, max_iter=5).state
    short = AutoRVM(tol=1e-12, reporter=ending())
    state.budget.reporter = short.reporter
    state, _ = short.step(state, design, t)
    reason = short.done(state)
    assert reason is None or not reason.converged


def test_relevance_vectors_without_time_say_so_and_predict():
    X, y = data(600)
    with pytest.warns(ConvergenceWarning, match="time_limit"):
        model = sb.RVMRegressor("rbf", gamma=0.5, max_time=1e-6).fit(X, y)
    assert model.stop_reason_ == "time_limit"
    assert not model.converged_
    assert model.score(*data(200, seed=1)) > 0.8


def test_starts_of_labels_end_with_the_time():
    design, counts = moons(300)
    factor = low_rank(design, 40, np.random.default_rng(0))
    whole = DenseStart(factor, counts, True).survivors(0.1)
    short = DenseStart(factor, counts, True, ending()).survivors(0.1)
    assert short.steps == 0
    assert 0 < len(short.kept) <= 40
    assert np.all(np.isfinite(short.alpha))
    assert np.all(short.alpha > 0)
    assert not np.array_equal(short.kept, whole.kept) or not np.allclose(short.alpha, whole.alpha)


# Processes.


@pytest.mark.parametrize("left", [0, 1])
def test_a_mode_that_was_cut_short_has_the_variances_of_its_values(left):
    design, counts = moons(600)  # enough rows for single precision
    K, a = design.dense(), 5.0
    cut = find_mode(K, counts, a, reporter=ending(left))
    mode = find_mode(K, counts, a)
    assert cut.log_evidence < mode.log_evidence + 50.0
    assert np.max(np.abs(cut.y - mode.y)) > 1e-3
    omega = likelihood_slopes(cut.y, counts)[1]
    np.testing.assert_allclose(cut.omega, omega, rtol=1e-12)
    C = a * K + 1e6  # a flat prior on the constant
    expected = np.diag(C - C @ np.linalg.solve(C + np.diag(1 / omega), C))
    np.testing.assert_allclose(cut.variance(True), expected, rtol=2e-2, atol=1e-3)
    np.testing.assert_allclose(a * (K @ cut.v) + cut.b, cut.y, atol=1e-6)


@pytest.mark.parametrize("max_terms", [None, "auto"])
def test_a_process_of_labels_without_time_predicts(max_terms):
    X, y = data(600)
    with pytest.warns(ConvergenceWarning, match="max_time"):
        model = sb.SparseGPClassifier("rbf", gamma=0.5, max_terms=max_terms, max_time=1e-6).fit(
            X, y > 0
        )
    assert model.stop_reason_ == "time_limit"
    assert len(model.active_) <= (600 if max_terms is None else 100)
    new, latent = data(200, seed=1)
    assert model.score(new, latent > 0) > 0.9


def test_neighbours_without_time_have_no_cells(monkeypatch):
    X, y = surface(500)
    monkeypatch.setattr("sparsebayes.solvers.gp.neighbour_scales._FEW_ROWS", 60)
    short = fitted(X, y, reporter=ending(), n_loo_rows=300)
    assert short.process.cells is None
    assert len(short.loo.y) == 60
    new, latent = surface(200, seed=1, noise=0.0)
    assert np.corrcoef(short.process.predict(new)[0], latent)[0, 1] > 0.9


def test_cells_that_take_too_long_give_way_to_the_nearest_rows(monkeypatch):
    X, y = surface(500)
    reporter = Reporter()
    solve = NeighbourProcess.solve_cells

    def late(self, *args):
        reporter.budget.reason = "time_limit"
        return solve(self, *args)

    monkeypatch.setattr(_Search, "try_cells", lambda self, best: self.score(by_cells(best)))
    monkeypatch.setattr(NeighbourProcess, "solve_cells", late)
    short = fitted(X, y, reporter=reporter)
    assert reporter.budget.over
    assert short.process.cells is None
    assert short.notes == []
    assert np.all(np.isfinite(short.process.predict(X[:20])[0]))


def by_cells(best):
    return best.trial._replace(cells=True)


# Backfitting.


@pytest.mark.parametrize("solve", [conjugate_gradients, gauss_seidel])
def test_a_solve_without_time_makes_one_sweep_that_gains(solve):
    design, t = kernel_problem(100)
    lam, norms = np.full(100, 0.1), design.sqnorms()
    problem = (design, t, lam, norms, np.zeros(100), 1000, 1e-12)
    short = solve(*problem, budget=Ending())
    assert not short.finished
    assert short.sweeps == 2  # and the residual
    height = short.residual @ short.residual + lam @ short.mu**2
    assert height < t @ t
    assert solve(*problem, budget=Ending(3)).sweeps == 5


# Folds and members of mixtures.


def test_folds_of_labels_say_where_they_are_and_end_with_the_time(monkeypatch, capsys):
    monkeypatch.setattr(Budget, "is_time_to_print", lambda self: True)
    X, y = data(120)
    sb.RVMClassifier("rbf", gamma=0.5, verbose=1).fit(X, y > 0)
    printed = capsys.readouterr().out
    for fold in range(1, 6):
        assert f"[RVMClassifier] fitting without fold {fold} of 5" in printed
    fits = []

    def refit(problem):
        fits.append(problem)
        if len(fits) == 3:
            problem.reporter.budget.reason = "time_limit"
        return model._solve(problem)

    model = sb.RVMClassifier(None)
    read, classes = model._read(X, y > 0, None)
    problem = model._problem(read, len(classes))
    predicted = labels.fold_predictions(
        refit, labels.replace(problem, kernel=labels.KernelChoice())
    )
    assert len(fits) == 3
    assert 40 <= len(predicted.z) <= 56  # of two folds


def test_members_of_a_mixture_of_classifiers_say_that_they_are_fitted(monkeypatch, capsys):
    monkeypatch.setattr(Budget, "is_time_to_print", lambda self: True)
    X, y = data(100)
    StackedClassifier("rbf", gamma=0.5, verbose=1).fit(X, y > 0)
    printed = capsys.readouterr().out
    assert "fitting the member linear" in printed
    assert "fitting the member Gaussian process" in printed


# The pulse.


@pytest.fixture
def quick(monkeypatch):
    for name, seconds in {"_FIRST": 0.05, "_SILENCE": 0.1, "_LOOK": 0.02}.items():
        monkeypatch.setattr(callbacks, name, seconds)


def test_a_long_silent_part_of_a_fit_has_lines(quick, capsys):
    threads = threading.active_count()
    with PULSE.beat("Model"):
        time.sleep(0.3)
        PULSE.begin("Part", "factoring a matrix")
        with PULSE.beat("Inner"):  # one thread for all
            assert threading.active_count() == threads + 1
            time.sleep(0.3)
    assert threading.active_count() == threads
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "[Model] reading the data, 0 s"
    assert lines[-1].startswith("[Part] factoring a matrix, ")
    assert 4 <= len(lines) <= 8
    with PULSE.beat("Model"):
        for _ in range(10):
            time.sleep(0.03)
            PULSE.speak()
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("verbose", [0, 1])
@pytest.mark.parametrize("model", [sb.RVMRegressor, sb.BackfittingClassifier])
def test_fits_have_a_pulse_where_they_are_verbose(model, verbose, quick, monkeypatch, capsys):
    solve, pauses = model._solve, [0.3]

    def slow(self, problem):
        if pauses:
            time.sleep(pauses.pop())
        return solve(self, problem)

    monkeypatch.setattr(model, "_solve", slow)
    X, y = data(60)
    model(None, verbose=verbose).fit(X, y > 0 if "Classifier" in model.__name__ else y)
    assert (f"[{model.__name__}] reading the data, 0 s" in capsys.readouterr().out) == bool(verbose)


def test_a_table_has_a_pulse_from_its_first_second(quick, monkeypatch, capsys):
    def slow(*args):
        time.sleep(0.3)

    monkeypatch.setattr("sparsebayes.estimators.table._warn_of_order", slow)
    X, y = data(60)
    model = sb.table_model(model="linear", verbose=1).fit(X, y)
    assert model.verbose == 1
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "[TableModel] reading the columns"
    assert printed[1] == "[TableModel] reading the data, 0 s"


def test_a_long_factorisation_is_announced_at_once(capsys):
    reporter = Reporter(sb.RVMRegressor(verbose=1))
    reporter.say("factoring 5000 rows", 5_000)
    reporter.say("factoring 5001 rows", 5_001)
    assert capsys.readouterr().out == "[RVMRegressor] factoring 5001 rows\n"
    Reporter(sb.RVMRegressor()).say("factoring 5001 rows", 5_001)
    assert capsys.readouterr().out == ""
