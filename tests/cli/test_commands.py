import copy
import csv
import io
import re
import signal
import sys
import warnings
from contextlib import suppress
from functools import partial

import numpy as np
import pandas as pd
import pytest

from sparsebayes import table_model
from sparsebayes.cli import comparison, main
from sparsebayes.cli.arguments import make_parser
from tests.awkward import tables

AWKWARD = tables()


@pytest.fixture
def table(tmp_path):
    """A table with a number, a text column and a target; the path of it."""
    rng = np.random.default_rng(0)
    path = tmp_path / "data.csv"
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["x", "colour", "y"])
        for x in rng.uniform(-3, 3, 60):
            colour = rng.choice(["red", "green"])
            y = np.sin(x) + (colour == "red") + 0.1 * rng.standard_normal()
            writer.writerow([f"{x:.6f}", colour, f"{y:.6f}"])
    return path


@pytest.fixture
def classes(tmp_path):
    """Three kinds in a plane, a column of names; the path of it."""
    rng = np.random.default_rng(0)
    kind = np.repeat(["ash", "elm", "oak"], 30)
    X = rng.standard_normal((90, 2)) + 4.0 * np.repeat([[0, 0], [1, 0], [0, 1]], 30, axis=0)
    path = tmp_path / "kinds.csv"
    frame = pd.DataFrame({"tree": [f"t{i}" for i in range(90)], "a": X[:, 0], "b": X[:, 1]})
    frame.assign(kind=kind).sample(frac=1, random_state=0).to_csv(path, index=False)
    return path


