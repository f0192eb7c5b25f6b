"""How many bytes a model of 30 terms takes as C, compiled.

    python benchmarks/export.py [--terms 30] [--inputs 5]

Each line is the code and constants (sections text and data) of one C file, compiled by `cc -Os -c`
for this machine, in double and in single precision, with and without the standard deviation. The
functions of the mathematical library are not counted.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import make_friedman1

from sparsebayes import ForwardRegressor, export_model

SINGLE = "-DSPARSEBAYES_REAL=float"


def model_of(terms, inputs=5, kernel="rbf"):
    """A model of so many terms, fitted to Friedman's first function."""
    X, y = make_friedman1(300, n_features=inputs, noise=1.0, random_state=0)
    gamma = np.full((2, inputs), 0.3) if kernel == "sum" else 0.3
    settings = {"max_terms": terms, "early_stopping": None}
    return ForwardRegressor(kernel, gamma=gamma, **settings).fit(X, y)


def compiled_bytes(code, *options):
    """Sections text and data of a C file, compiled for size."""
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder, "model.c"), Path(folder, "model.o")
        source.write_text(code)
        subprocess.run(["cc", "-Os", *options, "-c", source, "-o", made], check=True)
        said = subprocess.run(["size", made], check=True, capture_output=True, text=True).stdout
    return sum(int(number) for number in said.splitlines()[1].split()[:2])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--terms", type=int, default=30)
    parser.add_argument("--inputs", type=int, default=5)
    args = parser.parse_args()
    if not (shutil.which("cc") and shutil.which("size")):
        raise SystemExit("This needs a C compiler (cc) and the command `size`.")
    for kernel in ("rbf", "sum"):
        model = model_of(args.terms, args.inputs, kernel)
        for with_std in (True, False):
            code = export_model(model, to="c", return_std=with_std)
            double, single = compiled_bytes(code), compiled_bytes(code, SINGLE)
            what = f"{kernel}, {len(model.active_)} terms, {'mean and std' if with_std else 'mean'}"
            print(f"{what:32s} {double:6d} bytes in double, {single:6d} in single precision")


if __name__ == "__main__":
    main()
