"""The command line on large tables: seconds to the first line of `compare`, to its end, of `fit`.

    python benchmarks/command_line.py [--quick] [--task classification]

The tables are made here: prices of stones by six numbers and three categories, 54,000 rows to
compare models on and 200,000 to fit. Goals on two cores: 10 s, 180 s and 60 s.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd


def stones(n, seed=0):
    """A table whose price is about exponential in its columns, with 11 % noise."""
    rng = np.random.default_rng(seed)
    carat = np.exp(rng.normal(-0.4, 0.55, n)).clip(0.2, 5).round(2)
    cut, cuts = _levels(rng, n, ["Fair", "Good", "Very Good", "Premium", "Ideal"], -0.15, 0.05)
    colour, colours = _levels(rng, n, list("DEFGHIJ"), 0.2, -0.35)
    clarity, clarities = _levels(rng, n, ["I1", "SI2", "SI1", "VS2", "VS1", "IF"], -0.6, 0.4)
    depth = rng.normal(61.7, 1.4, n).round(1)
    x = (6.5 * carat ** (1 / 3) * (1 + rng.normal(0, 0.01, n))).round(2)
    size = np.log(carat)
    log_price = 8.3 + 1.7 * size + 0.15 * size**2 + cuts + colours + clarities * (1 + 0.2 * size)
    price = np.exp(log_price + rng.normal(0, 0.11, n)).round()
    return pd.DataFrame(
        {
            "carat": carat,
            "cut": cut,
            "colour": colour,
            "clarity": clarity,
            "depth": depth,
            "table": rng.normal(57.5, 2.2, n).round(),
            "x": x,
            "y": (x * (1 + rng.normal(0, 0.005, n))).round(2),
            "z": (x * depth / 100).round(2),
            "price": price.astype(int),
        }
    )


def _levels(rng, n, names, low, high):
    code = rng.integers(0, len(names), n)
    return np.array(names)[code], np.linspace(low, high, len(names))[code]


def timed(command):
    """Seconds to the line of the first model, and to the end; what was printed goes on."""
    started, first = time.perf_counter(), None
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    for line in process.stdout:
        print(f"  {line}", end="", flush=True)
        if first is None and line.startswith("baseline"):
            first = time.perf_counter() - started
    if process.wait():
        sys.exit(f"{' '.join(command)} failed.")
    return first, time.perf_counter() - started


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows")
    parser.add_argument("--task", choices=("regression", "classification"), default="regression")
    parser.add_argument("--only", choices=("compare", "fit"))
    options = parser.parse_args()
    share = 10 if options.quick else 1
    run = [sys.executable, "-u", "-m", "sparsebayes"]
    with tempfile.TemporaryDirectory() as folder:
        for command, n in {"compare": 54_000, "fit": 200_000}.items():
            if options.only not in (None, command):
                continue
            table, path = stones(n // share), Path(folder) / "stones.csv"
            if options.task == "classification":
                table["price"] = pd.cut(table["price"], [0, 1500, 4000, 1e9], labels=list("abc"))
            table.to_csv(path, index=False)
            first, total = timed([*run, command, str(path), "--target", "price"])
            if first is not None:
                print(f"{command}, {n // share:,} rows: first line after {first:.1f} s (goal 10)")
            goal = {"compare": 180, "fit": 60}[command]
            print(f"{command}, {n // share:,} rows: {total:.1f} s (goal {goal})")


if __name__ == "__main__":
    main()
