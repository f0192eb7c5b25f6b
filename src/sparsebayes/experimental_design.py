"""Bayesian experimental design (section 4 of Hernández-Lobato and others 2013; MacKay 1992).

A new observation at x, with the EP sites fixed, lowers the entropy of the weights by

    gain(x) = 1/2 log(1 + Var f(x) / sigma2),      f(x) = x'w, plus an intercept where there is one,

whatever its outcome, so the most informative point has the largest predictive variance. (The paper
writes "log H" for H in (30) and (31); the conclusion is the same.)

Var f grows with |x|^2, and the rows of a pool are compared as they are; normalise them first if
they should be compared by direction only. Without a pool, the candidate is the vector of given norm
that maximises Var f. Without an intercept that is the leading eigenvector of the covariance V,
computed by the power iteration x <- norm V x/|V x| in O(n d) per step, without forming V. With an
intercept f is centred at the mean of the rows, and the step x <- norm V (x - mean)/|V (x - mean)|
maximises a convex function on a sphere, so it never decreases Var f either. The leading eigenvalues
of V are often nearly equal, so the iteration stops when the variance stops growing.

Several points are chosen one after the other, each with the covariance given the earlier ones: C(x,
x') - C(x, a) C(a, x') / (sigma2 + Var f(a)), which does not depend on the outcome at a.

Labels. The information of a label at x about f(x) ~ N(m, v), the latent function without noise, is

    gain(x) = h(E Phi(f)) - E h(Phi(f)),      h(p) = -p log p - (1 - p) log(1 - p),

the mutual information of label and weights (Houlsby and others 2011), an integral in one dimension.
It decreases with |m|, because a label that can be predicted carries no information. In a batch a
chosen row counts as an observation of f with the expected precision of its label. Without a pool,
the row is found by gradient ascent from the row of largest variance.

Groups. The mutual information of a measurement and the enumerated models z is the entropy of the
mixture of their predictions minus the mean of their entropies,

    H[sum_z p(z) N(m_z, v_z + sigma2)] - sum_z p(z) H[N(m_z, v_z + sigma2)],

one integral per row; for labels both entropies are h. Without a pool, candidates are the leading
eigenvectors of the covariance of the models' means, and combinations of them. If all models agree,
or none were enumerated, the criterion is that of the weights.
"""

from __future__ import annotations

from copy import deepcopy
from typing import cast

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import entr, ndtr
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted

from ._array import RandomState
from .posterior import Covariance, Posterior

_STEPS = 300
_FLAT = 1e-6  # relative growth of the variance in a power step at which it has stopped growing
_ROWS = 256  # candidates whose joint covariance is formed at a time
_NODES, _MASS = np.polynomial.hermite_e.hermegauss(40)
_MASS = _MASS / np.sum(_MASS)
_GRID = np.linspace(-5.0, 5.0, 201)  # in standard deviations: where a mixture is integrated
_MODELS = 200  # that a measurement is to tell apart, at most
_DIRECTIONS, _TRIALS = 8, 200  # of a free row about groups
_NOTHING = 1e-6  # nats
_SMALL = 1e-5  # step of a finite difference


def information_gain(model: BaseEstimator, X: ArrayLike, target: str = "weights") -> np.ndarray:
    """Return the expected information gain of a measurement at each row, in nats.

    Parameters
    ----------
    model : fitted regressor or GroupSpikeSlabClassifier of two classes
        A regressor of this package with a Gaussian predictive distribution.
    X : array of shape (n_candidates, n_features)
        Rows that could be measured.
    target : {"weights", "groups"}, default="weights"
        Unknowns about which information is gained: all weights, or which groups are in the model
        (group spike-and-slab models only).

    Returns
    -------
    gain : array of shape (n_candidates,)

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes import GroupSpikeSlabRegressor
    >>> from sparsebayes.experimental_design import information_gain
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((20, 3))
    >>> model = GroupSpikeSlabRegressor().fit(X, X[:, 0] + 0.1 * rng.standard_normal(20))
    >>> gain = information_gain(model, np.array([[0.1, 0.0, 0.0], [10.0, 0.0, 0.0]]))
    >>> bool(gain[1] > gain[0] > 0)
    True
    """
    model = _checked(model, target)
    if target == "groups":
        return _told_about_groups(model, check_array(X, dtype=np.float64))
    if is_classifier(model):
        return _told_by_label(*_latent(model, check_array(X, dtype=np.float64)))
    std = model.predict(X, return_std="function")[1].astype(np.float64)
    return 0.5 * np.log1p(std**2 / _noise(model))


