import re

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sparsebayes import (
    ForwardRegressor,
    NARXRegressor,
    RVMClassifier,
    RVMRegressor,
    SparseTargetTransform,
    table_model,
)

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
