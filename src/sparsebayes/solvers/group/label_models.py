"""Models of several groups for labels, each with row sites of its own.

`probit` fits the row sites to the mixture of all models. They are poor for a model that is far from
that mixture. Where the classes are separable the latent function is large and the sites have next
to no precision, so that with them the empty model costs nothing, while its likelihood is 2^-n.

Here the row sites are fitted to each model z. The weights of its groups have their slabs, the
groups that are not enumerated keep their Gaussian sites N(S nu, S), and so the prior of the latent
function is f = offset + Phi_z u, u ~ N(0, I). EP with row sites alone (`probit`) gives

    log Z_z = -1/2 log|I + Phi_z'T Phi_z| + 1/2 |R^-T Phi_z'T y|^2 + sum_i c (eta m0 - tau m0^2/2)
              + sum_i c [log Z_i - 1/2 log(1 - tau s) - (1 - tau s)(eta^2 v + 2 eta m - tau m^2)/2],

with T = diag(c tau), m0 the offset, y = eta/tau - m0, R'R = I + Phi_z'T Phi_z and cavities m, v.
For a Gaussian prior this is accurate: to .02 on 20 labels at v0 = 1, to .2 where 20 to 100 labels
are separable and v0 = 100. It is stationary in the sites at their fixed point, so that few sweeps
from the common sites, or from those at another v0, are enough.

Models are fitted in the order of their weights under the common sites, until those that are left
are `_DROP` nats below the heaviest fitted one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dtrtri

from ...posterior import ModelMixture
from .probit import matched_site, tilted

_SWEEPS = 40  # at most
_CHANGE = 1e-3  # of the log evidence, at which a fit has ended, unless `LabelRows` has another
_DIGITS = 1e-7  # of the log evidence, likewise: weights of 1e8 labels make it as uncertain
_DAMPING, _LEAST_DAMPING = 0.9, 0.2
_FALLEN, _RISEN = 0.7, 1.1  # factors on the damping of a model whose evidence has fallen, or risen
_SMALLEST_TAU = 1e-10  # precision of a row site
_SMALLEST_VARIANCE = 1e-10  # of a latent value, against the unit noise
_DROP = 9.0  # nats below the heaviest model at which a model takes no part
_MOST = 256  # models to fit at most
_LEAST = 32  # models that are fitted whatever the work
_WORK = 2e9  # rows times squared columns times models
_KEPT = 1024  # models that a posterior keeps at most
_ENTRIES = 2e7  # of their likelihoods
_AT_ONCE = 2e5  # entries of the columns of models that are fitted together
_AHEAD = 8  # models that are fitted together at first, later as many as there are already


class LabelRows(NamedTuple):
    """The rows of a probit model and their sites after EP; see `probit`."""

    X: np.ndarray  # columns in the order of the form
    t: np.ndarray
    copies: np.ndarray
    power: np.ndarray
    tau: np.ndarray
    eta: np.ndarray
    change: float = _CHANGE  # of the log evidence at which the fit of a model has ended


class _Fit(NamedTuple):
    """The row sites of one model, and its evidence."""

    tau: np.ndarray
    eta: np.ndarray
    log_evidence: float


class LabelModels:
    """Evidence and likelihood of models under row sites of their own.

    Parameters
    ----------
    rows : LabelRows
        The labels, and the sites that every fit starts from.
    inside : array of shape (n_rows, k)
        Columns of the enumerated groups, then those of groups that are always in.
    outside : array of shape (n_rows, r)
        Root of the covariance that the other groups give the latent function.
    offset : array of shape (n_rows,)
        The mean that they give it.
    position : array of int of shape (at most k,)
        The group of each enumerated column.
    slab : array of shape (k,)
        Standard deviation of each of their weights under the slab.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.solvers.group.label_models import LabelModels, LabelRows
    >>> x, t, one = np.array([[1.0], [-2.0], [2.0]]), np.array([1.0, -1.0, 1.0]), np.ones(3)
    >>> rows = LabelRows(x, t, one, one, 0.5 * one, 0.5 * t)
    >>> models = LabelModels(rows, x, np.empty((3, 0)), np.zeros(3), np.zeros(1, int), np.ones(1))
    >>> np.exp(models.log_evidence(np.array([[False], [True]]))).round(3)
    array([0.125, 0.303])
    """

    def __init__(
        self,
        rows: LabelRows,
        inside: np.ndarray,
        outside: np.ndarray,
        offset: np.ndarray,
        position: np.ndarray,
        slab: np.ndarray,
    ) -> None:
        self.rows, self.inside, self.outside, self.offset = rows, inside, outside, offset
        self.position, self.slab = position, slab
        self._fits: dict[tuple[bytes, float], _Fit] = {}
        self._factors: list[float] = []  # of the slab variances, at which models were fitted

    @property
    def most(self) -> int:
        """Number of models to fit at most."""
        columns = self.inside.shape[1] + self.outside.shape[1]
        work = len(self.offset) * max(columns, 1) ** 2
        return int(np.clip(_WORK / work, _LEAST, _MOST))

    @property
    def most_kept(self) -> int:
        """Number of models that a posterior keeps at most."""
        return int(np.clip(_ENTRIES / max(len(self.slab), 1) ** 2, 1, _KEPT))

    def log_evidence(self, chosen: np.ndarray, factor: float = 1.0) -> np.ndarray:
        """Return the log evidence of each model, its slab variances multiplied by `factor`."""
        self._fit_all(chosen, factor)
        return np.array([self._fit(z, factor).log_evidence for z in chosen])

    def likelihoods(self, chosen: np.ndarray, factor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return W and z of the likelihoods exp(-|z - W w|^2/2) that the sites of models give."""
        fits = [self._fit(z, float(x)) for z, x in zip(chosen, factor, strict=True)]
        taus, etas = np.array([fit.tau for fit in fits]), np.array([fit.eta for fit in fits])
        count, k = self.outside.shape[1], self.inside.shape[1]
        columns = np.column_stack([self.outside, self.inside])
        step = max(1, int(_AT_ONCE / ((len(columns) + count) * (count + k + 1))))
        parts = []
        for first in range(0, len(fits), step):
            tau, eta = taus[first : first + step], etas[first : first + step]
            root = np.sqrt(self.rows.copies * tau)
            data = np.zeros((len(tau), count + len(columns), count + k + 1))
            data[:, :count, :count] = np.eye(count)  # the prior of what the other groups give
            data[:, count:, :-1] = root[:, :, None] * columns
            data[:, count:, -1] = root * (eta / tau - self.offset)
            R = np.asarray(np.linalg.qr(data, mode="r"))
            parts.append(R[:, count : count + k, count:])
        R = np.concatenate(parts)
        return R[:, :, :-1], R[:, :, -1]

    def mixture(self, weight: np.ndarray, chosen: np.ndarray, factor: np.ndarray) -> ModelMixture:
        """Return models as a mixture; `factor` is that of the slab variances of each."""
        W, target = self.likelihoods(chosen, factor)
        slab = np.array([self._slab(x) for x in factor])
        inside = np.array([self._inside(z) for z in chosen])
        return ModelMixture(weight, inside, W, target, slab, np.arange(len(weight)))

    def weigh(
        self, chosen: np.ndarray, log_weight: np.ndarray, log_odds: np.ndarray, start: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, bool]:
        """Fit the models that matter, `start` first.

        Parameters
        ----------
        chosen : array of bool of shape (n_models, n_groups)
            The models.
        log_weight : array of shape (n_models,)
            Log evidence of each under the common row sites, with its prior log-odds.
        log_odds : array of shape (n_groups,)
            Prior log-odds of each group.
        start : array of bool of shape (n_groups,)
            A model.

        Returns
        -------
        which : array of int
            The models that were fitted.
        log_weight : array
            Log evidence of each with its prior log-odds.
        complete : bool
            Whether no model was left out that mattered.
        """
        best = -np.inf
        fitted: dict[int, float] = {}
        waiting = np.array(log_weight, dtype=float)
        waiting[np.all(chosen == start, axis=1) | np.all(chosen, axis=1)] = np.inf
        while np.max(waiting) > best - _DROP and len(fitted) < self.most:
            i = int(np.argmax(waiting))
            if (chosen[i].tobytes(), 1.0) not in self._fits:
                ahead = np.argsort(-waiting, kind="stable")[: max(_AHEAD, len(fitted))]
                self._fit_all(chosen[ahead[waiting[ahead] > best - _DROP]], 1.0)
            fitted[i] = self._fit(chosen[i], 1.0).log_evidence + float(chosen[i] @ log_odds)
            best, waiting[i] = max(best, fitted[i]), -np.inf
        which = np.array(list(fitted))
        complete = bool(np.max(waiting) <= best - _DROP)
        return which, np.array([fitted[i] for i in which]), complete

    def _inside(self, z: np.ndarray) -> np.ndarray:
        """Return which columns a model has."""
        always = np.ones(len(self.slab) - len(self.position), dtype=bool)
        return np.concatenate([z[self.position], always])

    def _slab(self, factor: float) -> np.ndarray:
        """Return the slab standard deviations; those of groups always in are not multiplied."""
        slab = self.slab.copy()
        slab[: len(self.position)] *= np.sqrt(factor)
        return slab

    def _fit(self, z: np.ndarray, factor: float) -> _Fit:
        key = z.tobytes(), float(factor)
        if key not in self._fits:
            self._fit_all(z[None], factor)
        return self._fits[key]

    def _fit_all(self, chosen: np.ndarray, factor: float) -> None:
        """Fit the row sites of the models that have none yet, many at once."""
        fresh = {key: z for z in chosen if (key := (z.tobytes(), float(factor))) not in self._fits}
        inside = {key: np.flatnonzero(self._inside(z)) for key, z in fresh.items()}
        # Models of like size together: the smaller ones are padded with columns of zeros.
        keys = sorted(fresh, key=lambda key: len(inside[key]))
        while keys:
            columns = len(inside[keys[-1]]) + self.outside.shape[1]
            count = max(1, int(_AT_ONCE / (len(self.offset) * max(columns, 1))))
            batch, keys = keys[-count:], keys[:-count]
            starts = [self._nearest_fit(z, factor) for z, _ in batch]
            Phi = self._columns([inside[key] for key in batch], factor)
            tau, eta = (np.array(x) for x in zip(*((x.tau, x.eta) for x in starts), strict=True))
            self._fits.update(zip(batch, self._fit_rows(Phi, tau, eta), strict=True))
        if factor not in self._factors:
            self._factors.append(float(factor))

    def _nearest_fit(self, z: bytes, factor: float) -> _Fit | LabelRows:
        """Return the fit of a model at the nearest slab variance, or the common sites."""
        factors = [f for f in self._factors if (z, f) in self._fits]
        if not factors:
            return self.rows
        return self._fits[z, min(factors, key=lambda f: abs(np.log(f / factor)))]

    def _columns(self, inside: list[np.ndarray], factor: float) -> np.ndarray:
        """Return Phi_z of each model, of shape (n_models, n_rows, n_columns)."""
        slab, start = self._slab(factor), self.outside.shape[1]
        width = start + max(len(x) for x in inside)
        Phi = np.zeros((len(inside), len(self.offset), max(width, 1)))  # LAPACK wants a column
        Phi[:, :, :start] = self.outside
        for row, columns in zip(Phi, inside, strict=True):
            row[:, start : start + len(columns)] = self.inside[:, columns] * slab[columns]
        return Phi

    def _fit_rows(self, Phi: np.ndarray, tau: np.ndarray, eta: np.ndarray) -> list[_Fit]:
        """EP of the row sites for f = offset + Phi u, u ~ N(0, I), for each model by itself."""
        t, copies, power, offset = self.rows.t, self.rows.copies, self.rows.power, self.offset
        fits = [_Fit(x, y, -np.inf) for x, y in zip(tau, eta, strict=True)]
        running, xi = np.arange(len(fits)), np.full((len(fits), 1), _DAMPING)
        for _ in range(_SWEEPS):
            PhiT = np.swapaxes(Phi, 1, 2)
            A = (PhiT * (copies * tau)[:, None]) @ Phi
            np.einsum("zii->zi", A)[...] += 1.0
            R = np.linalg.cholesky(A)
            G = np.array([dtrtri(L, lower=1)[0] for L in R]) @ PhiT
            u = np.einsum("zkn,zn->zk", G, copies * (eta - tau * offset))
            s = np.einsum("zkn,zkn->zn", G, G)
            s = np.clip(s, _SMALLEST_VARIANCE, (1.0 - 1e-12) / (copies * tau))
            share = 1.0 - tau * s
            m, v = (offset + np.einsum("zk,zkn->zn", u, G) - s * eta) / share, s / share
            log_Z, d1, d2 = tilted(t * m, v, power)
            log_Z = log_Z - 0.5 * np.log(share) + eta * offset - 0.5 * tau * offset**2
            log_Z -= 0.5 * share * (eta**2 * v + 2.0 * eta * m - tau * m**2)
            diagonal = np.einsum("zii->zi", R)
            total = log_Z @ copies - np.log(diagonal).sum(axis=1) + 0.5 * np.sum(u**2, axis=1)
            last = np.array([fits[i].log_evidence for i in running])
            finite = np.isfinite(total)
            for k in np.flatnonzero(finite):
                fits[running[k]] = _Fit(tau[k], eta[k], float(total[k]))
            enough = self.rows.change + _DIGITS * np.abs(total)
            goes_on = finite & ~(np.abs(total - last) < enough)
            if not np.any(goes_on):
                break
            new_tau, new_eta = matched_site(m, v, t * d1, d2, power)
            xi = xi * np.where(total < last, _FALLEN, _RISEN)[:, None]
            xi = np.clip(xi, _LEAST_DAMPING, _DAMPING)
            tau = np.maximum(tau + xi * (new_tau - tau), _SMALLEST_TAU * power)[goes_on]
            eta = (eta + xi * (new_eta - eta))[goes_on]
            Phi, running, xi = Phi[goes_on], running[goes_on], xi[goes_on]
        return fits