def propose(
    model: BaseEstimator,
    norm: float = 1.0,
    n: int = 1,
    random_state: RandomState = 0,
    target: str = "weights",
) -> np.ndarray:
    """Return the most informative rows of a given norm.

    Parameters
    ----------
    model : fitted regressor, or GroupSpikeSlabClassifier of two classes
        A linear model in the columns of X: the group models, or another with ``kernel=None``.
    norm : float, default=1.0
        Euclidean length of each row.
    n : int, default=1
        Number of rows, to be measured together.
    random_state : int, RandomState or None, default=0
        Seed of the start of the power iteration.
    target : {"weights", "groups"}, default="weights"
        As in `information_gain`; ``"groups"`` requires ``n=1``.

    Returns
    -------
    X : array of shape (n, n_features)

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes import GroupSpikeSlabRegressor
    >>> from sparsebayes.experimental_design import propose
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((20, 3))
    >>> model = GroupSpikeSlabRegressor().fit(X, X[:, 0] + 0.1 * rng.standard_normal(20))
    >>> propose(model, norm=2.0).shape
    (1, 3)
    """
    if not norm > 0:
        raise ValueError(f"norm must be positive, got {norm!r}.")
    spread = _Spread(_checked(model, target, n))
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))
    if target == "groups":
        rows = _where_models_differ(model, spread, float(norm), rng)
        gain = _told_about_groups(model, rows) if len(rows) else np.zeros(1)
        if np.max(gain) > _NOTHING:
            return rows[[int(np.argmax(gain))]]
    chosen = np.empty((n, model.n_features_in_))
    for i in range(n):
        chosen[i] = _most_uncertain(spread, float(norm), rng)
        spread.measure(chosen[i])
    return chosen


