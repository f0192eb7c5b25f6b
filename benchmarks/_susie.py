"""Credible sets of the R package susieR, for ``suite.py --sections groups``.

On Debian: ``apt-get install r-base-core r-cran-susier``.
"""

import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

SCRIPT = """
suppressMessages(library(susieR))
data <- as.matrix(read.csv(commandArgs(TRUE)[1], header = FALSE))
warm <- susie(data[, -1], data[, 1])  # what is loaded at the first call does not count
used <- system.time(model <- susie(data[, -1], data[, 1]))
cat(sum(used[1:2]), "\\n")
for (set in model$sets$cs) cat(set - 1, "\\n")
"""


def susie(X, y):
    """Return the credible sets of susieR with its defaults, and the CPU seconds of its call."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        np.savetxt(path, np.column_stack([y, X]), delimiter=",", fmt="%.17g")
        command = ["Rscript", "-e", SCRIPT, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    first, *sets = done.stdout.splitlines()
    return [np.array(line.split(), dtype=int) for line in sets], float(first)


@cache
def susie_version():
    """Return the name and version of susieR; nothing where R or the package is not installed."""
    if shutil.which("Rscript") is None:
        return ""
    command = ["Rscript", "-e", 'cat(as.character(packageVersion("susieR")))']
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return f"susieR {done.stdout}" if done.returncode == 0 else ""
