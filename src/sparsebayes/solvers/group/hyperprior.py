"""Weak prior of the learnt hyperparameters, and the nodes at which they are averaged.

Type-II maximum likelihood is overconfident. Few rows hardly distinguish few strong groups from many
weak ones, and the maximum of the evidence often lies at many weak groups with too little noise.
Learnt hyperparameters therefore have a prior,

    p0 ~ Beta(1, b) on p0 <= 1/2,   v0 flat in log v0,   p(sigma2) ~ sigma2^(c - 1),

where the mean 1/(1 + b) of p0 is at most 1/8, and low enough that the weights expected in the model
number a quarter of the rows. c is the number of columns per row, but at least 1, which is a flat
prior, and at most 1.5: with more columns than rows the evidence hardly tells the noise from weak
weights, and too little noise makes many groups look certain. EP learns the mode in (logit p0,
log v0, log sigma2). After EP the sum over models (`enumeration`) is averaged over the nodes of this
module: p0 over all its values, v0 within a factor of four of its mode, sigma2 by Gauss-Hermite
quadrature. With more columns than rows there are EP runs at several sigma2, of flat prior, instead
of that quadrature (`noise_runs`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import log_expit, logit, logsumexp

# A learnt p0: where signals are weak the evidence hardly distinguishes few strong groups from all
# groups weak, and with all in nothing is selected.
LARGEST_PRIOR = 0.5
_LARGEST_MEAN = 0.125  # prior mean of p0; tuned on `benchmarks/group.py calibration`, draws 0 to 11
_ROWS_USED = 0.25  # weights expected in the model, per row
_STEEPEST = 1.5  # most of c
_PRIOR_NODES = 15  # values of p0
_SLAB_FACTORS = np.array([0.25, 0.5, 1.0, 2.0, 4.0])


class Nodes(NamedTuple):
    """Offsets of the logarithm (or logit) of a hyperparameter from its mode, and log weights."""

    offset: np.ndarray
    log_weight: np.ndarray


_NO_NODES = Nodes(np.zeros(1), np.zeros(1))


@dataclass(frozen=True)
class Hyperprior:
    """Prior of the hyperparameters that are learnt; see the module docstring.

    Parameters
    ----------
    b : float
        The second parameter of the Beta(1, b) prior of the inclusion prior p0.
    learn : tuple of str
        Which of "inclusion_prior", "slab_variance" and "noise_variance" are learnt.
    c : float, default=1.0
        The prior of the noise variance is proportional to its power c - 1.

    Examples
    --------
    >>> from sparsebayes.solvers.group.hyperprior import Hyperprior
    >>> Hyperprior.for_size(100, 50, ("inclusion_prior",)).b
    7.0
    """

    b: float
    learn: tuple[str, ...]
    c: float = 1.0

    @classmethod
    def for_size(cls, n_observations: float, n_columns: int, learn: tuple[str, ...]) -> Hyperprior:
        """Return the prior for a problem of this size."""
        mean = min(_LARGEST_MEAN, _ROWS_USED * n_observations / n_columns)
        steepness = float(np.clip(n_columns / n_observations, 1.0, _STEEPEST))
        return cls(1.0 / mean - 1.0, learn, steepness)

    def log_density(self, log_odds: float, log_noise: float) -> float:
        """Return the log density at logit p0 and log sigma2, up to a constant."""
        density = 0.0
        if "inclusion_prior" in self.learn:
            density += log_expit(log_odds) + self.b * log_expit(-log_odds)
        return float(density + (self.c * log_noise if "noise_variance" in self.learn else 0.0))

    def prior_nodes(self, log_odds: float, n_groups: int) -> Nodes:
        """Return nodes of p0 from half a group to `LARGEST_PRIOR`; `log_odds` is its mode."""
        if "inclusion_prior" not in self.learn:
            return _NO_NODES
        least = min(0.5 / n_groups, 0.5 * LARGEST_PRIOR)
        value = np.linspace(logit(least), logit(LARGEST_PRIOR), _PRIOR_NODES)
        log_weight = log_expit(value) + self.b * log_expit(-value)
        return Nodes(value - log_odds, log_weight - logsumexp(log_weight))

    def slab_nodes(self) -> Nodes:
        """Return nodes of v0."""
        if "slab_variance" not in self.learn:
            return _NO_NODES
        count = len(_SLAB_FACTORS)
        return Nodes(np.log(_SLAB_FACTORS), np.full(count, -np.log(count)))

    def noise_nodes(self, degrees_of_freedom: float) -> Nodes:
        """Return nodes of sigma2, whose logarithm has a variance of about 2/dof."""
        if "noise_variance" not in self.learn:
            return _NO_NODES
        value = np.sqrt(6.0 / max(degrees_of_freedom, 2.0)) * np.array([-1.0, 0.0, 1.0])
        # The weights over the normal density at the nodes: +-sqrt(3) standard deviations.
        log_weight = np.log([1.0, 4.0, 1.0]) + 1.5 * np.array([1.0, 0.0, 1.0]) + self.c * value
        return Nodes(value, log_weight - logsumexp(log_weight))
