import csv
import gzip
import re

import numpy as np
import pytest

from sparsebayes.cli import main
from sparsebayes.comparison import HEAD
from sparsebayes.tables import TableError, encode, learn_encoding, read_table

matplotlib = pytest.importorskip("matplotlib")


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


def _rows(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("suffix", [".skops", ".pkl"])
def test_fit_then_predict(table, tmp_path, capsys, suffix):
    model, out = tmp_path / f"model{suffix}", tmp_path / "out.csv"
    assert main(["fit", str(table), "--target", "y", "--output", str(model)]) == 0
    shown = capsys.readouterr().out
    assert "ForwardRegressor on 60 rows and 3 inputs" in shown
    assert re.search(r"active terms +\d+", shown)
    assert main(["predict", str(model), str(table), "--output", str(out)]) == 0
    truth, got = _rows(table), _rows(out)
    y, mean = (np.array([float(row["y"]) for row in rows]) for rows in (truth, got))
    assert np.sqrt(np.mean((y - mean) ** 2)) < 0.5 * y.std()
    inside = [float(g["lower"]) <= v <= float(g["upper"]) for g, v in zip(got, y, strict=True)]
    assert np.mean(inside) > 0.85
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(
        ["data.csv", f"model{suffix}", "out.csv"]
    )


@pytest.mark.parametrize("suffix", [".skops", ".pkl"])
def test_the_logarithm_of_a_target_is_taken_where_it_is_the_better(tmp_path, capsys, suffix):
    rng = np.random.default_rng(0)
    x = rng.uniform(-3, 3, 150)
    y = np.exp(2.0 * np.sin(x) + 0.5 * rng.standard_normal(150))
    table = tmp_path / "prices.csv"
    table.write_text("x,price\n" + "".join(f"{a},{b}\n" for a, b in zip(x, y, strict=True)))
    model, out, report = tmp_path / f"m{suffix}", tmp_path / "out.csv", tmp_path / "r.html"
    arguments = [str(table), "--target", "price", "--set", "target_transform=auto"]
    written = ["--output", str(model), "--report", str(report)]
    assert main(["fit", *arguments, *written]) == 0
    assert re.search(r"target +log \(\+\d+", capsys.readouterr().out)
    assert "ForwardRegressor" in report.read_text()
    assert main(["predict", str(model), str(table), "--output", str(out), "--level", "0.9"]) == 0
    low, high = (np.array([float(row[k]) for row in _rows(out)]) for k in ("lower", "upper"))
    assert np.all(low > 0)
    assert 0.84 < np.mean((low < y) & (y < high)) < 0.96
    capsys.readouterr()
    scores = {}
    for transform in ("None", "auto"):
        arguments[-1] = f"target_transform={transform}"
        assert main(["compare", *arguments, "--models", "rvm"]) == 0
        row = re.search(r"rvm +(.*)", capsys.readouterr().out)
        scores[transform] = float(row.group(1).split()[1])
    assert scores["auto"] < scores["None"] - 0.3  # the density of y itself


def test_predictions_go_to_the_terminal_without_output(table, tmp_path, capsys):
    model = tmp_path / "m.pkl"
    main(["fit", str(table), "--target", "y", "--output", str(model)])
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
    assert main([*arguments, "--set", "gamma"]) == 2
    assert "--set takes name=value, got 'gamma'" in capsys.readouterr().err


def test_compare_prints_a_table_and_writes_a_report(table, tmp_path, capsys):
    report = tmp_path / "report.html"
    arguments = ["compare", str(table), "--target", "y", "--models", "rvm,bayesian-ridge"]
    assert main([*arguments, "--report", str(report)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "data.csv: 45 rows to fit, 15 to test, target y"
    assert re.split(" {2,}", lines[2]) == list(HEAD)
    assert {line.split()[0] for line in lines[4:6]} == {"rvm", "bayesian-ridge"}
    page = report.read_text()
    for heading in ("Models", "Fit of", "Residuals and calibration", "Active terms"):
        assert f"<h2>{heading}" in page
    assert page.count("data:image/png;base64,") >= 3
    assert not re.search(r"(src|href)=\"(?!data:)", page)  # nothing is fetched


def test_a_report_of_one_input_shows_the_curve(tmp_path, capsys):
    X = np.linspace(-5, 5, 50)
    path, report = tmp_path / "one.csv", tmp_path / "r.html"
    np.savetxt(path, np.c_[X, np.sin(X)], delimiter=",", header="x,y", comments="")
    arguments = ["fit", str(path), "--target", "y", "--model", "rvm", "--report", str(report)]
    assert main(arguments) == 0
    assert "Fit of RVMRegressor" in report.read_text()


def test_demo_runs_end_to_end(tmp_path, capsys):
    report = tmp_path / "report.html"
    assert main(["demo", "--models", "rvm-linear,bayesian-ridge", "--report", str(report)]) == 0
    assert "332 rows to fit, 110 to test" in capsys.readouterr().out
    assert report.stat().st_size > 10_000


def test_datasets_lists_names(capsys):
    assert main(["datasets"]) == 0
    assert "boston" in capsys.readouterr().out


BAD_TABLES = {
    "ragged": ("x,y\n1,2\n3\n", "row 2 has 1 cells, but the header has 2"),
    "missing": ("x,y\n1,2\n,4\n", "column 'x', row 2 is missing"),
    "nan": ("x,y\n1,2\nNaN,4\n", "column 'x', row 2 is missing"),
    "infinite": ("x,y\n1,2\n2,inf\n", "column 'y', row 2 has 'inf' where a finite number"),
    "text target": ("x,y\n1,a\n2,b\n", "column 'y', row 1 has 'a' where a finite number"),
    "empty": ("", "needs a header row and at least one row"),
    "header only": ("x,y\n", "needs a header row and at least one row"),
    "double": ("x,x,y\n1,2,3\n4,5,6\n", "has the column name 'x' twice"),
    "target alone": ("y\n1\n2\n", "has no column beside the target"),
    "unknown target": ("x,z\n1,2\n3,4\n", "has no column 'y'; its columns are x, z"),
    "one row": ("x,y\n1,2\n", "minimum of 2 is required"),
}


@pytest.mark.parametrize("kind", BAD_TABLES)
def test_a_bad_table_is_one_sentence_and_no_file(kind, tmp_path, capsys):
    content, sentence = BAD_TABLES[kind]
    path = tmp_path / "bad.csv"
    path.write_text(content)
    out, report = tmp_path / "model.skops", tmp_path / "r.html"
    arguments = ["fit", str(path), "--target", "y", "--output", str(out), "--report", str(report)]
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1
    assert [p.name for p in tmp_path.iterdir()] == ["bad.csv"]


def test_other_mistakes_are_one_sentence(table, tmp_path, capsys):
    def fails(*arguments):
        assert main([str(a) for a in arguments]) == 2
        error = capsys.readouterr().err
        assert "Traceback" not in error
        return error

    assert "There is no file" in fails("fit", tmp_path / "no.csv", "--target", "y")
    assert "is a folder" in fails("fit", tmp_path, "--target", "y")
    assert "no model 'magic'; choose from" in fails(
        "fit", table, "--target", "y", "--model", "magic"
    )
    assert "no folder" in fails(
        "fit", table, "--target", "y", "--output", tmp_path / "no" / "m.pkl"
    )
    assert "share of test rows" in fails("compare", table, "--target", "y", "--test-share", "1.5")
    assert "no model file" in fails("predict", tmp_path / "m.skops", table)
    broken = tmp_path / "broken.skops"
    broken.write_bytes(b"not a model")
    assert "is not a model written by" in fails("predict", broken, table)
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"\xff\xfe\x00\x01")
    assert "cannot be read as CSV" in fails("fit", binary, "--target", "y")


def test_predicting_other_columns_is_one_sentence(table, tmp_path, capsys):
    model = tmp_path / "m.pkl"
    main(["fit", str(table), "--target", "y", "--output", str(model)])
    for content, sentence in (
        ("x\n1\n", "has no column 'colour'"),
        ("x,colour\n1,blue\n", "has 'blue', which the model has not seen; it knows green, red"),
        ("x,colour\nhot,red\n", "column 'x', row 1 has 'hot' where a finite number is needed"),
    ):
        other = tmp_path / "other.csv"
        other.write_text(content)
        capsys.readouterr()
        out = tmp_path / "out.csv"
        assert main(["predict", str(model), str(other), "--output", str(out)]) == 2
        assert sentence in capsys.readouterr().err
        assert not out.exists()


def test_text_columns_become_one_column_per_value(tmp_path):
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(b"size,n\nL,1\nS,2\nL,3\n"))
    read = read_table(path)
    encoding = learn_encoding(read)
    assert encoding.feature_names == ["size=L", "size=S", "n"]
    np.testing.assert_array_equal(encode(read, encoding), [[1, 0, 1], [0, 1, 2], [1, 0, 3]])


def test_a_text_column_of_many_values_is_refused(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("name,y\n" + "\n".join(f"person{i},{i}" for i in range(60)))
    with pytest.raises(TableError, match="'name' is text with 60 different values"):
        learn_encoding(read_table(path))


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
    assert "y(k) = " in shown
    assert "u(k)^2" in shown
    inside = float(re.search(r"inside the 95 % band\s+([\d.]+)", shown).group(1))
    assert inside > 0.85
    page = report.read_text()
    assert page.count("data:image/png") == 3
    assert "Free run" in page


def test_narx_names_the_column_that_is_not_there(record, capsys):
    assert main(["narx", str(record), "--input", "v", "--output", "level"]) == 2
    assert "has no column 'v'; it has 'u', 'level'" in capsys.readouterr().err
    record.write_text(record.read_text().replace("\n0.", "\nlow,", 1))
    assert main(["narx", str(record), "--output", "u"]) == 2
