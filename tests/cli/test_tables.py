"""Files whose numbers are formatted as text."""

import csv

import numpy as np
import pandas as pd
import pytest

from sparsebayes.cli import main


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


def test_an_error_about_the_task_names_the_option(tmp_path, capsys):
    columns = {"x": list(map(str, range(60))), "price": [f"{i}.000,50" for i in range(60)]}
    assert main(["fit", write(tmp_path / "t.csv", columns), "--target", "price"]) == 2
    error = capsys.readouterr().err
    assert "--task regression" in error
    assert "task=" not in error
