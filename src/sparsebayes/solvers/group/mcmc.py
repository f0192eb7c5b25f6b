"""How well Markov chains have mixed: split R-hat and effective sample size."""

from __future__ import annotations

import numpy as np


def split_r_hat(series: np.ndarray) -> np.ndarray:
    """Split R-hat of each quantity (Gelman and others 2013, section 11.4).

    Each chain is cut into halves; R-hat compares the variance between halves with that within. A
    quantity that never moved has R-hat 1 if all chains agree on it and infinity if they do not.

    Parameters
    ----------
    series : array of shape (n_chains, n_samples, n_quantities)

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.solvers.group.mcmc import split_r_hat
    >>> chains = np.random.default_rng(0).standard_normal((4, 500, 1))
    >>> bool(split_r_hat(chains)[0] < 1.01)
    True
    >>> bool(split_r_hat(chains + np.arange(4)[:, None, None])[0] > 1.5)
    True
    """
    half = series.shape[1] // 2
    parts = np.concatenate([series[:, :half], series[:, -half:]]).astype(np.float64)
    within = parts.var(axis=1, ddof=1).mean(axis=0)
    between = parts.mean(axis=1).var(axis=0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.sqrt((half - 1) / half + between / within)
    return np.where(within > 0, ratio, np.where(between > 0, np.inf, 1.0))


def effective_sample_size(series: np.ndarray) -> np.ndarray:
    """Number of independent draws that would know the mean of each quantity as well.

    From the autocorrelations combined over the chains, summed while sums of neighbouring pairs stay
    positive (Geyer's initial positive sequence). A quantity that never moved counts every draw.

    Parameters
    ----------
    series : array of shape (n_chains, n_samples, n_quantities)

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.solvers.group.mcmc import effective_sample_size
    >>> chains = np.random.default_rng(0).standard_normal((4, 500, 1))
    >>> bool(abs(effective_sample_size(chains)[0] / 2000 - 1) < 0.2)
    True
    """
    n_chains, n, m = series.shape
    total = n_chains * n
    out = np.full(m, float(total))
    for j in range(m):  # one at a time: the transforms are as long as the chains
        x = series[:, :, j].astype(np.float64)
        within = x.var(axis=1, ddof=1).mean()
        if not within > 0:
            continue
        plus = within * (n - 1) / n
        if n_chains > 1:
            plus += x.mean(axis=1).var(ddof=1)
        rho = 1.0 - (within - _autocovariance(x).mean(axis=0)) / plus
        pairs = rho[: n - n % 2].reshape(-1, 2).sum(axis=1)
        last = np.argmax(pairs <= 0) if np.any(pairs <= 0) else len(pairs)
        tau = max(2.0 * pairs[:last].sum() - 1.0, 1.0 / np.log10(total))
        out[j] = total / tau
    return out


def _autocovariance(x: np.ndarray) -> np.ndarray:
    """Of each chain (rows), all lags, normalised so that lag 0 is the unbiased variance."""
    n = x.shape[1]
    size = 2 ** int(np.ceil(np.log2(2 * n)))
    f = np.fft.rfft(x - x.mean(axis=1, keepdims=True), size, axis=1)
    return np.fft.irfft(f * f.conj(), size, axis=1)[:, :n] / (n - 1)
