"""Which measurement to make next (section 4 of Hernández-Lobato and others 2013; MacKay 1992).

A new observation at x, with its sites held, lowers the entropy of the weights by

    gain(x) = 1/2 log(1 + Var f(x) / sigma2),      f(x) = x'w, plus an intercept where there is one,

whatever its outcome: the most informative point is the one the model is least sure of. (The paper
writes "log H" for H in (30) and (31); the conclusion is the same.)

Var f grows with |x|^2. A pool is compared at the norms its points have: bring them to one norm
first where measuring far out costs no more than near by. A free candidate is the vector of given
norm that maximises Var f; without an intercept that is the leading eigenvector of the covariance V,
found by x <- norm V x/|V x| at O(n d) a step, V never formed. With an intercept f is centred at the
mean of the rows, and the step x <- norm V (x - mean)/|V (x - mean)| climbs a convex function on a
sphere, so it cannot go down either. V often has nearly tied leading eigenvalues: the iteration
stops when the variance stops growing, not when x stops moving.

Several points at once are chosen one after the other, each with the covariance that the earlier
ones leave: C(x, x') - C(x, a) C(a, x') / (sigma2 + Var f(a)), whatever is measured at a.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted

from .designs import CentredBasis

_STEPS = 300
_FLAT = 1e-6  # relative growth of the variance in a power step at which it has stopped growing
_ROWS = 256  # candidates whose joint covariance is formed at a time


def information_gain(model: Any, X: Any) -> np.ndarray:
    """Nats by which measuring at each row would lower the entropy of the model.

    Parameters
    ----------
    model : fitted regressor
        Any with ``predict(X, return_std=True)`` and ``noise_variance_``.
    X : array of shape (n_candidates, n_features)
        Rows that could be measured.

    Returns
    -------
    gain : array of shape (n_candidates,)

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.estimators.group_spike_slab import GroupSpikeSlabRegressor
    >>> from sparsebayes.experimental_design import information_gain
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((20, 3))
    >>> model = GroupSpikeSlabRegressor().fit(X, X[:, 0] + 0.1 * rng.standard_normal(20))
    >>> gain = information_gain(model, np.array([[0.1, 0.0, 0.0], [10.0, 0.0, 0.0]]))
    >>> bool(gain[1] > gain[0] > 0)
    True
    """
    std = _checked(model).predict(X, return_std=True)[1].astype(np.float64)
    return 0.5 * np.log(np.maximum(std**2 / np.mean(model.noise_variance_), 1.0))


def propose(model: Any, norm: float = 1.0, n: int = 1, random_state: Any = 0) -> np.ndarray:
    """The most informative rows of a given norm.

    Parameters
    ----------
    model : fitted regressor
        A linear model in the columns of X: the group models, or another with ``kernel=None``.
    norm : float, default=1.0
        Euclidean length of each row.
    n : int, default=1
        How many rows, to be measured together.
    random_state : int, RandomState or None, default=0
        For the start of the power iteration.

    Returns
    -------
    X : array of shape (n, n_features)

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.estimators.group_spike_slab import GroupSpikeSlabRegressor
    >>> from sparsebayes.experimental_design import propose
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((20, 3))
    >>> model = GroupSpikeSlabRegressor().fit(X, X[:, 0] + 0.1 * rng.standard_normal(20))
    >>> propose(model, norm=2.0).shape
    (1, 3)
    """
    if not norm > 0:
        raise ValueError(f"norm must be positive, got {norm!r}.")
    spread = _Spread(_checked(model))
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))
    chosen = np.empty((n, model.n_features_in_))
    for i in range(n):
        chosen[i] = _most_uncertain(spread, float(norm), rng)
        spread.measure(chosen[i])
    return chosen


class SequentialDesign:
    """Ask a model what to measure next, tell it what was measured, and so on.

    Parameters
    ----------
    model : regressor
        Its parameters are copied; it is refitted after each `tell`, from the former solution where
        it has ``warm_start``. A model that is fitted already can be asked at once.
    X, y : arrays, optional
        The rows measured so far.

    Attributes
    ----------
    model_ : fitted regressor
        The model after the last `tell`.
    X_, y_ : arrays
        All rows told so far.
    asked_ : array of int
        Which rows of the pool the last `ask` chose, where it had a pool.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.estimators.group_spike_slab import GroupSpikeSlabRegressor
    >>> from sparsebayes.experimental_design import SequentialDesign
    >>> rng = np.random.default_rng(0)
    >>> w = np.zeros(20)
    >>> w[:2] = 1.0
    >>> X = rng.standard_normal((10, 20))
    >>> design = SequentialDesign(GroupSpikeSlabRegressor(np.arange(20) // 2, noise_variance=0.01))
    >>> design = design.tell(X, X @ w + 0.1 * rng.standard_normal(10))
    >>> for _ in range(5):
    ...     x = design.ask(norm=4.0)
    ...     design = design.tell(x, x @ w + 0.1 * rng.standard_normal(1))
    >>> design.X_.shape, design.model_.active_
    ((15, 20), array([0, 1]))
    """

    def __init__(self, model: Any, X: Any = None, y: Any = None) -> None:
        self.model = model
        self.X_: np.ndarray | None = None
        self.y_: np.ndarray | None = None
        self.model_: Any = None
        if X is not None:
            self.tell(X, y)
        elif _is_fitted(model):
            self.model_ = deepcopy(model)

    def ask(
        self, candidates: Any = None, n: int = 1, *, norm: float = 1.0, random_state: Any = 0
    ) -> np.ndarray:
        """The n rows to measure next.

        Parameters
        ----------
        candidates : array of shape (n_candidates, n_features), optional
            A pool to choose from, at the norms its rows have. Without one, any row of length
            `norm`.
        n : int, default=1
            Rows to be measured together: each is chosen given that those before it will be.
        norm : float, default=1.0
            Length of a free row.
        random_state : int, RandomState or None, default=0
            For the power iteration of a free row.

        Returns
        -------
        X : array of shape (n, n_features)
        """
        if self.model_ is None:
            raise NotFittedError("Tell this design some measurements before you ask it.")
        if candidates is None:
            return propose(self.model_, norm, n, random_state)
        pool = check_array(candidates, dtype=np.float64)
        if n > len(pool):
            raise ValueError(f"{n} rows were asked for from a pool of {len(pool)}.")
        self.asked_ = _greedy(_checked(self.model_), pool, n)
        return pool[self.asked_]

    def tell(self, X: Any, y: Any) -> SequentialDesign:
        """Add measurements and refit.

        Parameters
        ----------
        X : array of shape (n_rows, n_features), or one row
            Rows that were measured.
        y : array of shape (n_rows,), or one number
            What was measured there.

        Returns
        -------
        self
        """
        X, y = np.atleast_2d(np.asarray(X, dtype=np.float64)), np.atleast_1d(y)
        if y.shape != (len(X),):
            raise ValueError(f"{len(X)} rows came with y of shape {y.shape}: one number per row.")
        if self.X_ is None and self.model_ is not None:
            raise ValueError(
                "The rows this model was fitted on are not known: pass them as "
                "SequentialDesign(model, X, y) before telling it new ones."
            )
        if self.X_ is not None:
            X, y = np.vstack([self.X_, X]), np.concatenate([self.y_, y])
        if self.model_ is None:
            self.model_ = clone(self.model)
            if "warm_start" in self.model_.get_params():
                self.model_.set_params(warm_start=True)
        self.model_.fit(X, y)
        self.X_, self.y_ = X, y
        return self


class _Spread:
    """Var f(x) of a linear model and its gradient, less what chosen measurements will take away.

    With a(x) = (phi(x), 1), f has covariance a(x)' blockdiag(V, v) a(x'), v the variance of the
    intercept.
    """

    def __init__(self, model: Any) -> None:
        basis, posterior = model.basis_, model.posterior_
        centred = isinstance(basis, CentredBasis)
        columns = basis.functions if centred else basis
        if not hasattr(columns, "indices"):
            raise ValueError(
                f"{type(model).__name__} is not linear in the columns of X, so there is no free "
                "candidate to find: pass a pool of candidates."
            )
        self.indices, self.scale = columns.indices, columns.scale
        self.means = basis.means if centred else np.zeros(len(columns))
        self.n_features = model.n_features_in_
        self.noise = float(np.mean(model.noise_variance_))
        self.intercept = float(posterior.offset_variance)
        self.taken: list[tuple[np.ndarray, float]] = []
        self.multiply = posterior.form.multiply

    def __call__(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """Var f(x), and half its gradient."""
        variance, along, _ = self._covariance(x)
        gradient = np.zeros(self.n_features)
        gradient[self.indices] = self.scale * along
        return variance, gradient

    def measure(self, x: np.ndarray) -> None:
        """Condition on a measurement at x."""
        variance, along, constant = self._covariance(x)
        root = np.sqrt(self.noise + variance)
        self.taken.append((along / root, constant / root))

    def _covariance(self, x: np.ndarray) -> tuple[float, np.ndarray, float]:
        """Var f(x), and the covariance of f(x) with the weights and with the intercept."""
        phi = self.scale * x[self.indices] - self.means
        along, constant = self.multiply(phi), self.intercept
        for u, c in self.taken:
            shared = phi @ u + c
            along, constant = along - shared * u, constant - shared * c
        return max(float(phi @ along + constant), 0.0), along, constant


def _most_uncertain(spread: _Spread, norm: float, rng: np.random.Generator) -> np.ndarray:
    start = rng.standard_normal(spread.n_features)
    # Away from the origin f is not symmetric: x and -x climb to different tops.
    starts = [start, -start] if np.any(spread.means) else [start]
    return max((_climb(spread, norm, s) for s in starts), key=lambda top: top[0])[1]


def _climb(spread: _Spread, norm: float, x: np.ndarray) -> tuple[float, np.ndarray]:
    x = norm * x / np.linalg.norm(x)
    variance, gradient = spread(x)
    for _ in range(_STEPS):
        length = np.linalg.norm(gradient)
        if length == 0.0:
            break
        new = norm * gradient / length
        before, (variance, gradient) = variance, spread(new)
        x = new
        if variance - before <= _FLAT * variance:
            break
    return variance, x


def _greedy(model: Any, pool: np.ndarray, n: int) -> np.ndarray:
    """Indices of n rows of the pool, each the most uncertain given the rows before it."""
    noise = float(np.mean(model.noise_variance_))
    variance = model.predict(pool, return_std=True)[1] ** 2 - noise
    taken: list[np.ndarray] = []
    chosen: list[int] = []
    for _ in range(n):
        best = int(np.argmax(np.where(np.isin(np.arange(len(pool)), chosen), -np.inf, variance)))
        chosen.append(best)
        if len(chosen) == n:
            break
        shared = _covariances(model, pool, best)
        for u in taken:
            shared = shared - u[best] * u
        u = shared / np.sqrt(noise + max(shared[best], 0.0))
        taken.append(u)
        variance = variance - u**2
    return np.array(chosen)


def _covariances(model: Any, pool: np.ndarray, i: int) -> np.ndarray:
    """Covariance of f at row i with f at every row of the pool, in blocks of rows."""
    out = np.empty(len(pool))
    for start in range(0, len(pool), _ROWS):
        rows = pool[start : start + _ROWS]
        joint = model.predict(np.vstack([pool[i : i + 1], rows]), return_cov=True)[1]
        out[start : start + _ROWS] = joint[0, 1:]
    return out


def _checked(model: Any) -> Any:
    check_is_fitted(model)
    if not hasattr(model, "noise_variance_"):
        raise ValueError(
            f"{type(model).__name__} has no noise_variance_: choosing measurements needs a "
            "regressor with a Gaussian predictive distribution."
        )
    if getattr(model, "noise_model_", None) is not None:
        raise ValueError(
            "Choosing measurements takes one level of noise for all of them: fit with "
            "noise_variance='learn' or a number, not 'input'."
        )
    return model


def _is_fitted(model: Any) -> bool:
    try:
        check_is_fitted(model)
    except NotFittedError:
        return False
    return True
