"""Files whose numbers are formatted as text."""

import csv

import numpy as np
import pandas as pd
import pytest

from sparsebayes.cli import main
from sparsebayes.cli.tables import read_table


def write(path, columns, separator=","):
    """Write columns of text as CSV, and return the path as text."""
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, delimiter=separator)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return str(path)


@pytest.mark.parametrize("separator", [",", ";"])
def test_thousands_separators_are_read_in_inputs_and_in_the_target(tmp_path, capsys, separator):
    size = np.random.default_rng(0).integers(500, 3000, 80)
    columns = {"size": [f"{s:,}" for s in size], "price": [f"${100 * s:,}.00" for s in size]}
    if separator == ";":
        columns["size"] = [f"{s:,}.0" for s in size]
    table = write(tmp_path / "t.csv", columns, separator)
    model, out = str(tmp_path / "m.skops"), tmp_path / "out.csv"
    assert main(["fit", table, "--target", "price", "--model", "linear", "--output", model]) == 0
    shown = capsys.readouterr().out
    assert "The target 'price' is numeric: regression" in shown
    assert "'price' is text, read as numbers with ',' as thousands separator and with" in shown
    assert "'size' is text, read as numbers with ',' as thousands separator\n" in shown
    assert main(["predict", model, table, "--output", str(out)]) == 0
    np.testing.assert_allclose(pd.read_csv(out)["price"], 100 * size, rtol=1e-3)
    one = write(tmp_path / "one.csv", {"size": ["750"]})
    assert main(["predict", model, one, "--output", str(out)]) == 0
    np.testing.assert_allclose(pd.read_csv(out)["price"], 75_000, rtol=1e-3)


def test_codes_with_leading_zeros_are_text(tmp_path, capsys):
    codes = np.random.default_rng(0).choice(["01000", "02000", "10115", ""], 80)
    columns = {
        "key": [f"{i:03}" for i in range(80)],
        "zip": [f" {code} " for code in codes],
        "size": ["00", "07", "1.5", "12"] * 20,
        "price": [{"01000": "30.5", "02000": "-30.5"}.get(code, "0.5") for code in codes],
    }
    table = write(tmp_path / "t.csv", columns)
    frame = read_table(table).frame
    assert set(frame["zip"].dropna()) == {"01000", "02000", "10115"}
    assert frame["zip"].isna().sum() == np.sum(codes == "")
    assert frame["size"].tolist() == [0.0, 7.0, 1.5, 12.0] * 20
    model, out = str(tmp_path / "m.skops"), tmp_path / "out.csv"
    options = ["--target", "price", "--id", "key", "--model", "linear", "--output", model]
    assert main(["fit", table, *options]) == 0
    assert "columns: 1 numeric, 1 categorical" in capsys.readouterr().out
    new = write(tmp_path / "n.csv", {"key": ["007"] * 2, "zip": ["10115"] * 2, "size": ["1"] * 2})
    assert main(["predict", model, new, "--output", str(out)]) == 0  # where zip is a number
    assert capsys.readouterr().err == ""
    predicted = pd.read_csv(out, dtype={"key": str})
    assert predicted["key"].tolist() == ["007", "007"]
    np.testing.assert_allclose(predicted["price"], 0.5, atol=1.0)


def test_dotted_dates_are_those_of_the_year_first(tmp_path):
    days = pd.Series(pd.date_range("2020-01-01", periods=300))
    days = days[days.dt.day <= 12]
    price = (days - days.iloc[0]).dt.days.map("{}.5".format)
    columns = {"day": days.dt.strftime("%d.%m.%Y"), "price": price}
    model, out = str(tmp_path / "m.skops"), tmp_path / "out.csv"
    fit = ["fit", write(tmp_path / "t.csv", columns), "--target", "price", "--model", "linear"]
    assert main([*fit, "--output", model]) == 0
    predictions = []
    for form in ("%d.%m.%Y", "%Y-%m-%d"):
        new = write(tmp_path / "n.csv", {"day": days.dt.strftime(form)})
        assert main(["predict", model, new, "--output", str(out)]) == 0
        predictions.append(pd.read_csv(out)["price"])
    np.testing.assert_array_equal(*predictions)
    np.testing.assert_allclose(predictions[0], price.astype(float), atol=5.0)


def test_an_error_about_the_task_names_the_option(tmp_path, capsys):
    columns = {"x": list(map(str, range(60))), "price": [f"{i}.000,50" for i in range(60)]}
    assert main(["fit", write(tmp_path / "t.csv", columns), "--target", "price"]) == 2
    error = capsys.readouterr().err
    assert "--task regression" in error
    assert "task=" not in error
