"""One algorithm per module, on designs and NumPy arrays; nothing here needs scikit-learn.

Each solver is a frozen dataclass of settings with `init`, `step`, `done` and `posterior`, run by
`run`, the one loop.
"""

from ._run import Result, Solver, run
from .rvm import BasicRVM
from .rvm_fast import FastRVM

__all__ = ["BasicRVM", "FastRVM", "Result", "Solver", "run"]
