"""What the partitioned RVM must do on one machine; clusters and faults live beside it."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_friedman1
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.utils.estimator_checks import parametrize_with_checks

from sparsebayes import PartitionedRVMRegressor, RVMRegressor
from sparsebayes.partition import SCHEDULES
from sparsebayes.rows import ArrayRows
from tests.helpers import AfterTask, dense_log_evidence, intercept_log_evidence


def _sinc(n=300, noise=0.1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-10, 10, (n, 1))
    return X, np.sinc(X[:, 0] / np.pi) + noise * rng.standard_normal(n)


def _model(schedule="working-set", size=40, **parameters):
    return PartitionedRVMRegressor(
        schedule=schedule,
        partition_size=size,
        **{"kernel": "rbf", "gamma": 0.1, **parameters},
    )


@parametrize_with_checks(
    [
        PartitionedRVMRegressor("rbf", gamma="scale"),
        PartitionedRVMRegressor(
            "rbf", gamma="scale", schedule="split-merge", partition_size=7, fit_intercept=False
        ),
        PartitionedRVMRegressor(
            "rbf", gamma="scale", schedule="incremental", partition_size=7, algorithm="fast"
        ),
        PartitionedRVMRegressor("linear", partition_size=7, n_jobs=2),
    ]
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.parametrize("algorithm", ["em", "fast"])
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("intercept", [True, False])
def test_one_partition_equals_unpartitioned(algorithm, schedule, intercept):
    X, y = make_friedman1(80, noise=1.0, random_state=0)
    whole = RVMRegressor("rbf", gamma="scale", algorithm=algorithm, fit_intercept=intercept).fit(
        X, y
    )
    ours = PartitionedRVMRegressor(
        "rbf",
        gamma="scale",
        schedule=schedule,
        partition_size=80,
        algorithm=algorithm,
        fit_intercept=intercept,
    ).fit(X, y)
    np.testing.assert_array_equal(ours.active_, np.sort(whole.active_))
    assert ours.log_evidence_ == pytest.approx(whole.log_evidence_, abs=1e-7)
    assert ours.noise_variance_ == pytest.approx(whole.noise_variance_, rel=1e-7)
    for a, b in zip(
        ours.predict(X, return_std=True), whole.predict(X, return_std=True), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_threads_equal_serial_to_the_bit(schedule, monkeypatch):
    monkeypatch.setattr(ArrayRows.__init__, "__defaults__", (64,))
    X, y = _sinc()
    serial, threads = (_model(schedule, n_jobs=jobs).fit(X, y) for jobs in (None, 2))
    np.testing.assert_array_equal(serial.active_, threads.active_)
    np.testing.assert_array_equal(serial.coef_, threads.coef_)
    assert serial.log_evidence_ == threads.log_evidence_


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_rmse_is_within_a_tenth_of_the_basic_rvm(schedule):
    X, y = _sinc(400, noise=0.05)
    new = np.linspace(-10, 10, 500)[:, None]
    truth = np.sinc(new[:, 0] / np.pi)
    basic = RVMRegressor("rbf", gamma=0.1, algorithm="em").fit(X, y)
    ours = _model(schedule).fit(X, y)
    errors = [np.sqrt(np.mean((m.predict(new) - truth) ** 2)) for m in (basic, ours)]
    # The error is a tenth of the noise: only the noisy error can be a tenth apart.
    noisy = np.sqrt(0.05**2 + np.square(errors))
    assert noisy[1] < 1.1 * noisy[0]
    assert errors[1] < 1.5 * errors[0]
    assert len(ours.active_) < 2 * len(basic.active_) + 5


@pytest.mark.parametrize("intercept", [True, False])
def test_attributes_satisfy_the_dense_formulas(intercept):
    X, y = _sinc(200)
    y = 5 * y + 3
    model = _model(fit_intercept=intercept).fit(X, y)
    Phi = rbf_kernel(X, model.relevance_vectors_, 0.1)
    evidence = intercept_log_evidence if intercept else dense_log_evidence
    expected = evidence(Phi, y, model.weight_precision_, model.noise_variance_)
    assert model.log_evidence_ == pytest.approx(expected, abs=1e-4)
    np.testing.assert_array_equal(X[model.active_], model.relevance_vectors_)
    np.testing.assert_allclose(model.predict(X), Phi @ model.coef_ + model.intercept_, rtol=1e-8)


def test_history_is_in_the_units_of_the_user():
    X, y = _sinc(200)
    y = 1000 * y
    model = _model().fit(X, y)
    history = model.history_
    (n_runs,) = {len(values) for values in history.values()}
    assert n_runs >= 5  # partitions, and rounds of polishing
    kept = 4 + np.argmax(history["log_evidence"][4:])
    rmse = np.sqrt(np.mean((y - model.predict(X)) ** 2))
    assert history["rmse"][kept] == pytest.approx(rmse, rel=1e-6)
    assert history["log_evidence"][kept] == pytest.approx(model.log_evidence_, abs=1e-5)
    assert history["noise_variance"][kept] == pytest.approx(model.noise_variance_, rel=1e-6)
    assert history["n_active"][kept] == len(model.active_)
    assert np.all(np.diff(history["elapsed"]) > 0)
    assert set(history["stop_reason"][:4]) == {"few_left"}
    assert np.all(history["n_active"][:4] < 20)
    assert model.n_iter_ == history["n_iter"].sum()
    assert model.converged_
    assert model.stop_reason_ == "converged"


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_order_of_the_rows_changes_nothing(schedule):
    X, y = _sinc(200)
    order = np.random.default_rng(0).permutation(200)
    one, other = (_model(schedule).fit(X[o], y[o]) for o in (np.arange(200), order))
    np.testing.assert_array_equal(np.sort(one.active_), np.sort(order[other.active_]))
    assert one.log_evidence_ == pytest.approx(other.log_evidence_, abs=1e-6)
    again = _model(schedule, random_state=1).fit(X, y)
    assert not np.array_equal(again.history_["rmse"], one.history_["rmse"])


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_sample_weight_equals_repetition(schedule):
    X, y = _sinc(150)
    weight = np.random.default_rng(0).integers(0, 4, 150)
    weighted = _model(schedule).fit(X, y, sample_weight=weight)
    repeated = _model(schedule).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    assert weighted.partition_size_ == repeated.partition_size_
    assert weighted.log_evidence_ == pytest.approx(repeated.log_evidence_, abs=1e-5)
    np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(weighted.history_["rmse"], repeated.history_["rmse"], rtol=1e-6)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_fast_reduction_gives_the_same_model(schedule, monkeypatch):
    X, y = _sinc(500)
    exact = _model(schedule).fit(X, y)
    monkeypatch.setattr("sparsebayes.partition._reduce._CHEAP", 0.0)
    fast = _model(schedule).fit(X, y)
    np.testing.assert_array_equal(fast.active_, exact.active_)
    assert fast.log_evidence_ == pytest.approx(exact.log_evidence_, abs=1e-4)
    np.testing.assert_allclose(fast.predict(X), exact.predict(X), atol=1e-5)


def test_where_the_fast_reduction_would_lose_digits_the_run_is_made_again(monkeypatch):
    X = np.linspace(-5, 5, 200)[:, None]
    y = np.sin(X[:, 0])  # no noise: residuals are rounding error
    monkeypatch.setattr("sparsebayes.partition._reduce._CHEAP", 0.0)
    monkeypatch.setattr("sparsebayes.calibration.MOST_ROWS", 0)  # no folds
    made, reduced = [], []
    from sparsebayes.partition._reduce import Columns
    from sparsebayes.partition.regression import RunJob

    def run(self, total, before=RunJob.finish):
        made.append(self.columns.exact)
        return before(self, total)

    def finish(self, total, before=Columns.finish):
        reduced.append(self.exact)
        return before(self, total)

    monkeypatch.setattr(RunJob, "finish", run)
    monkeypatch.setattr(Columns, "finish", finish)
    model = _model(size=50, gamma=0.3, max_iter=60).fit(X, y)
    assert any(made)
    assert reduced == [*made, False, True]  # the model that is kept comes last
    assert np.max(np.abs(model.predict(X) - y)) < 1e-2


@pytest.mark.parametrize(("inputs", "size"), [(False, 40), (True, 1000)])
def test_scaling_target_and_inputs_scales_the_model(inputs, size):
    """With several partitions only the target: other inputs are cut in another order."""
    X, y = _sinc(150)
    model = PartitionedRVMRegressor("rbf", gamma="scale", partition_size=size).fit(X, y)
    for c in (1e-150, 1e150):
        Z = c * X if inputs else X
        other = clone(model).fit(Z, c * y)
        np.testing.assert_allclose(other.predict(Z), c * model.predict(X), rtol=1e-5)


@pytest.mark.parametrize("gamma", ["median", 0.3, [0.1]])
def test_other_widths_are_those_of_the_unpartitioned(gamma):
    X, y = _sinc(100)
    ours = _model(gamma=gamma, size=1000).fit(X, y)
    whole = RVMRegressor("rbf", gamma=gamma, algorithm="em").fit(X, y)
    np.testing.assert_array_equal(ours.gamma_, whole.gamma_)
    assert ours.log_evidence_ == pytest.approx(whole.log_evidence_, abs=1e-6)


@pytest.mark.parametrize(
    "settings", [{"gamma": "evidence"}, {"kernel": "matern32", "gamma": "ard"}, {"kernel": "auto"}]
)
def test_learnt_widths_are_those_of_the_unpartitioned(settings):
    X, y = make_friedman1(80, n_features=5, noise=1.0, random_state=0)
    weight = np.random.default_rng(0).integers(0, 3, 80).astype(float)
    ours = PartitionedRVMRegressor(
        partition_size=1000, **{"kernel": "rbf", "gamma": "scale", **settings}
    )
    ours.fit(X, y, sample_weight=weight)
    whole = RVMRegressor(algorithm="em", **{"kernel": "rbf", "gamma": "scale", **settings}).fit(
        X, y, sample_weight=weight
    )
    assert ours.kernel_ == whole.kernel_
    np.testing.assert_allclose(ours.gamma_, whole.gamma_, rtol=1e-12)
    np.testing.assert_allclose(ours.predict(X), whole.predict(X), rtol=1e-5)
    np.testing.assert_allclose(ours.feature_relevance_, whole.feature_relevance_, atol=1e-4)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_where_many_functions_are_needed_the_error_is_that_of_the_basic_rvm(schedule):
    """Friedman's function needs more than P/2 vectors."""
    X, y = make_friedman1(600, noise=1.0, random_state=0)
    new, truth = make_friedman1(1000, noise=0.0, random_state=1)
    whole = RVMRegressor("rbf", gamma=1 / 1.44, algorithm="em").fit(X, y)
    model = PartitionedRVMRegressor("rbf", schedule=schedule, gamma=1 / 1.44)
    paper = clone(model).set_params(stopping="paper").fit(X, y)
    model.fit(X, y)
    basic, ours, theirs = (
        np.sqrt(np.mean((m.predict(new) - truth) ** 2)) for m in (whole, model, paper)
    )
    assert ours < 1.05 * basic
    assert ours < theirs
    assert model.log_evidence_ > paper.log_evidence_
    assert model.converged_
    # P follows: the set of the last round is the model and twice as many functions.
    history = model.history_
    assert history["n_candidates"][-1] == 3 * history["n_active"][-2]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_paper_rule_fixes_the_partition_and_ends_with_its_last_run(schedule):
    X, y = make_friedman1(300, noise=0.1, random_state=0)
    model = PartitionedRVMRegressor(
        "rbf", schedule=schedule, partition_size=40, gamma=0.5, stopping="paper"
    )
    history = model.fit(X, y).history_
    assert len(history["rmse"]) == (15 if schedule == "split-merge" else 8)
    if schedule != "split-merge":
        fresh = history["n_candidates"][1:] - history["n_active"][:-1]
        np.testing.assert_array_equal(fresh, [40] * 6 + [20])
    early = history["stop_reason"] == "few_left"
    assert np.all(history["n_active"][early] < 20)
    assert set(history["stop_reason"]) <= {"few_left", "converged"}


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_left_out_functions_are_ranked_by_what_they_gain(intercept, weighted, monkeypatch):
    """Against the dense evidence, each function added alone and its precision at the best value."""
    from sparsebayes.partition import _runs

    found = []
    ranked = _runs.PartitionRuns.ranked

    def watched(self, task, outcome, *more):
        if task.by != "gain":
            return outcome
        found.append(ranked(self, task, outcome, *more).worst)
        none = np.empty(0, dtype=int)
        return outcome._replace(worst=none)  # the model that was asked is the one that is kept

    monkeypatch.setattr(_runs.PartitionRuns, "ranked", watched)
    monkeypatch.setattr(_runs, "_LEAST", 50)
    monkeypatch.setattr(_runs, "_BLOCK", 0)  # several passes
    X, y = make_friedman1(160, noise=1.0, random_state=0)
    weight = np.random.default_rng(0).integers(1, 4, 160) if weighted else np.ones(160, int)
    model = PartitionedRVMRegressor(
        "rbf", gamma=0.5, fit_intercept=intercept, noise_variance=1.0, tol=1e-6, partition_size=60
    )
    model.fit(X, y, sample_weight=weight if weighted else None)
    worst = found[0]  # of the fit; folds follow
    assert not np.any(np.isin(worst, model.active_))
    Phi = np.repeat(rbf_kernel(X, X, 0.5), weight, axis=0)
    t = np.repeat(y, weight)
    evidence = intercept_log_evidence if intercept else dense_log_evidence

    def gained(j):
        columns = np.column_stack([Phi[:, model.active_], Phi[:, j]])
        tried = np.geomspace(1e-3, 1e3, 40)
        return max(evidence(columns, t, np.append(model.weight_precision_, a), 1.0) for a in tried)

    some = worst[:6]
    gains = np.array([gained(j) for j in some])
    assert np.all(np.diff(gains) < 0.02)  # best first, up to the grid of precisions
    others = np.setdiff1d(np.arange(160), np.concatenate([model.active_, some]))[::8]
    assert gains[0] >= max(gained(j) for j in others) - 0.02