class SequentialDesign:
    """Sequential experimental design: `ask` returns the next row, `tell` adds its result.

    Parameters
    ----------
    model : regressor or GroupSpikeSlabClassifier
        Model whose parameters are used. It is refitted after each `tell`, from the previous
        solution if it has ``warm_start``. With a fitted model, `ask` can be called at once.
    X, y : arrays, optional
        Rows measured so far.

    Attributes
    ----------
    model_ : fitted model
        The model after the last `tell`.
    X_, y_ : arrays
        All rows measured so far.
    asked_ : array of int
        Indices of the rows of the pool that the last `ask` chose.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes import GroupSpikeSlabRegressor
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

    def __init__(
        self, model: BaseEstimator, X: ArrayLike | None = None, y: ArrayLike | None = None
    ) -> None:
        self.model = model
        self.X_: np.ndarray | None = None
        self.y_: np.ndarray | None = None
        self.model_: BaseEstimator | None = None
        if X is not None:
            self.tell(X, cast(ArrayLike, y))
        elif _is_fitted(model):
            self.model_ = deepcopy(model)

    def ask(
        self,
        candidates: ArrayLike | None = None,
        n: int = 1,
        *,
        norm: float = 1.0,
        random_state: RandomState = 0,
        target: str = "weights",
    ) -> np.ndarray:
        """Return the n rows to measure next.

        Parameters
        ----------
        candidates : array of shape (n_candidates, n_features), optional
            Pool of rows to choose from. Without a pool, any row of length `norm` can be chosen.
        n : int, default=1
            Number of rows, to be measured together.
        norm : float, default=1.0
            Length of the row if there is no pool.
        random_state : int, RandomState or None, default=0
            Seed of the power iteration if there is no pool.
        target : {"weights", "groups"}, default="weights"
            As in `information_gain`; ``"groups"`` requires ``n=1``.

        Returns
        -------
        X : array of shape (n, n_features)
        """
        if self.model_ is None:
            raise NotFittedError("This design has no measurements yet. Call tell(X, y) before ask.")
        if candidates is None:
            return propose(self.model_, norm, n, random_state, target)
        pool = check_array(candidates, dtype=np.float64)
        if n > len(pool):
            raise ValueError(f"{n} rows were requested from a pool of {len(pool)} rows.")
        model = _checked(self.model_, target, n)
        gain = _told_about_groups(model, pool) if target == "groups" else np.zeros(1)
        if np.max(gain) > _NOTHING:
            self.asked_ = np.array([int(np.argmax(gain))])
        else:
            self.asked_ = _greedy(model, pool, n)
        return pool[self.asked_]

    def tell(self, X: ArrayLike, y: ArrayLike) -> SequentialDesign:
        """Add measurements and refit.

        Parameters
        ----------
        X : array of shape (n_rows, n_features), or one row
            Rows that were measured.
        y : array of shape (n_rows,), or one number or label
            Measured values or labels.

        Returns
        -------
        self
        """
        X, y = np.atleast_2d(np.asarray(X, dtype=np.float64)), np.atleast_1d(y)
        if y.shape != (len(X),):
            raise ValueError(
                f"X has {len(X)} rows, but y has shape {y.shape}; pass one value per row."
            )
        if self.X_ is None and self.model_ is not None:
            raise ValueError(
                "The training rows of this model are not known. Pass them as "
                "SequentialDesign(model, X, y) before adding new measurements."
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

    def __init__(self, model: BaseEstimator) -> None:
        basis, posterior = model.basis_, model.posterior_
        self.labels = is_classifier(model)
        columns = basis.columns() if self.labels else basis
        if columns.indices is None:
            raise ValueError(
                f"{type(model).__name__} is not linear in the columns of X. Pass a pool of "
                "candidate rows."
            )
        self.indices, self.scale = columns.indices, columns.scale
        self.means = basis.means if self.labels else basis.centre
        self.n_features = model.n_features_in_
        self.intercept = float(posterior.offset_variance)
        self.taken: list[tuple[np.ndarray, float]] = []
        self.multiply, self.mean, self.constant = posterior.form.multiply, posterior.mean, 0.0
        if self.labels:
            self.means = (self.means * basis.scale)[columns.indices]
            self._without_intercept(posterior, len(columns))
        else:
            self.noise = float(np.mean(model.noise_variance_))

    def _without_intercept(self, posterior: Posterior, d: int) -> None:
        """Labels have the intercept among their weights, the last one: it is never 0 in a row."""
        self.tail = len(posterior.mean) - d
        self.constant = float(np.sum(posterior.mean[d:]))
        self.mean = posterior.mean[:d]

    def __call__(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """Var f(x), and half its gradient."""
        variance, along, _ = self._covariance(x)
        return variance, self.by_feature(along[: len(self.indices)])

    def by_feature(self, values: np.ndarray) -> np.ndarray:
        """A vector over the columns, as one over the features of X."""
        return np.bincount(self.indices, self.scale * values, minlength=self.n_features)

    def label_gain(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the expected information of a label at x, and its gradient."""
        variance, along, _ = self._covariance(x)
        m = float(self._columns(x)[: len(self.indices)] @ self.mean) + self.constant
        at = np.array([m, m + _SMALL, m]), np.array([variance, variance, variance + _SMALL])
        gain, by_m, by_v = _told_by_label(*at)
        by_m, by_v = (by_m - gain) / _SMALL, (by_v - gain) / _SMALL
        gradient = by_m * self.by_feature(self.mean)
        return float(gain), gradient + 2.0 * by_v * self.by_feature(along[: len(self.indices)])

    def measure(self, x: np.ndarray) -> None:
        """Condition on a measurement at x."""
        variance, along, constant = self._covariance(x)
        noise = 0.0
        if self.labels:
            m = float(self._columns(x)[: len(self.indices)] @ self.mean) + self.constant
            noise = float(_label_noise(np.array([m]), np.array([variance]))[0])
        root = np.sqrt((noise if self.labels else self.noise) + variance)
        self.taken.append((along / root, constant / root))

    def _columns(self, x: np.ndarray) -> np.ndarray:
        phi = self.scale * x[self.indices] - self.means
        return np.append(phi, np.ones(self.tail)) if self.labels else phi

    def _covariance(self, x: np.ndarray) -> tuple[float, np.ndarray, float]:
        """Var f(x), and the covariance of f(x) with the weights and with the intercept."""
        phi = self._columns(x)
        along, constant = self.multiply(phi), self.intercept
        for u, c in self.taken:
            shared = phi @ u + c
            along, constant = along - shared * u, constant - shared * c
        return max(float(phi @ along + constant), 0.0), along, constant


