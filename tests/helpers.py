"""Dense, obvious formulas that the library's fast ones are held against."""

from __future__ import annotations

import warnings

import numpy as np


def warnings_of(call, *args, **options):
    """Call, and return the warnings that were given, as exceptions."""
    with warnings.catch_warnings(record=True) as entries:
        warnings.simplefilter("always")
        call(*args, **options)
    return [entry.message for entry in entries]


def dense_log_evidence(Phi, t, alpha, sigma2):
    """log N(t | 0, sigma2 I + Phi A^-1 Phi'), by the n x n formula."""
    C = sigma2 * np.eye(len(t)) + (Phi / alpha) @ Phi.T
    sign, log_det = np.linalg.slogdet(C)
    assert sign > 0
    return -0.5 * (len(t) * np.log(2 * np.pi) + log_det + t @ np.linalg.solve(C, t))


def dense_posterior(Phi, t, alpha, sigma2):
    """Mean and covariance of the weights, by the k x k formula."""
    covariance = np.linalg.inv(Phi.T @ Phi / sigma2 + np.diag(alpha))
    return covariance @ Phi.T @ t / sigma2, covariance


def intercept_log_evidence(Phi, t, alpha, sigma2, big=1e8):
    """The evidence with a flat prior on the intercept, as the limit of a wide one.

    N(b | 0, v) is 1/sqrt(2 pi v) near the origin, so adding log sqrt(2 pi v) makes it flat.
    """
    ones = np.ones((len(t), 1))
    wide = dense_log_evidence(np.hstack([Phi, ones]), t, np.append(alpha, 1 / big), sigma2)
    return wide + 0.5 * np.log(2 * np.pi * big)


def many_digits(Phi, t, lam, sigma2):
    """Posterior mean and log evidence in 60-digit arithmetic.

    The n x n formula in float64 is off by cond(C) eps, which for nearly collinear columns and small
    lam is more than the thing to be tested.
    """
    import mpmath

    with mpmath.workdps(60):
        M, T = mpmath.matrix(Phi.tolist()), mpmath.matrix(t.tolist())
        lam, sigma2 = [mpmath.mpf(float(x)) for x in lam], mpmath.mpf(float(sigma2))
        L = mpmath.cholesky(M.T * M + mpmath.diag(lam))
        b = mpmath.lu_solve(L, M.T * T)
        mean = mpmath.lu_solve(L.T, b)
        r = T - M * mean
        E = mpmath.fsum(x * x for x in r)
        E += mpmath.fsum(a * x * x for a, x in zip(lam, mean, strict=True))
        log_det = mpmath.fsum(2 * mpmath.log(L[i, i]) - mpmath.log(lam[i]) for i in range(len(lam)))
        evidence = -(len(t) * mpmath.log(2 * mpmath.pi * sigma2) + log_det + E / sigma2) / 2
        return np.array([float(x) for x in mean]), float(evidence)


def profiled_log_evidence(Phi, t, lam):
    """The dense evidence at the best noise for fixed lam = alpha sigma2."""
    P = np.linalg.inv(np.eye(len(t)) + (Phi / lam) @ Phi.T)
    sigma2 = t @ P @ t / len(t)
    return dense_log_evidence(Phi, t, lam / sigma2, sigma2)


def best_single_change(Phi, t, active, lam, sigma2=None, absent=True):
    """The most that moving one lam (to any value, or to absence) raises the dense evidence.

    Searched on a fine grid, without the closed forms of the library. `sigma2` None: the noise is
    at its best value before and after.
    """

    def evidence(columns, values):
        if sigma2 is None:
            return profiled_log_evidence(Phi[:, columns], t, values)
        return dense_log_evidence(Phi[:, columns], t, values / sigma2, sigma2)

    active, lam = list(active), np.asarray(lam, dtype=float)
    now = evidence(active, lam)
    gains = [0.0]
    grid = np.logspace(-8, 8, 65)
    for i in range(len(active)):
        rest = active[:i] + active[i + 1 :]
        gains.append(evidence(rest, np.delete(lam, i)) - now)
        for factor in (0.01, 0.1, 0.8, 0.9, 0.97, 1.03, 1.1, 1.25, 10.0, 1e3):
            trial = lam.copy()
            trial[i] *= factor
            gains.append(evidence(active, trial) - now)
    if absent:
        for j in set(range(Phi.shape[1])) - set(active):
            scale = Phi[:, j] @ Phi[:, j]
            for value in grid[::4] * scale:
                gains.append(evidence([*active, j], np.append(lam, value)) - now)
    return max(gains)


def sparse_problem(rng, n=40, m=15, k=3, noise=0.1, conditioning="good"):
    """Random columns, `k` of them active. "bad": nearly collinear, over six decades of scale."""
    Phi = rng.standard_normal((n, m))
    if conditioning == "bad":
        common = rng.standard_normal((n, 1))
        Phi = (common + 1e-3 * Phi) * np.logspace(-3, 3, m)
    w = np.zeros(m)
    w[rng.choice(m, k, replace=False)] = rng.standard_normal(k) + np.sign(rng.standard_normal(k))
    signal = Phi @ (w / np.linalg.norm(Phi, axis=0)) * np.sqrt(n)
    return Phi, signal + noise * np.std(signal) * rng.standard_normal(n)


class AfterTask:
    """A callback that calls a function with the number of tasks done, and stops if it is true."""

    def __init__(self, action):
        self.action, self.tasks = action, 0

    def setup(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context):
        self.tasks += 1
        return self.action(self.tasks)