def test_noise_can_be_given():
    X, y = _sinc(100)
    model = _model(noise_variance=0.04).fit(X, y)
    assert model.noise_variance_ == pytest.approx(0.04)
    Phi = rbf_kernel(X, model.relevance_vectors_, 0.1)
    expected = intercept_log_evidence(Phi, y, model.weight_precision_, 0.04)
    assert model.log_evidence_ == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("target", ["constant", "noise"])
def test_nothing_to_explain_is_the_empty_model(target):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((100, 2))
    y = np.full(100, 7.25) if target == "constant" else rng.standard_normal(100)
    model = _model(size=30).fit(X, y)
    assert len(model.active_) <= 2
    np.testing.assert_allclose(model.predict(X), np.mean(y), atol=0.5)


def test_float32_in_float32_out():
    X, y = _sinc(100)
    model = _model().fit(X.astype(np.float32), y)
    mean, std = model.predict(X.astype(np.float32), return_std=True)
    assert mean.dtype == std.dtype == np.float32


# Anytime.


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_callback_stops_with_the_best_model_so_far(schedule):
    pytest.importorskip("sklearn.callback")
    X, y = _sinc()
    model = _model(schedule).set_callbacks(AfterTask(lambda runs: runs == 3))
    with pytest.warns(ConvergenceWarning, match=r"\(callback\) after 3 of at most \d+ runs"):
        model.fit(X, y)
    assert not model.converged_
    assert len(model.history_["rmse"]) == 3
    assert model.log_evidence_ == pytest.approx(model.history_["log_evidence"].max(), abs=1e-5)
    assert model.score(X, y) > 0.5


