import re

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.base import clone, is_classifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sparsebayes import (
    ForwardRegressor,
    NARXRegressor,
    RVMClassifier,
    RVMRegressor,
    SparseGPRegressor,
    SparseTargetTransform,
    table_model,
)
from sparsebayes.estimators.stacked import StackedRegressor
from tests.registry import CLASSIFICATION, REGRESSION, label, plain_models

X = np.random.default_rng(0).uniform(-3, 3, (60, 2))
Y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(1).standard_normal(60)


def _found(model):
    html = model._repr_html_()
    table = re.search(r'<table class="sparsebayes-summary".*?</table>', html, re.DOTALL)
    return (
        dict(re.findall(r"<th[^>]*>(.*?)</th><td[^>]*>(.*?)</td>", table.group())) if table else {}
    )


def test_a_fitted_model_shows_its_evidence_terms_and_noise_in_a_notebook():
    model = RVMRegressor("rbf", gamma=0.3)
    assert _found(model) == {}
    found = _found(model.fit(X, Y))
    assert found["active terms"] == str(len(model.active_))
    assert found["log evidence"] == f"{model.log_evidence_:.6g}"
    assert found["noise (std)"] == f"{model.noise_variance_**0.5:.4g}"
    assert found["converged"] == "True"
    assert _found(clone(model)) == {}


def test_labels_noise_by_the_input_and_relevance_are_shown():
    labels = _found(RVMClassifier("rbf", gamma=0.3).fit(X, Y > 0))
    assert "noise (std)" not in labels
    assert "log evidence" in labels
    wide = ForwardRegressor("rbf", gamma="ard", noise_variance=np.linspace(0.01, 0.02, 60)).fit(
        X, Y
    )
    found = _found(wide)
    assert found["noise (std)"] == "0.1 to 0.1414"
    assert found["most relevant"].startswith("x0 (1)")


def test_a_table_says_what_was_made_of_it_and_a_system_its_equation():
    frame = pd.DataFrame(X, columns=["<a>", "b"])
    found = _found(table_model(model="linear").fit(frame, Y))
    assert found["model"] == "linear"
    assert "2 numeric" in found["table"]
    u = X[:, 0]
    y = np.convolve(u, [0.0, 0.5])[:60]
    system = NARXRegressor(input_lags=1, output_lags=1, degree=1).fit(u, y)
    assert _found(system)["equation"].startswith("y(k) =")


def test_a_choice_of_target_reports_the_target_and_its_model():
    inner = make_pipeline(StandardScaler(), RVMRegressor("rbf", gamma=0.3))
    target = SparseTargetTransform(inner).fit(X, np.exp(Y))
    found = _found(target)
    assert found["model of"].startswith("log y" if target.target_transform_ else "y")
    assert found["active terms"] == str(len(target.regressor_[-1].active_))


def test_names_are_escaped():
    frame = pd.DataFrame(X, columns=["<script>", "b"])
    html = ForwardRegressor("rbf", gamma="ard").fit(frame, Y)._repr_html_()
    table = html[html.index('class="sparsebayes-summary"') :]
    assert "&lt;script&gt; (1)" in table
    assert "<script>" not in table


def test_scikit_learns_own_display_stays_as_it_is():
    model = make_pipeline(StandardScaler(), RVMRegressor("rbf", gamma=0.3)).fit(X, Y)
    assert "RVMRegressor" in model._repr_html_()
    with config_context(display="text"):
        assert not hasattr(model[-1], "_repr_html_")


def test_progress_bars_of_scikit_learn_follow_a_fit(capsys):
    callback = pytest.importorskip("sklearn.callback")
    model = RVMRegressor("rbf", gamma=0.3).set_callbacks(callback.ProgressBar())
    model.fit(X, Y)
    said = capsys.readouterr()
    assert "RVMRegressor" in said.out + said.err
    np.testing.assert_array_equal(model.active_, RVMRegressor("rbf", gamma=0.3).fit(X, Y).active_)


def test_a_summary_lists_columns_with_intervals_in_the_units_of_the_user():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": X[:, 0], "<b>": X[:, 1], "c": rng.standard_normal(60)})
    y = 2.0 * frame["a"] + 5.0 + 0.1 * rng.standard_normal(60)
    model = RVMRegressor(kernel=None).fit(frame, y)
    summary = model.summary(coverage=0.9)
    table = summary.to_frame().set_index("term")
    assert table.index[:2].tolist() == ["intercept", "a"]
    assert table.loc["a", "std"] == model.coef_std_[0]
    half = (table["upper"] - table["lower"]) / 2
    np.testing.assert_allclose(half, 1.6448536 * table["std"], rtol=1e-6)
    _, at_zero = model.predict(np.zeros((1, 3)), return_std="function")
    assert table.loc["intercept", "coef"] == pytest.approx(5.0, abs=0.1)
    assert table.loc["intercept", "std"] == pytest.approx(at_zero[0])
    lines = str(summary).splitlines()
    assert lines[0] == "RVMRegressor"
    shown = {line.split("  ")[1]: line.split()[-1] for line in lines[1 : lines.index("")]}
    assert shown["rows"] == "60"
    assert shown["calibration"] == f"{model.calibration_:.6g}"
    assert shown["stop reason"] == "converged"
    rows = lines[lines.index("") + 1 :]
    assert len({len(row) for row in rows}) == 1  # aligned
    assert "&lt;b&gt;" in summary._repr_html_() or "<b>" not in table.index
    with pytest.raises(ValueError, match="coverage must lie between 0 and 1, got 95"):
        model.summary(95)


