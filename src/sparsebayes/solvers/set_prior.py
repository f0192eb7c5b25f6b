"""The prior on how many columns or groups are in a model, and so the price of one more.

Without such a prior (Tipping's flat prior on the logarithm of the precisions) the best of m noise
columns enters as soon as m is large, and with more columns than rows the model explains every row.
With "learn" every number of columns is as likely as every other and every set of k columns as every
other such set, so that one more of k costs log((m - k)/(k + 1)) nats (not less than nothing).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln


@dataclass(frozen=True)
class SetPrior:
    """Log prior of a set of k among m columns; `inclusion` None, a probability or "learn".

    Examples
    --------
    >>> from sparsebayes.solvers.set_prior import SetPrior
    >>> round(SetPrior("learn", 100).price(0), 2), round(SetPrior("learn", 100).price(3), 2)
    (4.61, 3.19)
    """

    inclusion: float | str | None
    m: int

    def log(self, k: int) -> float:
        """Log prior of one set of k columns; never higher for more columns."""
        if self.inclusion is None:
            return 0.0
        if self.inclusion == "learn":
            k = min(k, self.m // 2)
            return float(gammaln(k + 1) + gammaln(self.m - k + 1) - gammaln(self.m + 1))
        probability = float(self.inclusion)
        return k * min(0.0, float(np.log(probability) - np.log1p(-probability)))

    def price(self, k: int) -> float:
        """Return the cost of the (k + 1)st column."""
        return self.log(k) - self.log(k + 1)