def test_callbacks_are_told_of_every_round_of_polishing():
    pytest.importorskip("sklearn.callback")
    X, y = make_friedman1(240, noise=1.0, random_state=0)
    counter = AfterTask(lambda runs: False)
    model = PartitionedRVMRegressor("rbf", gamma=1 / 1.44).set_callbacks(counter).fit(X, y)
    assert len(model.history_["rmse"]) > 4 + 1  # partitions and one round
    assert counter.tasks == len(model.history_["rmse"]) + 1  # and the fit itself


def test_max_time_stops_with_the_best_model_so_far():
    X, y = _sinc()
    with pytest.warns(
        ConvergenceWarning, match=r"\(time_limit\) after 1 of at most 18 runs. max_time has passed"
    ):
        model = _model(max_time=1e-6).fit(X, y)
    assert np.all(np.isfinite(model.predict(X, return_std=True)))


def test_an_interrupt_stops_with_the_best_model_so_far(monkeypatch):
    from sparsebayes.partition.regression import Columns

    X, y = _sinc()
    read, calls = Columns.read, []

    def interrupted(self, index, chunk):
        calls.append(index)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return read(self, index, chunk)

    monkeypatch.setattr(Columns, "read", interrupted)
    with pytest.warns(ConvergenceWarning, match=r"\(interrupted\) after 3 of at most 18 runs"):
        model = _model().fit(X, y)
    assert model.stop_reason_ == "interrupted"
    assert model.score(X, y) > 0.5


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_stopped_and_resumed_is_the_same_model(schedule, tmp_path):
    pytest.importorskip("sklearn.callback")
    X, y = _sinc()
    whole = _model(schedule).fit(X, y)
    model = _model(schedule, checkpoint_dir=tmp_path)
    with pytest.warns(ConvergenceWarning):
        clone(model).set_callbacks(AfterTask(lambda runs: runs == 4)).fit(X, y)
    assert len(list(tmp_path.glob("run-*.npz"))) == 4
    counter = AfterTask(lambda runs: False)
    resumed = model.set_callbacks(counter).fit(X, y)
    assert counter.tasks == len(whole.history_["rmse"]) - 4 + 1  # and the fit itself
    np.testing.assert_array_equal(resumed.coef_, whole.coef_)
    assert resumed.log_evidence_ == whole.log_evidence_
    assert np.all(np.diff(resumed.history_["elapsed"]) > 0)
    np.testing.assert_array_equal(
        np.sort(resumed.history_["rmse"]), np.sort(whole.history_["rmse"])
    )