def test_a_summary_of_functions_has_their_training_rows(monkeypatch):
    from sparsebayes.estimators import _summary

    model = RVMRegressor("rbf", gamma=0.3).fit(X, Y)
    table = model.summary().to_frame()[1:]
    assert set(table["term"]) == {f"row {i}" for i in model.active_}
    std = model.calibration_ * np.sqrt(np.diag(model.posterior_.covariance))
    own = dict(zip([f"row {i}" for i in model.active_], std, strict=True))
    np.testing.assert_allclose(table["std"], [own[name] for name in table["term"]])
    monkeypatch.setattr(_summary, "_MOST_LINES", 4)
    assert str(model.summary()).endswith(f"and {len(model.active_) - 3} more")


def test_a_summary_of_a_process_has_the_relevance_of_its_inputs():
    inputs = pd.DataFrame(np.column_stack([X, 0.1 * X[::-1]]), columns=["a", "b", "c", "d"])
    model = SparseGPRegressor().fit(inputs, Y)
    table = model.summary().to_frame()
    assert list(table["relevance"]) == sorted(model.feature_relevance_, reverse=True)
    assert table["input"][0] == inputs.columns[np.argmax(model.feature_relevance_)]
    assert re.search(
        rf"^{table['input'][0]} +0\.\d+$|^{table['input'][0]} +1$", str(model.summary()), re.M
    )


def test_a_summary_of_classes_and_targets_says_whose_coefficient_it_is():
    labels = np.array(["low", "mid", "high"])[np.digitize(Y, [-0.5, 0.5])]
    model = RVMClassifier("rbf", gamma=0.3).fit(X, labels)
    table = model.summary().to_frame()
    assert set(table["of"]) == {"low", "mid", "high"}
    of_low = table[(table["of"] == "low") & (table["term"] != "intercept")]
    k = list(model.classes_).index("low")
    std = np.sqrt(np.diag(model.posterior_[k].covariance))
    np.testing.assert_allclose(np.sort(of_low["std"]), np.sort(std))
    both = RVMRegressor("rbf", gamma=0.3).fit(X, np.column_stack([Y, X[:, 0]])).summary()
    assert set(both.to_frame()["of"]) == {"0", "1"}


@pytest.mark.parametrize("model", [m for m in plain_models(REGRESSION, CLASSIFICATION)], ids=label)
def test_every_estimator_has_a_summary(model):
    z = np.where(Y > 0, 2.0, 1.0) if is_classifier(model) else np.exp(Y)
    summary = clone(model).fit(np.column_stack([X, X[::-1]]), z).summary()
    table = summary.to_frame()
    assert np.isfinite(table["coef"] if summary.terms else table["relevance"]).all()
    assert len(table) > 0
    assert "stop reason" in str(summary)


def test_a_table_has_coefficients_per_unit_of_its_columns():
    frame = pd.DataFrame({"metres": 1000.0 * X[:, 0], "kind": np.where(X[:, 1] > 0, "a", "b")})
    y = 0.002 * frame["metres"] + 3.0 * (frame["kind"] == "a") + 0.1 * Y
    model = table_model(model="linear").fit(frame, y)
    table = model.summary().to_frame().set_index("term")
    assert table.loc["metres", "coef"] == pytest.approx(0.002, rel=0.05)
    assert abs(table.loc["kind=b", "coef"] + 3.0) < 0.2
    step = model.predict(frame[:1].assign(metres=1.0)) - model.predict(frame[:1].assign(metres=0.0))
    assert table.loc["metres", "coef"] == pytest.approx(step[0])
    labels = np.where(Y > 0, "up", "down")
    mixed = str(table_model().fit(pd.DataFrame(X, columns=["a", "b"]), labels).summary())
    assert re.search(r"^a +-?\d", mixed, re.MULTILINE)
    assert str(table_model(model="baseline").fit(frame, y).summary()).endswith("baseline")
    u = X[:, 0]
    system = NARXRegressor(input_lags=1, output_lags=1, degree=1)
    system.fit(u, np.convolve(u, [0.0, 0.5])[:60] + 0.01 * Y)
    terms = system.summary().to_frame().set_index("term")
    assert terms.loc["u(k-1)", "coef"] == pytest.approx(0.5, abs=0.05)


def test_the_noise_of_a_model_of_log_y_is_named_so():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (60, 1))
    y = np.exp(X[:, 0] + 0.3 * rng.standard_normal(60))
    models = [
        table_model(target_transform="log"),
        StackedRegressor(target_transform="log", noise_variance="learn"),
        SparseTargetTransform(target_transform="log"),
    ]
    for model in models:
        pairs = dict(model.fit(X, y).summary().facts)
        for name in ("noise (std)", "log evidence"):
            assert pairs[name].endswith(" (of log y)")
    plain = dict(SparseTargetTransform(target_transform=None).fit(X, y).summary().facts)
    assert "of log" not in plain["noise (std)"]
