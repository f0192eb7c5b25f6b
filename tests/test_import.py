import subprocess
import sys

_LOADED = """
import sys, sklearn.base
before = set(sys.modules)
import sparsebayes
print(*sorted(set(sys.modules) - before))
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
    print(solver.solution(result.state, design, t).posterior.log_evidence > 0)
"""


def _python(code):
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    return done.stdout


def test_importing_loads_nothing_beside_the_list_of_names():
    loaded = _python(_LOADED).split()
    assert loaded == ["sparsebayes", "sparsebayes._lazy", "sparsebayes.estimators"]


def test_solvers_run_without_scikit_learn():
    assert _python(_WITHOUT).split() == ["True", "True"]
