"""One algorithm per module, on designs and NumPy arrays; nothing here needs scikit-learn.

Each solver is a frozen dataclass of settings with `init`, `step`, `done` and `posterior`, run by
`run`, the one loop.
"""

from ._run import Result, Solver, run
from .forward import Forward
from .group_ard import GroupARD
from .group_ep import GroupEP
from .group_ep_probit import ProbitGroupEP
from .group_gibbs import GroupGibbs
from .lrols import OrthogonalLeastSquares
from .rvm import BasicRVM
from .rvm_auto import AutoRVM
from .rvm_fast import FastRVM

__all__ = [
    "AutoRVM",
    "BasicRVM",
    "FastRVM",
    "Forward",
    "GroupARD",
    "GroupEP",
    "GroupGibbs",
    "OrthogonalLeastSquares",
    "ProbitGroupEP",
    "Result",
    "Solver",
    "run",
]
