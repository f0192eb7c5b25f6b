import shutil
import subprocess
import sys

import numpy as np
import onnxruntime as runtime
import pandas as pd
import pytest
from sklearn.base import is_classifier
from sklearn.datasets import make_friedman1
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from benchmarks.export import SINGLE, compiled_bytes, model_of
from sparsebayes import (
    BackfittingRegressor,
    ForwardRegressor,
    GroupSpikeSlabRegressor,
    OrthogonalLeastSquaresRegressor,
    RVMClassifier,
    RVMRegressor,
    SparseGPRegressor,
    SparseTargetTransform,
    export_model,
    table_model,
)
from sparsebayes.estimators.stacked import StackedRegressor
from sparsebayes.estimators.stacked_classifier import StackedClassifier

CC = shutil.which("cc")
NEEDS_CC = pytest.mark.skipif(CC is None, reason="no C compiler here")
X, Y = make_friedman1(n_samples=90, noise=1.0, random_state=0)
X = X * np.geomspace(0.01, 100.0, X.shape[1]) + 3.0  # raw units
NEW = np.concatenate(
    [X[:20] + 0.1 * X.std(axis=0), X.mean(axis=0) + 50 * X.std(axis=0) * np.eye(10)]
)
WIDTHS = 0.3 / X.var(axis=0)


