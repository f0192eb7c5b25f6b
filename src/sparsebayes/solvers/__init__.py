"""The algorithms, one package for each paper, on designs and NumPy arrays without scikit-learn.

=============== ==========================================================================
`rvm`           relevance vector machines (Tipping 2001; Tipping & Faul 2003), also for labels
`forward`       forward selection by marginal likelihood (Sun & Yao 2006)
`ols`           orthogonal least squares with local regularisation (Chen 2001)
`group`         groups of columns under a spike and slab (Hernández-Lobato et al. 2013)
`backfitting`   Bayesian backfitting (D'Souza et al. 2004)
=============== ==========================================================================

Each solver is a frozen dataclass of settings with `init`, `step`, `done` and `solution`, run by
`run`, the one loop. The derivations are in docs/theory.
"""

from .._lazy import lazy
from .run import Algorithm, Result, Solution, Solver, StopReason, run

_HOMES = {
    "AdditiveModel": "backfitting.smoothers",
    "AutoRVM": "rvm.auto",
    "Backfitting": "backfitting.regression",
    "BasicLaplaceRVM": "rvm.laplace_em",
    "BasicRVM": "rvm.basic",
    "FakeTargets": "backfitting.fake_targets",
    "FastRVM": "rvm.fast",
    "Forward": "forward.selection",
    "GroupARD": "group.ard",
    "GroupEP": "group.ep",
    "GroupGibbs": "group.gibbs",
    "GroupShrinkage": "group.shrinkage",
    "LaplaceProcess": "rvm.process",
    "LaplaceRVM": "rvm.laplace",
    "LogisticBackfitting": "backfitting.logistic",
    "OrthogonalLeastSquares": "ols.selection",
    "ProbitGroupEP": "group.probit",
}
__getattr__, __dir__ = lazy(__name__, _HOMES)
__all__ = ["Algorithm", "Result", "Solution", "Solver", "StopReason", "run", *_HOMES]