def _rows(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def _fails(capsys, *arguments):
    assert main([str(a) for a in arguments]) == 2
    error = capsys.readouterr().err
    assert "Traceback" not in error
    assert error.count("\n") == 1
    return error


# Tables as they come.


@pytest.mark.parametrize("kind", [k for k in AWKWARD if not AWKWARD[k].sentence])
def test_an_awkward_table_ends_in_a_good_model(kind, tmp_path, capsys):
    case = AWKWARD[kind]
    path, model, out = tmp_path / case.name, tmp_path / "model.skops", tmp_path / "out.csv"
    path.write_bytes(case.content)
    options = case.options or ["--model", "linear"]
    command = ["fit", str(path), "--target", case.target, "--output", str(model)]
    assert main([*command, *options]) == 0
    assert case.told in capsys.readouterr().out
    assert main(["predict", str(model), str(path), "--output", str(out)]) == 0
    frame = pd.read_csv(out)
    assert frame.notna().all().all()
    if kind not in ("no header", "two rows", "semicolon and decimal comma", "gaps in the target"):
        from sparsebayes.cli.tables import read_table

        truth = read_table(path).frame[case.target]
        assert np.corrcoef(truth, frame[case.target])[0, 1] > 0.95
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(
        [case.name, "model.skops", "out.csv"]
    )


@pytest.mark.parametrize("kind", [k for k in AWKWARD if AWKWARD[k].sentence])
def test_a_table_without_a_model_is_one_sentence_and_no_file(kind, tmp_path, capsys):
    case = AWKWARD[kind]
    path = tmp_path / case.name
    path.write_bytes(case.content)
    out, report = tmp_path / "model.skops", tmp_path / "r.html"
    files = ["--output", out, "--report", report]
    for command in (["fit", "--model", "linear", *files], ["compare", "--report", report]):
        arguments = [command[0], path, "--target", case.target, *command[1:], *case.options]
        assert case.sentence in _fails(capsys, *arguments)
        assert [p.name for p in tmp_path.iterdir()] == [case.name]


def test_a_table_may_come_from_standard_input(table, tmp_path, capsys, monkeypatch):
    class Stdin:
        buffer = io.BytesIO(table.read_bytes())

    monkeypatch.setattr(sys, "stdin", Stdin)
    assert main(["fit", "-", "--target", "y", "--model", "linear"]) == 0
    assert "60 rows, 2 inputs, standard input" in capsys.readouterr().out


def test_columns_may_be_dropped_kept_as_names_and_taken_as_categories(table, tmp_path, capsys):
    frame = pd.read_csv(table).assign(number=np.arange(60) % 3, key=np.arange(60), junk=1.5)
    frame["junk"] += np.arange(60)
    frame.to_csv(table, index=False)
    model, out = tmp_path / "m.skops", tmp_path / "out.csv"
    options = ["--drop", "junk", "--categories", "number", "--id", "key", "--output", str(model)]
    assert main(["fit", str(table), "--target", "y", "--model", "linear", *options]) == 0
    shown = capsys.readouterr().out
    assert "columns: 1 numeric, 2 categorical\n  dropped: junk (requested)" in shown
    assert main(["predict", str(model), str(table), "--output", str(out)]) == 0
    assert list(pd.read_csv(out)) == ["key", "y", "std", "lower", "upper"]
    assert pd.read_csv(out)["key"].tolist() == list(range(60))
    assert (
        main(["fit", str(table), "--target", "y", "--model", "linear", "--drop", "junk,key"]) == 0
    )


def test_rows_with_gaps_are_left_out_where_that_is_asked(table, capsys):
    lines = table.read_text().splitlines()
    lines[1] = "," + lines[1].split(",", 1)[1]
    table.write_text("\n".join(lines) + "\n")
    command = ["fit", str(table), "--target", "y", "--model", "linear", "--missing", "drop"]
    assert main(command) == 0
    assert "1 rows with missing values were dropped" in capsys.readouterr().out


# Fitting and predicting.


@pytest.mark.parametrize("suffix", [".skops", ".pkl"])
def test_fit_then_predict(table, tmp_path, capsys, suffix):
    model, out = tmp_path / f"model{suffix}", tmp_path / "out.csv"
    assert main(["fit", str(table), "--target", "y", "--output", str(model)]) == 0
    shown = capsys.readouterr().out
    assert "auto (StackedRegressor): 60 rows, 2 inputs" in shown
    assert re.search(r"active terms +\d+", shown)
    assert main(["predict", str(model), str(table), "--output", str(out)]) == 0
    truth, got = _rows(table), _rows(out)
    y, mean = (np.array([float(row["y"]) for row in rows]) for rows in (truth, got))
    assert np.sqrt(np.mean((y - mean) ** 2)) < 0.5 * y.std()
    inside = [float(g["lower"]) <= v <= float(g["upper"]) for g, v in zip(got, y, strict=True)]
    assert np.mean(inside) > 0.85


@pytest.mark.parametrize("suffix", [".skops", ".pkl"])
def test_the_logarithm_of_a_target_is_taken_where_it_is_the_better(tmp_path, capsys, suffix):
    rng = np.random.default_rng(0)
    x = rng.uniform(-3, 3, 150)
    y = np.exp(2.0 * np.sin(x) + 0.5 * rng.standard_normal(150))
    table = tmp_path / "prices.csv"
    table.write_text("x,price\n" + "".join(f"{a},{b}\n" for a, b in zip(x, y, strict=True)))
    model, out = tmp_path / f"m{suffix}", tmp_path / "out.csv"
    arguments = [str(table), "--target", "price", "--set", "target_transform=auto"]
    assert main(["fit", *arguments, "--output", str(model)]) == 0
    assert re.search(r"process of log y +weight [5-9]\d%", capsys.readouterr().out)
    assert main(["predict", str(model), str(table), "--output", str(out), "--level", "0.9"]) == 0
    low, high = (np.array([float(row[k]) for row in _rows(out)]) for k in ("lower", "upper"))
    assert np.all(low > 0)
    assert 0.84 < np.mean((low < y) & (y < high)) < 0.96
    capsys.readouterr()
    scores = {}
    for transform in ("None", "auto"):
        arguments[-1] = f"target_transform={transform}"
        assert main(["compare", *arguments, "--models", "rvm", "--cv", "2"]) == 0
        row = re.search(r"rvm +\S+ ± \S+ +\S+ +(\S+) ±", capsys.readouterr().out)
        scores[transform] = float(row.group(1))
    assert scores["auto"] < scores["None"] - 0.3  # the density of y itself


def test_a_target_whose_logarithm_looks_better_is_hinted_at_once(tmp_path, capsys):
    rng = np.random.default_rng(0)
    path = tmp_path / "houses.csv"
    frame = pd.DataFrame({"size": rng.uniform(50, 250, 500)})
    frame["price"] = 2000 * frame["size"] * np.exp(0.5 * rng.standard_normal(500))
    frame["even"] = 100.0 + rng.standard_normal(500)
    frame.to_csv(path, index=False)
    hint = "hint: price is positive with a long tail; --set target_transform=auto tests whether"
    fit = ["fit", str(path), "--target", "price", "--model", "linear"]
    compare = ["compare", *fit[1:-2], "--models", "linear", "--cv", "1"]
    assert main(compare) == 0
    assert capsys.readouterr().out.count(hint) == 1
    assert main(fit) == 0
    assert "".join(capsys.readouterr()).count("target_transform") == 1  # what it made of the target
    assert main([*fit, "--set", "target_transform=auto"]) == 0
    assert re.search(r"target +log", capsys.readouterr().out)
    compare[5] = "auto,baseline"  # which the setting does not change
    assert main(compare) == 0
    assert "target_transform" not in "".join(capsys.readouterr())
    compare[3:6] = ["even", "--models", "linear"]
    assert main(compare) == 0
    assert "hint" not in capsys.readouterr().out


@pytest.mark.parametrize("option", ["--drop", "--categories", "--id"])
def test_columns_are_named_with_commas_or_one_by_one(option, table, capsys):
    frame = pd.read_csv(table).assign(a=np.arange(60) % 3, b=np.arange(60) % 4)
    frame.to_csv(table, index=False)
    command = ["fit", str(table), "--target", "y", "--model", "linear"]
    assert main([*command, option, "a,b"]) == 0
    first = capsys.readouterr().out
    assert main([*command, option, "a", option, "b"]) == 0
    assert capsys.readouterr().out == first
    with pytest.raises(SystemExit):
        main(["fit", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.count("may be repeated") == 3


def test_classes_are_found_and_predicted_with_probabilities(classes, tmp_path, capsys):
    model, out = tmp_path / "m.skops", tmp_path / "out.csv"
    command = ["fit", str(classes), "--target", "kind", "--id", "tree", "--output", str(model)]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert "is text: classification (3 classes: ash, elm, oak)" in shown
    assert "auto (StackedClassifier): 90 rows, 2 inputs" in shown
    assert main(["predict", str(model), str(classes), "--output", str(out)]) == 0
    frame, truth = pd.read_csv(out), pd.read_csv(classes)
    assert list(frame) == ["tree", "kind", "p_ash", "p_elm", "p_oak"]
    np.testing.assert_allclose(frame.iloc[:, 2:].sum(axis=1), 1.0)
    assert frame["tree"].tolist() == truth["tree"].tolist()
    assert np.mean(frame["kind"] == truth["kind"]) > 0.9


def test_the_task_can_be_said(table, capsys):
    frame = pd.read_csv(table)
    frame["y"] = (frame["y"] > 0).astype(int)
    frame.to_csv(table, index=False)
    command = ["fit", str(table), "--target", "y", "--model", "linear"]
    assert main(command) == 0
    shown = capsys.readouterr()
    assert "linear (RVMRegressor): " in shown.out
    assert "two values, 0 and 1. It is numeric, so a regression is fitted" in shown.err
    assert main([*command, "--task", "classification"]) == 0
    assert "linear (RVMClassifier): " in capsys.readouterr().out


def test_integer_classes_stay_integers_where_some_are_missing(classes, tmp_path, capsys):
    model, out = tmp_path / "m.pkl", tmp_path / "p.csv"
    frame = pd.read_csv(classes)
    frame["kind"] = frame["kind"].map({"ash": 1, "elm": 2, "oak": 3})
    frame.loc[4, "kind"] = None
    frame.to_csv(classes, index=False)
    command = ["fit", str(classes), "--target", "kind", "--model", "linear", "--id", "tree"]
    assert main([*command, "--task", "classification", "--output", str(model)]) == 0
    assert main(["predict", str(model), str(classes), "--output", str(out)]) == 0
    assert list(pd.read_csv(out)) == ["tree", "kind", "p_1", "p_2", "p_3"]


def test_predictions_go_to_the_terminal_without_output(table, tmp_path, capsys):
    model = tmp_path / "m.pkl"
    main(["fit", str(table), "--target", "y", "--model", "linear", "--output", str(model)])
    capsys.readouterr()
    assert main(["predict", str(model), str(table), "--level", "0.5"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "y,std,lower,upper"
    assert len(lines) == 61


def test_settings_reach_the_estimator(table, capsys):
    arguments = ["fit", str(table), "--target", "y", "--model", "rvm-fast"]
    assert main([*arguments, "--set", "gamma=0.25", "--set", "kernel=matern32"]) == 0
    assert re.search(r"gamma +0\.25", capsys.readouterr().out)
    assert main([*arguments, "--set", "width=2"]) == 2
    assert "RVMRegressor has no parameter 'width'; it has" in capsys.readouterr().err
    assert "--set takes name=value, got 'gamma'" in _fails(capsys, *arguments, "--set", "gamma")


def test_a_level_that_was_not_seen_is_predicted_and_wrong_columns_are_one_sentence(
    table, tmp_path, capsys
):
    model, out, other = tmp_path / "m.pkl", tmp_path / "out.csv", tmp_path / "other.csv"
    main(["fit", str(table), "--target", "y", "--model", "linear", "--output", str(model)])
    capsys.readouterr()
    for content, sentence in (
        ("x,colour\n1,blue\n", "'blue' in column 'colour' was not in the training data"),
        ("x,colour\nhot,red\n", "'hot' in row 1, where the training data have numbers"),
    ):
        other.write_text(content)
        assert main(["predict", str(model), str(other)]) == 0
        assert capsys.readouterr().err.count(sentence) == 1
    for content, sentence in (
        ("x,z\n1,2\n", "has no column 'colour'; its columns are 'x', 'z'"),
        ("x,colour\n", "no rows of data"),
    ):
        other.write_text(content)
        assert sentence in _fails(capsys, "predict", model, other, "--output", out)
        assert not out.exists()


def test_other_mistakes_are_one_sentence(table, tmp_path, capsys):
    def fails(*arguments):
        return _fails(capsys, *arguments)

    assert "The file" in fails("fit", tmp_path / "no.csv", "--target", "y")
    assert "is a folder" in fails("fit", tmp_path, "--target", "y")
    fit = ("fit", table, "--target", "y")
    assert "Unknown model 'magic'; choose from" in fails(*fit, "--model", "magic")
    assert "Unknown model 'svc' for regression" in fails(*fit, "--model", "svc")
    assert "Cannot write" in fails(*fit, "--output", tmp_path / "no" / "m.pkl")
    assert "is a folder; pass the name of a file" in fails(*fit, "--report", tmp_path)
    compare = ("compare", table, "--target", "y")
    assert "--test-share must lie between 0 and 1" in fails(*compare, "--test-share", "1.5")
    assert "--cv must be 1 (a single split) or between" in fails(*compare, "--cv", "31")
    assert "--time-budget must be positive" in fails(*compare, "--time-budget", "0")
    assert "The model file" in fails("predict", tmp_path / "m.skops", table)
    assert "--level must lie" in fails("predict", tmp_path / "m.skops", table, "--level", "2")
    report = ("--report", tmp_path / "r.html")
    assert "--cv must be 1 (a single split) or between" in fails(*fit, "--cv", "0", *report)
    assert "must end in .skops or .pkl" in fails(*fit, "--output", tmp_path / "model.txt")
    said = fails("predict", table, tmp_path / "m.skops")
    assert "Pass the model before the table" in said
    assert "Error" not in said
    broken = tmp_path / "broken.skops"
    broken.write_bytes(b"not a model")
    assert "is not a model written by" in fails("predict", broken, table)


@pytest.mark.parametrize("missing", ["pandas", "skrub", "jinja2"])
def test_a_missing_package_is_named_before_any_work(missing, table, tmp_path, capsys, monkeypatch):
    import sparsebayes._extras as extras

    there = extras.find_spec
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == missing else there(name))
    monkeypatch.setattr(
        "sparsebayes.cli.compare.read_table", lambda path: pytest.fail("work was begun")
    )
    command = ("compare", table, "--target", "y", "--report", tmp_path / "r.html")
    assert f"needs {missing}, which is not installed: pip install 'sparsebayes[cli]'" in _fails(
        capsys, *command
    )


def test_intervals_are_those_of_python(table, tmp_path, capsys):
    import pickle

    model, out = tmp_path / "m.pkl", tmp_path / "out.csv"
    fit = ["fit", str(table), "--target", "y", "--model", "linear", "--output", str(model)]
    predict = ["predict", str(model), str(table), "--level", "0.9", "--output", str(out)]
    frame = pd.read_csv(table)
    for rows in (60, 6):
        frame[:rows].to_csv(table, index=False)
        assert main(fit) == 0
        assert main(predict) == 0
        fitted = pickle.loads(model.read_bytes())
        ends = fitted.predict_interval(frame[:rows], 0.9)
        np.testing.assert_allclose(pd.read_csv(out)[["lower", "upper"]], ends, rtol=1e-8)


# Comparing.


def _scored(name, inside, mean, std):
    from sparsebayes.cli.comparison import HeldOut, Score, scores

    y = np.zeros(len(inside))
    lower = np.where(inside, -1.0, 1.0)
    held = HeldOut(np.arange(len(y)), mean, std, lower, np.full(len(y), 2.0), -y)
    return Score(name, *scores(held, np.linspace(0, 1e-9, len(y)), None), held_out=held)


def test_intervals_that_cover_too_little_are_marked():
    from sparsebayes.cli.comparison import cells, head

    place = head("regression").index("95 % coverage")
    one = np.ones(400)
    shown = []
    for share in (1.0, 0.95, 0.93, 0.847):
        score = _scored("rvm", np.arange(400) < share * 400, one, one)
        shown.append(cells(score, "regression")[place])
    assert shown == ["100.0%", "95.0%", "93.0%", "84.8%!"]


def test_compare_says_what_the_mark_means_and_which_models_are_the_same(table, capsys, monkeypatch):
    import sparsebayes.cli.comparison as comparison

    monkeypatch.setattr(comparison, "covers_too_little", lambda score: score.model == "linear")
    command = [
        "compare",
        str(table),
        "--target",
        "y",
        "--models",
        "linear,gaussian-process,neighbours,baseline",
    ]
    assert main([*command, "--cv", "1"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("%!") == 1
    assert comparison.TOO_LITTLE in shown
    assert "neighbours is the same model as gaussian-process here" in shown


def test_compare_prints_a_line_per_model_as_it_ends(table, capsys, monkeypatch):
    import sparsebayes.cli.comparison as comparison

    seen = []
    measure = comparison.measure

    def watched(name, *args):
        seen.append((name, capsys.readouterr().out))
        return measure(name, *args)

    monkeypatch.setattr(comparison, "measure", watched)
    models = "linear,bayesian-ridge,baseline"
    assert main(["compare", str(table), "--target", "y", "--models", models, "--cv", "3"]) == 0
    last = capsys.readouterr().out
    assert [name for name, _ in seen] == ["baseline", "linear", "bayesian-ridge"]
    assert "data.csv: 60 rows, 2 inputs, target y (regression); 3 folds" in seen[0][1]
    assert seen[1][1].startswith("baseline")
    assert seen[2][1].startswith("linear")
    assert re.search(r"bayesian-ridge +[\d.]+ ± [\d.]+ +0\.\d+ +-?[\d.]+ ± [\d.]+ +\d+\.\d%", last)
    assert "lowest NLL" in last


def test_compare_prints_a_warning_once_whatever_its_numbers_in_the_folds_are(tmp_path, capsys):
    rng = np.random.default_rng(0)
    x = rng.uniform(0.0, 3.0, 80)
    y = np.sin(x) + 0.3 * rng.standard_normal(80)
    copies = np.r_[np.arange(80), np.arange(50), np.arange(50)]  # oversampled, with small changes
    frame = pd.DataFrame({"x": x[copies], "y": y[copies]})
    frame += 1e-4 * rng.standard_normal(frame.shape)
    path = tmp_path / "copies.csv"
    frame.to_csv(path, index=False)
    command = ["compare", str(path), "--target", "y", "--models", "gaussian-process", "--cv", "4"]
    assert main(command) == 0
    assert capsys.readouterr().err.count("of the rows are nearly equal to another row") == 1


def test_compare_shows_the_size_of_models_and_the_time_of_a_row(table, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    command = ["compare", str(table), "--target", "y", "--models", "forward,neighbours"]
    assert main([*command, "--cv", "2"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"terms +size +ms/row +seconds", shown)
    for model in ("forward", "neighbours"):
        assert re.search(rf"^{model} .* \d+ +[\d.]+ kB +[\d.]+ +[\d.]+$", shown, re.M)


def test_compare_measures_classes(classes, capsys):
    command = ["compare", str(classes), "--target", "kind", "--drop", "tree"]
    assert main([*command, "--models", "baseline,logistic,linear,svc", "--cv", "3"]) == 0
    shown = capsys.readouterr().out
    rows = {m: re.search(rf"^{m} +(\S+) ± \S+ +(\S+) +(\S+)% +(\S+)", shown, re.M) for m in
            ("baseline", "logistic", "linear", "svc")}  # fmt: skip
    base = [float(v) for v in rows["baseline"].groups()]
    assert base[0] == pytest.approx(np.log(3), abs=0.01)
    assert base[3] == pytest.approx(0.5, abs=0.1)
    for model in ("logistic", "linear", "svc"):
        loss, brier, accuracy, auc = (float(v) for v in rows[model].groups())
        assert loss < 0.3
        assert brier < 0.1
        assert accuracy > 90
        assert auc > 0.98


def test_models_that_do_not_suit_are_skipped_with_the_reason(table, capsys, monkeypatch):
    from dataclasses import replace

    from sparsebayes import models

    few = tuple(replace(m, most_rows=10) if m.name == "rvm" else m for m in models.MODELS)
    usual = tuple(replace(m, usual=m.name in ("baseline", "rvm")) for m in few)
    monkeypatch.setattr(models, "MODELS", usual)
    command = ["compare", str(table), "--target", "y", "--cv", "2"]
    assert main(command) == 0
    assert "rvm             skipped: meant for at most 10 rows" in capsys.readouterr().out
    assert main([*command, "--models", "rvm"]) == 0
    assert "skipped" not in capsys.readouterr().out


def test_the_time_budget_stops_a_model_and_skips_the_rest(table, capsys, monkeypatch):
    import time

    from sparsebayes import RVMRegressor

    def never_ends(*args, **kwargs):
        while time.perf_counter() < started + 30:
            time.sleep(0.01)

    monkeypatch.setattr(RVMRegressor, "fit", never_ends)
    started = time.perf_counter()
    command = ["compare", str(table), "--target", "y", "--cv", "2", "--time-budget", "1"]
    assert main([*command, "--models", "baseline,linear,bayesian-ridge"]) == 0
    assert time.perf_counter() - started < 10
    shown = capsys.readouterr().out
    assert "linear          stopped: --time-budget of 1 s used up" in shown
    assert "bayesian-ridge  skipped: --time-budget of 1 s used up" in shown


def test_part_of_the_time_budget_is_kept_for_the_report(table, tmp_path, capsys, monkeypatch):
    import time

    from sparsebayes import RVMRegressor

    seconds = []

    def never_ends(*args, **kwargs):
        started = time.perf_counter()
        try:
            while time.perf_counter() < started + 30:
                time.sleep(0.01)
        finally:
            seconds.append(time.perf_counter() - started)

    monkeypatch.setattr(RVMRegressor, "fit", never_ends)
    command = ["compare", str(table), "--target", "y", "--cv", "2", "--time-budget", "4"]
    report = tmp_path / "report.html"
    assert main([*command, "--models", "baseline,linear", "--report", str(report)]) == 0
    assert report.exists()
    assert "used up (the rest is for the report)" in capsys.readouterr().out
    assert sum(seconds) < 3.2  # 70 % of the budget, and what the interruption takes


@pytest.mark.parametrize("handler", [signal.default_int_handler, signal.SIG_IGN])
def test_a_time_limit_is_told_again_where_nobody_heard_it(monkeypatch, request, handler):
    import time

    from sparsebayes.cli import comparison

    # In the background of a script Ctrl-C is ignored.
    request.addfinalizer(partial(signal.signal, signal.SIGINT, signal.getsignal(signal.SIGINT)))
    signal.signal(signal.SIGINT, handler)
    monkeypatch.setattr(comparison, "_INTERRUPT_EVERY", 0.1)
    started = time.perf_counter()

    def go_on():
        while time.perf_counter() < started + 30:
            time.sleep(0.01)

    def deaf():
        with suppress(KeyboardInterrupt):  # lost, as in a destructor
            go_on()
        go_on()

    with pytest.raises(comparison.OutOfTime):
        comparison.in_time(0.05, deaf)
    assert signal.getsignal(signal.SIGINT) is handler
    assert time.perf_counter() - started < 10


def test_no_interrupt_arrives_after_work_that_ends_when_its_time_is_over():
    import time

    from sparsebayes.cli.comparison import OutOfTime, in_time

    late = 0

    def work(seconds):
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            sum(range(50))
        return seconds

    for trial in range(300):  # at most 3 s; with a context manager a few to half of them escaped
        # Most end when the time is over; some end much later, and some much earlier.
        near = 0.004 * (1.0 + 0.005 * (trial % 21 - 10))
        seconds = {0: 0.012, 1: 0.0005}.get(trial % 30, near)
        try:
            assert in_time(0.004, partial(work, seconds)) == seconds
        except OutOfTime:
            late += 1
        work(0.001)
    assert 0 < late < 300


def test_folds_that_are_done_in_time_are_scored(table, capsys, monkeypatch):
    import time

    from sparsebayes import RVMRegressor

    fits = []

    def slow_from_the_third(model, *args, **kwargs):
        fits.append(model)
        while len(fits) > 2:
            time.sleep(0.01)
        return fit(model, *args, **kwargs)

    fit = RVMRegressor.fit
    monkeypatch.setattr(RVMRegressor, "fit", slow_from_the_third)
    command = ["compare", str(table), "--target", "y", "--models", "linear", "--time-budget", "2"]
    assert main(command) == 0
    assert re.search(r"^linear +\d.*\(2 of 5 folds\)$", capsys.readouterr().out, re.M)


def test_without_time_for_the_fit_the_report_shows_the_model_of_a_fold(
    table, tmp_path, capsys, monkeypatch
):
    import time

    from sparsebayes import RVMRegressor

    def slow(model, *args, **kwargs):
        time.sleep(1.0)
        return fit(model, *args, **kwargs)

    fit = RVMRegressor.fit
    monkeypatch.setattr(RVMRegressor, "fit", slow)
    report, n = tmp_path / "report.html", len(pd.read_csv(table))
    command = ["compare", str(table), "--target", "y", "--cv", "1", "--models", "linear"]
    partly = f"fitted to {n - round(n / 4)} of"
    for seconds, is_partial in (("2.5", True), ("60", False)):
        assert main([*command, "--report", str(report), "--time-budget", seconds]) == 0
        assert (partly in capsys.readouterr().out) is is_partial
        assert (partly in report.read_text()) is is_partial


def test_demo_runs_for_numbers_and_classes(tmp_path, capsys):
    for task, models, rows in (
        ("regression", "linear,bayesian-ridge", "442 rows, 10 inputs"),
        ("classification", "logistic,linear", "150 rows, 4 inputs"),
    ):
        report = tmp_path / f"{task}.html"
        command = ["demo", "--task", task, "--models", models, "--report", str(report), "--cv", "2"]
        assert main(command) == 0
        assert rows in capsys.readouterr().out
        assert report.stat().st_size > 10_000


def test_models_are_listed_once_with_a_line_each(capsys):
    from sparsebayes.models import MODELS

    assert main(["models"]) == 0
    shown = capsys.readouterr().out
    for choice in MODELS:
        assert re.search(rf"^  {re.escape(choice.name)}( \*)? +\S+", shown, re.M), choice.name
    for command in ([], ["fit"], ["compare"], ["demo"], ["narx"], ["predict"]):
        with pytest.raises(SystemExit) as end:
            main([*command, "--help"])
        assert end.value.code == 0
        shown = capsys.readouterr().out
        assert len(shown.splitlines()) <= 30  # one screen
        assert "bayesian-ridge" not in shown


def test_columns_align_whatever_the_size_of_the_scores():
    from sparsebayes.cli.comparison import Layout, Score, cells, head

    keys = ("rmse", "r2", "mae", "nll", "coverage")
    sizes = (0.5, 123.456, 2142851.732, -1e300, np.nan)
    values = [
        {**dict.fromkeys(keys, size), "r2": min(size, 1.0), "coverage": 0.5} for size in sizes
    ]
    for n_characters in (60, 80, 200):
        layout = Layout.for_terminal("regression", n_characters)
        lines = [layout.line(head("regression"))]
        for value in values:
            score = Score("group-horseshoe", value, value, n_terms=12_345, n_bytes=1e6)
            lines.append(layout.line(cells(score, "regression")))
        assert len({len(line) for line in lines}) == 1
        assert len({len(re.split(r" {2,}", line)) for line in lines}) == 1
    for task in ("regression", "classification"):
        line = Layout.for_terminal(task, 80).line(head(task))
        assert len(line) <= 80
        assert "size" not in line


def test_fit_reports_errors_and_noise_in_units_of_the_target(table, tmp_path, capsys):
    command = ["fit", str(table), "--target", "y", "--model", "linear"]
    assert main([*command, "--cv", "3"]) == 0
    first = capsys.readouterr().out
    frame = pd.read_csv(table)
    frame.assign(y=1000.0 * frame["y"]).to_csv(table, index=False)
    assert main([*command, "--cv", "3"]) == 0
    second = capsys.readouterr().out
    for label in ("noise \\(std\\)", "leave-one-out RMSE", "RMSE", "MAE"):
        before, after = (
            float(re.search(rf"^  {label} +([\d.]+)", shown, re.M).group(1))
            for shown in (first, second)
        )
        assert after == pytest.approx(1000.0 * before, rel=1e-3)
    assert main(command) == 0
    assert "for the error on held-out rows add --cv" in capsys.readouterr().out


def test_weights_are_counts_and_no_input(table, tmp_path, capsys):
    import pickle

    frame = pd.read_csv(table)
    weight = np.where(np.arange(60) < 30, 2, 1)
    frame.assign(w=weight).to_csv(tmp_path / "w.csv", index=False)
    frame.loc[np.repeat(np.arange(60), weight)].to_csv(tmp_path / "twice.csv", index=False)
    means = []
    for name, options in (("w.csv", ["--weights", "w"]), ("twice.csv", [])):
        model = tmp_path / "m.pkl"
        command = ["fit", str(tmp_path / name), "--target", "y", "--model", "linear", *options]
        assert main([*command, "--output", str(model)]) == 0
        fitted = pickle.loads(model.read_bytes())
        assert "w" not in fitted.get_feature_names_out()
        means.append(fitted.predict(frame))
    np.testing.assert_allclose(*means, rtol=1e-3, atol=1e-3)
    weighted = [str(tmp_path / "w.csv"), "--target", "y", "--weights", "w"]
    assert main(["compare", *weighted, "--models", "linear,baseline", "--cv", "2"]) == 0
    frame.assign(w=-1.0).to_csv(tmp_path / "w.csv", index=False)
    capsys.readouterr()
    assert "must contain non-negative numbers" in _fails(capsys, "fit", *weighted)


def test_small_weights_are_warned_of_once(tmp_path, capsys):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.standard_normal(60), "w": rng.uniform(0.01, 0.1, 60)})
    frame.assign(y=2.0 * frame["a"]).to_csv(tmp_path / "w.csv", index=False)
    weighted = [str(tmp_path / "w.csv"), "--target", "y", "--weights", "w", "--cv", "2"]
    for command in (["fit", "--model", "linear"], ["compare", "--models", "linear,baseline"]):
        assert main([*command[:1], *weighted, *command[1:]]) == 0
        assert capsys.readouterr().err.count("sample_weight sums to") == 1


def test_the_noise_of_a_model_of_the_logarithm_is_that_of_the_logarithm(tmp_path, capsys):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"size": rng.uniform(-2, 2, 60)})
    price = np.exp(frame["size"] + 0.3 * rng.standard_normal(60))
    frame.assign(price=price).to_csv(tmp_path / "t.csv", index=False)
    for options in (["--model", "linear"], ["--model", "auto"]):
        fit = ["fit", str(tmp_path / "t.csv"), "--target", "price", *options]
        assert main([*fit, "--set", "target_transform=log"]) == 0
        shown = capsys.readouterr().out
        assert re.search(r"noise \(std\) .*\d \(of log price\)\n", shown)
        assert re.search(r"log evidence .*\d \(of log price\)\n", shown)
        assert main([*fit, "--set", "target_transform=None"]) == 0
        assert "of log" not in capsys.readouterr().out.split("linear of")[0]


def test_a_close_name_is_suggested(table, capsys):
    assert "did you mean 'colour'?" in _fails(capsys, "fit", table, "--target", "color")
    fit = ("fit", table, "--target", "y")
    assert "did you mean 'linear'?" in _fails(capsys, *fit, "--model", "liner")
    assert "did you mean 'gamma'?" in _fails(capsys, *fit, "--model", "rvm", "--set", "gama=1")


def test_a_command_leaves_its_options_as_they_were_parsed(table, tmp_path):
    model = str(tmp_path / "m.pkl")
    for words in (
        ["fit", str(table), "--target", "y", "--model", "linear", "--output", model],
        [
            "compare",
            str(table),
            "--target",
            "y",
            "--models",
            "baseline",
            "--categories",
            "x,colour",
        ],
        ["demo", "--models", "baseline", "--report", str(tmp_path / "r.html")],
        ["predict", model, str(table), "--output", str(tmp_path / "out.csv")],
    ):
        options = make_parser().parse_args(words)
        before = copy.deepcopy(vars(options))
        options.run(options)
        assert vars(options) == before


def test_a_warning_about_new_rows_is_printed_once(table, tmp_path, capsys):
    model, new = tmp_path / "m.pkl", tmp_path / "new.csv"
    assert main(["fit", str(table), "--target", "y", "--output", str(model)]) == 0
    frame = pd.read_csv(table)
    frame.assign(colour="blue").to_csv(new, index=False)
    capsys.readouterr()
    assert main(["predict", str(model), str(new)]) == 0
    assert capsys.readouterr().err.count("warning") == 1


# Dynamic systems.


@pytest.fixture
def record(tmp_path):
    rng = np.random.default_rng(0)
    u, y = rng.uniform(-1, 1, 400), np.zeros(400)
    for k in range(1, 400):
        y[k] = 0.6 * y[k - 1] + u[k - 1] - 0.3 * u[k] ** 2 + 0.02 * rng.standard_normal()
    path = tmp_path / "record.csv"
    lines = [f"{a:.8f},{b:.8f}" for a, b in zip(u, y, strict=True)]
    path.write_text("u,level\n" + "\n".join(lines) + "\n")
    return path


def test_narx_prints_the_equation_and_writes_a_report(record, tmp_path, capsys):
    report = tmp_path / "report.html"
    command = ["narx", str(record), "--input", "u", "--output", "level", "--degree", "2"]
    assert main([*command, "--report", str(report)]) == 0
    shown = capsys.readouterr().out
    assert "level(k) = " in shown
    assert "u(k)^2" in shown
    assert "y(k" not in shown
    inside = float(re.search(r"95 % coverage\s+([\d.]+)%", shown).group(1))
    assert inside > 85
    page = report.read_text()
    assert page.count("<svg") == 3
    assert "Simulation" in page
    assert "level(k) = " in page
    assert "time step" in page


def test_narx_draws_over_the_time_of_the_table(record, tmp_path, capsys):
    frame = pd.read_csv(record)
    for time in (pd.date_range("2020-01-01", periods=400), 0.5 * np.arange(400)):
        frame.assign(minute=time).to_csv(record, index=False)
        report = tmp_path / "report.html"
        command = ["narx", str(record), "--input", "u", "--output", "level", "--degree", "2"]
        assert main([*command, "--report", str(report)]) == 0
        page = report.read_text()
        assert ">minute<" in page.replace("<!-- minute -->", ">minute<")
        assert ("2020-1" in page) == (time is not None and hasattr(time, "year"))


def test_narx_reports_several_inputs_by_name():
    from sparsebayes.cli.narx import Names

    names = Names("level", ("pump", "rain"))
    assert names.rename("y(k) = u1(k-1)*u2(k) + e(k)") == "level(k) = pump(k-1)*rain(k) + e(k)"


def test_narx_refuses_settings_it_does_not_have_and_its_help_names_those_it_has(record, capsys):
    from sparsebayes import NARXRegressor
    from sparsebayes.cli.arguments import NARX_SETTING
    from sparsebayes.cli.checks import parse_settings

    command = ("narx", record, "--input", "u", "--output", "level", "--set")
    for setting in ("foo=1", "target_transform=auto"):
        said = _fails(capsys, *command, setting)
        assert f"NARXRegressor has no parameter {setting.split('=')[0]!r}; it has" in said
        assert "max_terms" in said
    named = parse_settings(re.findall(r"\w+=\w+", NARX_SETTING))
    assert len(named) > 2
    NARXRegressor(**named)


def test_narx_names_the_column_that_is_not_there(record, capsys):
    assert main(["narx", str(record), "--input", "v", "--output", "level"]) == 2
    assert "has no column 'v'; its columns are 'u', 'level'" in capsys.readouterr().err
    record.write_text(record.read_text().replace("\n0.", "\nlow,", 1))
    assert main(["narx", str(record), "--output", "u"]) == 2


# What is on the screen meanwhile.


class Screen(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("rich", [True, False])
def test_people_see_a_bar_with_the_time_left(rich, monkeypatch):
    if rich:
        monkeypatch.setenv("TERM", "xterm")
    else:
        monkeypatch.setitem(sys.modules, "rich.console", None)
    import time

    from sparsebayes.cli.progress import Steps

    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    with Steps(4) as steps:
        for k in range(3):
            steps.next("fitting rvm, fold {} of 4", k)
            time.sleep(0.15)
    shown = screen.getvalue()
    assert "fitting rvm, fold 3 of 4" in shown
    assert "left" in shown


def test_logs_have_a_line_of_long_work_again_and_again(capsys, monkeypatch):
    import time

    from sparsebayes.cli import progress

    monkeypatch.setattr(progress, "_PAUSE", 0.05)
    with progress.Steps(2) as steps:
        for fold in range(2):
            steps.next("fitting rvm, fold {} of 2", fold)
            time.sleep(0.3)
    lines = capsys.readouterr().err.splitlines()
    for fold in (1, 2):
        assert 2 <= lines.count(f"fitting rvm, fold {fold} of 2, 0 s") <= 7
    with progress.step("fitting at once"):
        pass
    time.sleep(0.1)
    assert capsys.readouterr().err == ""


def test_held_out_rows_outside_the_range_are_warned_of_once():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": np.r_[rng.uniform(0, 1, 60), 9.0]})
    y = frame["x"].to_numpy() + 0.1 * rng.standard_normal(61)
    model = table_model().fit(frame[:60], y[:60])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        comparison.hold_out(model, frame, y, np.arange(50, 61), None)
    messages = {str(entry.message) for entry in caught}
    assert len(messages) == 1
    assert "'x'" in messages.pop()