@pytest.mark.parametrize(
    "change", [{"tol": 1e-2}, {"gamma": 0.2}, {"random_state": 1}, {"schedule": "incremental"}]
)
def test_checkpoints_of_another_fit_are_refused(change, tmp_path):
    X, y = _sinc(100)
    _model(checkpoint_dir=tmp_path).fit(X, y)
    with pytest.raises(ValueError, match="belong to another fit"):
        _model(**{"checkpoint_dir": tmp_path, **change}).fit(X, y)
    with pytest.raises(ValueError, match="belong to another fit"):
        _model(checkpoint_dir=tmp_path).fit(X, y + 1e-9)
    _model(checkpoint_dir=tmp_path, n_jobs=2, verbose=0).fit(X, y)  # where it runs does not matter


def test_a_damaged_checkpoint_is_refused(tmp_path):
    X, y = _sinc(100)
    _model(checkpoint_dir=tmp_path).fit(X, y)
    (tmp_path / "run-1.npz").write_bytes(b"half a fi")
    with pytest.raises(ValueError, match=r"run-1.npz' is damaged"):
        _model(checkpoint_dir=tmp_path).fit(X, y)


# Manners.


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"schedule": "random"}, "The 'schedule' parameter of .* must be"),
        ({"partition_size": 0}, "The 'partition_size' parameter of .* must be"),
        ({"partition_size": "big"}, "The 'partition_size' parameter of .* must be"),
        ({"kernel": None}, "centred on rows, which kernel=None does not have"),
        ({"kernel": "precomputed"}, "which kernel='precomputed' does not have"),
        ({"algorithm": "slow"}, "The 'algorithm' parameter of .* must be"),
        ({"max_time": -1}, "The 'max_time' parameter of .* must be"),
        ({"checkpoint_dir": "x", "random_state": None}, "requires an integer random_state"),
        ({"gamma": "wide"}, "gamma='wide' is not valid"),
        ({"noise_variance": 0.0}, "The 'noise_variance' parameter of .* must be"),
        ({"n_jobs": 2, "client": "tcp://nowhere"}, "either client or n_jobs"),
    ],
)
def test_wrong_parameters_are_a_sentence(parameters, message):
    X, y = _sinc(20)
    with pytest.raises(ValueError, match=message):
        PartitionedRVMRegressor(**{"kernel": "rbf", "gamma": "scale", **parameters}).fit(X, y)


def test_all_weights_zero_is_a_sentence():
    X, y = _sinc(20)
    with pytest.raises(ValueError, match="zero"):
        _model().fit(X, y, sample_weight=np.zeros(20))


def test_a_pickle_is_small_and_predicts():
    X, y = _sinc(1000)
    model = _model().fit(X, y)
    content = pickle.dumps(model)
    assert len(content) < 20_000  # relevance vectors and their posterior, not the data
    np.testing.assert_array_equal(pickle.loads(content).predict(X), model.predict(X))


def test_verbose_prints_the_runs(capsys):
    X, y = _sinc(100)
    model = _model(verbose=2).fit(X, 1000 * y)
    printed = capsys.readouterr().out
    assert "[PartitionedRVMRegressor] step 1: rmse" in printed
    assert f"log evidence {model.history_['log_evidence'][0]:.6g}" in printed.splitlines()[0]
