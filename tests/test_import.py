import subprocess
import sys

_TIMED = """
import time, sklearn, sklearn.base
started = time.perf_counter()
import sparsebayes
print(time.perf_counter() - started)
"""
_WITHOUT = """
import sys
sys.modules["sklearn"] = None
import numpy as np
from sparsebayes.designs import CentredDesign, KernelDesign
from sparsebayes.kernels import StationaryKernel
from sparsebayes.solvers import BasicRVM, FastRVM, run
X = np.linspace(-5, 5, 50)[:, None]
design = CentredDesign(KernelDesign(X, StationaryKernel("rbf", 0.5)))
t = design.target(np.sin(X[:, 0]) + 0.1 * np.cos(37 * X[:, 0]))
for solver in (BasicRVM(), FastRVM()):
    result = run(solver, design, t, max_iter=500)
    print(solver.posterior(result.state, design, t).log_evidence > 0)
"""


def _python(code):
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    return done.stdout


def test_importing_adds_less_than_a_tenth_of_a_second_to_scikit_learn():
    assert min(float(_python(_TIMED)) for _ in range(3)) < 0.1


def test_solvers_run_without_scikit_learn():
    assert _python(_WITHOUT).split() == ["True", "True"]