def _most_uncertain(spread: _Spread, norm: float, rng: np.random.Generator) -> np.ndarray:
    start = rng.standard_normal(spread.n_features)
    # Away from the origin f is not symmetric: x and -x climb to different tops.
    starts = [start, -start] if np.any(spread.means) else [start]
    tops = [_climb(spread, norm, s) for s in starts]
    if spread.labels:
        tops = [_climb_label(spread, norm, x) for _, x in tops]
    return max(tops, key=lambda top: top[0])[1]


def _climb_label(spread: _Spread, norm: float, x: np.ndarray) -> tuple[float, np.ndarray]:
    gain, gradient = spread.label_gain(x)
    step = norm
    for _ in range(_STEPS):
        new = x + step * gradient / max(float(np.linalg.norm(gradient)), np.finfo(float).tiny)
        new *= norm / np.linalg.norm(new)
        now, slope = spread.label_gain(new)
        if now > gain:
            flat = now - gain <= _FLAT * now
            x, gain, gradient, step = new, now, slope, 2.0 * step
            if flat:
                break
        else:
            step *= 0.25
            if step < 1e-6 * norm:
                break
    return gain, x


def _latent(model: BaseEstimator, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of the latent function of labels."""
    Phi = model.basis_(X)
    return model.posterior_.at(Phi), model.posterior_.function_variance(Phi)


def _binary(p: np.ndarray) -> np.ndarray:
    return np.asarray(entr(p) + entr(1.0 - p))


def _told_by_label(m: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Mutual information of a label and the latent value f ~ N(m, v) behind it."""
    f = m[:, None] + np.sqrt(np.maximum(v, 0.0))[:, None] * _NODES
    gain = _binary(ndtr(m / np.sqrt(1.0 + v))) - _binary(ndtr(f)) @ _MASS
    return np.maximum(gain, 0.0)


def _label_noise(m: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Variance of the observation of f that a label is worth, averaged over both labels."""
    z = m / np.sqrt(1.0 + v)
    density = np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi)
    p = np.clip(ndtr(z), 1e-12, 1.0 - 1e-12)
    # Var f falls by v^2/(1 + v) times the mean of (d log Z/dz)^2, on average.
    fall = v**2 / (1.0 + v) * density**2 / (p * (1.0 - p))
    return np.asarray(v**2 / np.maximum(fall, np.finfo(float).tiny) - v)


def _told_about_groups(model: BaseEstimator, X: np.ndarray) -> np.ndarray:
    """Mutual information of a measurement at each row and which groups are in."""
    posterior = model.posterior_
    if not posterior.form.is_mixture:
        return np.zeros(len(X))
    out = np.empty(len(X))
    for start in range(0, len(X), _ROWS):
        rows = slice(start, start + _ROWS)
        Phi = posterior.centred(model.basis_(X[rows]))
        weight, means, variance = posterior.form.components(Phi)
        heavy = np.argsort(-weight, kind="stable")[:_MODELS]
        weight, means, variance = weight[heavy] / weight[heavy].sum(), means[heavy], variance[heavy]
        if is_classifier(model):
            p = ndtr((means + posterior.at(model.basis_(X[rows]))) / np.sqrt(1.0 + variance))
            out[rows] = _binary(weight @ p) - weight @ _binary(p)
        else:
            noise = posterior.noise_variance + posterior.offset_variance
            out[rows] = _mixture_gain(weight, means, np.sqrt(variance + noise))
    return np.maximum(out, 0.0)


def _mixture_gain(weight: np.ndarray, means: np.ndarray, std: np.ndarray) -> np.ndarray:
    """Entropy of mixtures (columns) less the mean entropy of their normal parts."""
    centre = weight @ means
    total = np.sqrt(weight @ ((means - centre) ** 2 + std**2))
    y = centre + total * _GRID[:, None]
    density = np.zeros_like(y)
    for w, m, s in zip(weight, means, std, strict=True):
        density += w / s * np.exp(-0.5 * ((y - m) / s) ** 2)
    density /= np.sqrt(2.0 * np.pi)
    entropy = np.sum(entr(density), axis=0) * (_GRID[1] - _GRID[0]) * total
    return entropy - weight @ (0.5 * np.log(2.0 * np.pi * std**2) + 0.5)


def _where_models_differ(
    model: BaseEstimator, spread: _Spread, norm: float, rng: np.random.Generator
) -> np.ndarray:
    """Rows of a given norm in which the models that were weighed disagree."""
    form = model.posterior_.form
    if not form.is_mixture:
        return np.empty((0, model.n_features_in_))
    apart = np.sqrt(form.mixture.weight)[:, None] * (form.mixture.means() - form.mean)
    count = min(_DIRECTIONS, *apart.shape)
    leading = np.linalg.svd(apart, full_matrices=False)[2][:count]
    ends = [spread.by_feature((form.gain @ u)[: len(spread.indices)]) for u in leading]
    mixed = np.vstack([np.eye(count), rng.standard_normal((_TRIALS, count))]) @ np.array(ends)
    length = np.linalg.norm(mixed, axis=1, keepdims=True)
    mixed = mixed[length[:, 0] > 0] / length[length[:, 0] > 0]
    return norm * np.vstack([mixed, -mixed])


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


def _greedy(model: BaseEstimator, pool: np.ndarray, n: int) -> np.ndarray:
    """Indices of n rows of the pool, each the most uncertain given the rows before it."""
    if is_classifier(model):
        return _greedy_labels(model, pool, n)
    noise = _noise(model)
    variance = model.predict(pool, return_std="function")[1] ** 2
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


def _greedy_labels(model: BaseEstimator, pool: np.ndarray, n: int) -> np.ndarray:
    Phi = model.basis_(pool)
    mean, variance = _latent(model, pool)
    taken: list[np.ndarray] = []
    chosen: list[int] = []
    for _ in range(n):
        gain = _told_by_label(mean, variance)
        gain[chosen] = -np.inf
        best = int(np.argmax(gain))
        chosen.append(best)
        shared = Phi @ model.posterior_.form.multiply(Phi[best])
        for u in taken:
            shared = shared - u[best] * u
        noise = _label_noise(mean[[best]], variance[[best]])[0]
        taken.append(shared / np.sqrt(noise + max(float(shared[best]), 0.0)))
        variance = np.maximum(variance - taken[-1] ** 2, 0.0)
    return np.array(chosen)


def _noise(model: BaseEstimator) -> float:
    """Return the noise variance of a new observation, calibrated like predictions."""
    return float(np.mean(model.noise_variance_) * np.mean(np.square(model.calibration_)))


def _covariances(model: BaseEstimator, pool: np.ndarray, i: int) -> np.ndarray:
    """Covariance of f at row i with f at every row of the pool, in blocks of rows."""
    out = np.empty(len(pool))
    for start in range(0, len(pool), _ROWS):
        rows = pool[start : start + _ROWS]
        joint = model.predict(np.vstack([pool[i : i + 1], rows]), return_cov=True)[1]
        out[start : start + _ROWS] = joint[0, 1:]
    return out


def _checked(model: BaseEstimator, target: str = "weights", n: int = 1) -> BaseEstimator:
    check_is_fitted(model)
    if target not in ("weights", "groups"):
        raise ValueError(f"target must be 'weights' or 'groups', got {target!r}.")
    if target == "groups":
        if not hasattr(model, "inclusion_probability_") or getattr(
            _form(model), "is_sample", False
        ):
            raise ValueError(
                "target='groups' requires a group spike-and-slab model fitted by EP with an "
                f"enumeration of its undecided groups; got {type(model).__name__}."
            )
        if n > 1:
            raise ValueError(
                "target='groups' chooses one row at a time, because the second depends on "
                f"the outcome of the first; got n={n}. Use n=1 or target='weights'."
            )
    if is_classifier(model) and hasattr(model, "inclusion_probability_"):
        if len(model.classes_) > 2:
            raise ValueError(
                "Experimental design supports two classes, but this model has "
                f"{len(model.classes_)}. Fit it to one class against the rest."
            )
        return model
    if not hasattr(model, "noise_variance_"):
        raise ValueError(
            f"{type(model).__name__} has no noise_variance_. Experimental design requires a "
            "regressor with a Gaussian predictive distribution."
        )
    if getattr(model, "noise_model_", None) is not None:
        raise ValueError(
            "Experimental design requires the same noise variance for all rows. Fit with "
            "noise_variance='learn' or a number, not 'input'."
        )
    return model


def _form(model: BaseEstimator) -> Covariance | None:
    return getattr(model.posterior_, "form", None)


def _is_fitted(model: BaseEstimator) -> bool:
    try:
        check_is_fitted(model)
    except NotFittedError:
        return False
    return True