def _made():
    kernels = {
        family: ForwardRegressor(family, gamma=WIDTHS, max_terms=15)
        for family in ("rbf", "matern52", "matern32", "matern12", "rq")
    }
    steps = np.where(np.arange(10) < 5, np.sqrt(WIDTHS), 0.0)  # five inputs have no part in it
    return {
        **kernels,
        "laplacian": RVMRegressor("laplacian", gamma=steps),
        "sum": ForwardRegressor("sum", gamma=np.stack([WIDTHS, steps])),  # and what it leaves out
        "the defaults": ForwardRegressor(),
        "the process": SparseGPRegressor("rbf", gamma=0.05 * WIDTHS),
        "one width": make_pipeline(StandardScaler(), RVMRegressor("rbf", gamma="median")),
        "two scalers": make_pipeline(
            StandardScaler(with_std=False), StandardScaler(), RVMRegressor("rbf", gamma=0.1)
        ),
        "no intercept": RVMRegressor("rbf", gamma=WIDTHS, fit_intercept=False),
        "orthogonal": OrthogonalLeastSquaresRegressor("matern32", gamma=WIDTHS, max_terms=8),
        "columns": RVMRegressor(kernel=None),
        "columns, scaled": make_pipeline(StandardScaler(), BackfittingRegressor()),
        "groups": GroupSpikeSlabRegressor(np.arange(10) // 2),
        "searched": GridSearchCV(RVMRegressor("rbf"), {"gamma": [WIDTHS, 2 * WIDTHS]}, cv=2),
    }


MADE = _made()


@pytest.fixture(scope="module")
def fitted():
    found = {}

    def get(name):
        if name not in found:
            found[name] = MADE[name].fit(X, Y)
        return found[name]

    return get


def _truth(model):
    model = getattr(model, "best_estimator_", model)
    mean, std = model.predict(NEW, return_std=True)
    assert np.ptp(std) > 0
    return mean, std


def _run_c(code, rows, folder, name="model", std=True):
    (folder / "model.c").write_text(code)
    driver = """
#include <stdio.h>
#include "model.c"
int main(void) {
    double x[N], mean, std = -1.0; int i;
    for (;;) {
        for (i = 0; i < N; i++) if (scanf("%lf", x + i) != 1) return 0;
        PREDICT(x, &mean STD);
        printf("%.17g %.17g\\n", mean, std);
    }
}
"""
    words = {"N]": f"{rows.shape[1]}]", "< N": f"< {rows.shape[1]}", "PREDICT": f"{name}_predict"}
    for word, value in {**words, " STD": ", &std" if std else ""}.items():
        driver = driver.replace(word, value)
    (folder / "driver.c").write_text(driver)
    flags = ["-std=c99", "-O1", "-Wall", "-Wextra", "-Werror", "-pedantic"]
    command = [CC, *flags, "driver.c", "-o", "driver", "-lm"]
    subprocess.run(command, cwd=folder, check=True, timeout=60)
    text = "\n".join(" ".join(f"{v:.17g}" for v in row) for row in rows)
    done = subprocess.run(
        [folder / "driver"], input=text, capture_output=True, text=True, check=True, timeout=60
    )
    return np.array([line.split() for line in done.stdout.splitlines()], dtype=float).T


@pytest.mark.skipif(not (CC and shutil.which("size")), reason="no C compiler here")
def test_thirty_terms_with_std_fit_a_microcontroller():
    model = model_of(30)
    assert len(model.active_) == 30
    code = export_model(model, to="c")
    assert compiled_bytes(code) < 8192
    assert compiled_bytes(code, SINGLE) < 4096


@pytest.mark.parametrize("name", MADE)
def test_the_numpy_module_predicts_as_the_model(fitted, name, tmp_path):
    code = export_model(fitted(name), to="python")
    assert "sparsebayes" not in code.split('"""', 2)[2]
    names: dict = {}
    exec(code, names)
    mean, std = names["predict"](NEW, return_std=True)
    np.testing.assert_allclose(mean, _truth(fitted(name))[0], rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(std, _truth(fitted(name))[1], rtol=1e-7)
    np.testing.assert_array_equal(names["predict"](NEW), mean)


@pytest.mark.skipif(CC is None, reason="no C compiler here")
@pytest.mark.parametrize("name", MADE)
def test_the_c_file_compiles_alone_and_predicts_as_the_model(fitted, name, tmp_path):
    mean, std = _run_c(export_model(fitted(name), to="c", name="my"), NEW, tmp_path, "my")
    np.testing.assert_allclose(mean, _truth(fitted(name))[0], rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(std, _truth(fitted(name))[1], rtol=1e-7)


@pytest.mark.parametrize("name", MADE)
def test_onnxruntime_predicts_as_the_model(fitted, name):
    session = runtime.InferenceSession(export_model(fitted(name), to="onnx"))
    mean, std = session.run(None, {"X": NEW})
    np.testing.assert_allclose(mean, _truth(fitted(name))[0], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(std, _truth(fitted(name))[1], rtol=1e-6)


def test_the_mean_alone_is_smaller_and_says_so(fitted, tmp_path):
    both, alone = (export_model(fitted("rbf"), return_std=r) for r in (True, False))
    assert len(alone) < len(both)
    assert "triangle" not in alone
    names: dict = {}
    exec(export_model(fitted("rbf"), to="python", return_std=False), names)
    np.testing.assert_allclose(names["predict"](NEW), fitted("rbf").predict(NEW))
    with pytest.raises(ValueError, match="without its standard deviation"):
        names["predict"](NEW, return_std=True)
    if CC:
        mean, std = _run_c(alone, NEW, tmp_path, std=False)
        np.testing.assert_allclose(mean, fitted("rbf").predict(NEW))
        assert np.all(std == -1.0)


def test_a_model_without_functions_is_its_constant(tmp_path):
    model = RVMRegressor("rbf", gamma=WIDTHS).fit(X, np.random.default_rng(3).standard_normal(90))
    model = (
        ForwardRegressor("rbf", gamma=WIDTHS).fit(X, Y).truncate(0) if len(model.active_) else model
    )
    mean, std = model.predict(NEW, return_std=True)
    names: dict = {}
    exec(export_model(model, to="python"), names)
    np.testing.assert_allclose(names["predict"](NEW, return_std=True), (mean, std))
    if CC:
        np.testing.assert_allclose(_run_c(export_model(model), NEW, tmp_path), (mean, std))


@pytest.mark.parametrize("return_std", [True, False])
def test_onnxruntime_gives_the_constant_of_a_model_without_functions(return_std):
    rng = np.random.default_rng(0)
    rows, y = rng.standard_normal((50, 2)), 1000.0 + 100.0 * rng.standard_normal(50)
    columns = BackfittingRegressor().fit(rows, y)
    functions = ForwardRegressor("rbf", gamma=WIDTHS).fit(X, Y).truncate(0)
    for model, new in ((columns, rows), (functions, NEW)):
        assert len(model.active_) == 0
        session = runtime.InferenceSession(export_model(model, "onnx", return_std=return_std))
        expected = model.predict(new, return_std=True)[: 1 + return_std]
        np.testing.assert_allclose(session.run(None, {"X": new}), expected, rtol=1e-12)


def test_a_table_is_exported_by_the_numbers_it_is_made_into():
    frame = pd.DataFrame(X[:, :3], columns=["a", "b", "c"]).assign(
        kind=["one", "two", "three"] * 30
    )
    model = table_model(model="rvm").fit(frame, Y)
    code = export_model(model, to="python")
    assert "x[3]: kind=one" in code
    names: dict = {}
    exec(code, names)
    found = names["predict"](model.transform(frame), return_std=True)
    np.testing.assert_allclose(found, model.predict(frame, return_std=True), rtol=1e-7)


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (RVMClassifier("rbf", gamma=WIDTHS), "predicts classes"),
        (RVMRegressor("poly", gamma=0.1), "kernel='poly' cannot be exported"),
        (
            SparseGPRegressor("rbf", gamma=WIDTHS, neighbours=4),
            "neighbours needs its training rows",
        ),
        (RVMRegressor("rbf", gamma=WIDTHS, heal=True), "Healing adds .* return_std=False"),
        (make_pipeline(MinMaxScaler(), RVMRegressor("rbf")), "contains a MinMaxScaler"),
        (
            SparseTargetTransform(RVMRegressor("rbf", gamma=WIDTHS), target_transform="log"),
            "predicts the logarithm of the target. Fit with target_transform=None",
        ),
        (
            StackedRegressor(prefer="small", target_transform="log"),
            "predicts the logarithm of the target. Fit with target_transform=None",
        ),
        (StackedRegressor(target_transform=None), "is a mixture of models.* prefer='small'"),
        (StackedClassifier(prefer="small"), "predicts classes"),
    ],
    ids=[
        *("labels", "kernel", "neighbours", "healing", "scaler", "target"),
        *("log", "mixture", "mixture of classes"),
    ],
)
def test_what_cannot_be_exported_is_refused_in_a_sentence(model, sentence):
    target = (Y > np.median(Y)).astype(int) if is_classifier(model) else Y
    with pytest.raises(ValueError, match=sentence):
        export_model(model.fit(X, target))


def _small_models():
    frame = pd.DataFrame(X[:, :3], columns=list("abc")).assign(kind=["one", "two", "three"] * 30)
    table = table_model(prefer="small", target_transform=None).fit(frame, Y)
    functions = StackedRegressor(prefer="small", target_transform=None, noise_variance="learn")
    plain = SparseTargetTransform(make_pipeline(StandardScaler(), RVMRegressor("rbf", gamma=0.1)))
    return {
        "table": (table, frame, table.transform(frame)),
        "mixture": (functions.fit(X, Y), NEW, NEW),
        "target": (plain.fit(X, Y - 20.0), NEW, NEW),
    }


@pytest.mark.parametrize("to", ["python", "onnx", pytest.param("c", marks=NEEDS_CC)])
def test_a_mixture_of_one_member_is_exported_as_this_member(to, tmp_path):
    for model, rows, encoded in _small_models().values():
        code = export_model(model, to=to)
        if to == "c":
            found = _run_c(code, encoded, tmp_path)
        elif to == "onnx":
            found = runtime.InferenceSession(code).run(None, {"X": encoded})
        else:
            names: dict = {}
            exec(code, names)
            found = names["predict"](encoded, return_std=True)
        np.testing.assert_allclose(found, model.predict(rows, return_std=True), rtol=1e-6)


def test_noise_by_the_input_and_several_targets_are_refused():
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 10, (300, 1))
    y = np.sin(x[:, 0]) + (0.05 + 0.1 * x[:, 0]) * rng.standard_normal(300)
    model = RVMRegressor("rbf", gamma=0.3, noise_variance="input").fit(x, y)
    assert model.noise_model_ is not None
    with pytest.raises(ValueError, match="depends on the inputs"):
        export_model(model)
    assert "predict" in export_model(model, return_std=False)
    long = ForwardRegressor("rbf", gamma=0.3).fit(x, y)
    names: dict = {}
    exec(export_model(long.truncate(5), to="python"), names)
    np.testing.assert_allclose(names["predict"](x), long.truncate(5).predict(x), rtol=1e-7)
    two = RVMRegressor("rbf", gamma=0.3).fit(x, np.column_stack([y, -y]))
    with pytest.raises(ValueError, match="several targets"):
        export_model(two)


def test_unknown_formats_and_names_are_refused(fitted):
    with pytest.raises(ValueError, match="must be one of c, python, onnx, got 'java'"):
        export_model(fitted("columns"), to="java")
    with pytest.raises(ValueError, match="name"):
        export_model(fitted("columns"), name="my-model")


def test_the_command_line_writes_what_the_function_gives(tmp_path, monkeypatch, capsys):
    from sparsebayes.cli import main

    monkeypatch.chdir(tmp_path)
    pd.DataFrame(X[:, :4], columns=list("abcd")).assign(y=Y).to_csv("t.csv", index=False)
    assert main(["fit", "t.csv", "--target", "y", "--model", "rvm", "--output", "m.skops"]) == 0
    capsys.readouterr()
    assert main(["export", "m.skops", "--to", "python"]) == 0
    printed = capsys.readouterr().out
    assert main(["export", "m.skops", "--to", "python", "--output", "m.py"]) == 0
    assert (tmp_path / "m.py").read_text() == printed
    done = subprocess.run(
        [sys.executable, "-c", "import m; print(m.predict([[3.0, 3.1, 3.2, 3.3]])[0])"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert np.isfinite(float(done.stdout))
    assert main(["export", "m.skops", "--to", "c", "--name", "pump", "--no-std"]) == 0
    assert "void pump_predict(const double *x, double *mean)" in capsys.readouterr().out
    assert main(["export", "m.skops", "--to", "onnx"]) == 2
    assert "--output" in capsys.readouterr().err
    assert main(["export", "nothing.skops", "--to", "c"]) == 2
