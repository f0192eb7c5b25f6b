"""The kernel that a user requested, and the kernel that a fit uses.

A `KernelSpec` holds the four constructor parameters that every kernel model shares. `choose_kernel`
turns it into a `KernelChoice`, learning length scales and family from the data where that was
requested. The choice is made once per fit; inner fits (folds, noise rounds) receive it as a value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from .._array import Device
from .._warn import warn
from ..callbacks import Reporter
from ..rows.executors import few_blas_threads
from .average import AveragedKernel
from .formulas import (
    FAMILIES,
    LEARNT,
    Gamma,
    GammaOption,
    Kernel,
    KernelName,
    make_kernel,
    resolve_gamma,
)
from .warp import Warp, WarpedKernel

# Whether a model is a Gaussian process of all rows: not, all of it, or around each new row.
ProcessKind = Literal["", "exact", "local"]

# Inputs whose standard deviation is below this share of the largest one add 1e-4 to the squared
# distances: a kernel of one width does not depend on them.
_INVISIBLE = 0.01
_SPREAD_ROWS = 10_000  # rows from which the spread of the inputs is measured
_APART = 0.01  # correlation of a row with the nearest other one: functions do not overlap
_APART_ROWS, _MOST_ROWS = 200, 20_000  # rows that are compared, with so many


def is_option(value: object, *options: str) -> bool:
    """Tell whether `value` is one of these strings; arrays must not be compared with them."""
    return isinstance(value, str) and value in options


def learns_widths(gamma: object) -> bool:
    """Return whether this `gamma` requests learnt length scales."""
    return is_option(gamma, "evidence", "ard", "auto")


@dataclass(frozen=True, eq=False)
class KernelSpec:
    """The kernel as requested: the parameters `kernel`, `gamma`, `degree`, `coef0` and `warp`."""

    family: KernelName | None = None
    gamma: GammaOption = "scale"
    degree: float = 3
    coef0: float = 0.0
    warp: Any = False

    @property
    def on_rows(self) -> bool:
        """True where candidates are kernel functions centred on rows of X."""
        return self.family is not None and not is_option(self.family, "precomputed")

    @property
    def stationary(self) -> bool:
        """True where the family has length scales that can be learnt."""
        return is_option(self.family, "auto", *LEARNT)

    @property
    def learns(self) -> bool:
        """True where the length scales are learnt from the data."""
        return learns_widths(self.gamma) and self.stationary

    @property
    def compares(self) -> bool:
        """True where several kernels are proposed, so that fitted models decide between them."""
        return self.learns and (is_option(self.family, "auto") or is_option(self.gamma, "auto"))

    def fixed(self, gamma: Gamma) -> KernelChoice:
        """Return the kernel of this family with the width `gamma`, nothing learnt."""
        return KernelChoice(self.family, gamma, degree=self.degree, coef0=self.coef0)


@dataclass(frozen=True, eq=False)
class KernelChoice:
    """The kernel that a fit uses, and how it was found.

    Attributes
    ----------
    family, gamma, share, degree, coef0
        Arguments of `make_kernel`; `family` is None where candidates are columns of X.
    n_lengths : int
        Number of length scales that were learnt; length scales that inputs share count once.
    n_matter : float
        Number of them along which the function varies.
    noise_to_signal : float
        Noise variance over signal variance of the Gaussian process whose length scales were learnt;
        0 where none was fitted.
    variances : tuple of float
        Variance of the Gaussian process of each binary problem of a classifier, where it has been
        learnt already; empty otherwise.
    warp : Warp or None
        Map of the inputs to two coordinates, with a `gamma` for each; None for inputs as they are.
    search : dict of arrays or None
        What was tried; None where nothing was learnt.
    added : KernelChoice or None
        A second kernel, with which this one is averaged; None for one kernel.
    """

    family: KernelName | None = None
    gamma: Gamma = 1.0
    share: float = 0.5
    degree: float = 3
    coef0: float = 0.0
    n_lengths: int = 0
    n_matter: float = 0.0
    noise_to_signal: float = 0.0
    variances: tuple[float, ...] = ()
    warp: Warp | None = None
    search: dict[str, np.ndarray] | None = None
    added: KernelChoice | None = None

    def averaged_with(self, other: KernelChoice) -> KernelChoice:
        """Return the average of two kernels that were learnt from the same rows."""
        return replace(
            self,
            added=other,
            n_lengths=self.n_lengths + other.n_lengths,
            n_matter=self.n_matter + other.n_matter,
            noise_to_signal=float(np.sqrt(self.noise_to_signal * other.noise_to_signal)),
        )

    @property
    def learnt(self) -> bool:
        """True where length scales were learnt in the search that ended at this kernel."""
        return self.search is not None

    @cached_property
    def kernel(self) -> Kernel | None:
        """The kernel function; None where candidates are columns of X."""
        if self.family is None:
            return None
        kernel: Any = make_kernel(
            self.family, gamma=self.gamma, degree=self.degree, coef0=self.coef0, share=self.share
        )
        kernel = kernel if self.warp is None else WarpedKernel(kernel, self.warp)
        if self.added is None:
            return kernel
        other: Any = self.added.kernel
        return AveragedKernel(kernel, other)

    def attributes(self) -> dict[str, object]:
        """Return the fitted attributes that describe the kernel."""
        if self.family is None:
            return {}
        out: dict[str, object] = {"kernel_": self.family, "gamma_": self.gamma}
        if self.added is not None:
            out["kernel_"] = f"{self.family} + {self.added.family}"
        if is_option(self.family, "sum"):
            out["rough_share_"] = self.share
        if self.search is not None:
            out["kernel_search_"] = self.search
        if self.warp is not None:
            out["warp_"] = self.warp
        return out


def choose_kernel(
    spec: KernelSpec,
    X: np.ndarray,
    y: np.ndarray,
    weight: np.ndarray | None = None,
    *,
    score: Callable[[KernelChoice], float] | None = None,
    seed: int = 0,
    labels: bool = False,
    process: ProcessKind = "",
    device: Device | None = None,
    names: Sequence[str] | None = None,
    reporter: Reporter | None = None,
) -> KernelChoice:
    """Return the kernel of `spec`, with its open parameters learnt from these rows.

    Parameters
    ----------
    spec : KernelSpec
        The parameters of the user.
    X, y, weight : arrays
        Rows of positive weight, their targets (one column per class for labels) and weights.
    score : callable, optional
        Cross-validated score of a model with the given kernel, higher is better. It decides where
        several kernels are proposed; without it the evidence of a Gaussian process does.
    seed : int, default=0
        Seed for the subsets of rows that length scales are learnt from.
    labels : bool
        Whether `y` stands for classes.
    process : {"", "exact", "local"}
        Whether the model is a Gaussian process of all rows; see `learn_widths`.
    device : optional
        Device on which kernels are computed.
    names : sequence of str, optional
        Names of the inputs, for warnings.
    reporter : Reporter, optional
        Reporter of the progress, with the time that the fit may take.
    """
    if not spec.on_rows:
        return KernelChoice()
    _warn_of_scales(spec, X, names)
    gamma = spec.gamma
    if is_option(gamma, "auto") and not spec.stationary:
        gamma = "scale"
    automatic = is_option(spec.family, "auto")
    if not learns_widths(gamma):
        if not automatic:
            choice = spec.fixed(resolve_gamma(gamma, X, weight, kernel=spec.family))
            if spec.stationary:
                _warn_of_narrow_functions(choice, X)
            return choice
        from .widths import choose_family

        gamma = resolve_gamma(gamma, X, weight)
        family = choose_family(X, y, gamma, sample_weight=weight, random_state=seed)
        return KernelChoice(family, gamma)
    if not spec.stationary:
        names = ", ".join(map(repr, LEARNT))
        raise ValueError(
            f"gamma={gamma!r} requires kernel='auto' or one of {names}. With "
            f"kernel={spec.family!r} use gamma='scale', 'median' or a number."
        )
    reporter = reporter or Reporter()
    return _learn_kernel(spec, X, y, weight, score, seed, labels, process, device, reporter)


def _learn_kernel(
    spec: KernelSpec,
    X: np.ndarray,
    y: np.ndarray,
    weight: np.ndarray | None,
    score: Callable[[KernelChoice], float] | None,
    seed: int,
    labels: bool,
    process: ProcessKind,
    device: Device | None,
    reporter: Reporter,
) -> KernelChoice:
    """Learn length scales, and choose between the proposed kernels by `score`."""
    from .widths import learn_widths, propose_widths

    warp = None
    if spec.warp is not False and spec.family == "additive":
        warp = Warp.to_ranks(X, weight)
    elif spec.warp is not False:
        warp = Warp.from_rows(X, weight, every=spec.warp is True)
        if warp is not None and spec.warp == "scores":
            warp = replace(warp, alone=True)
    X = X if warp is None else warp(X)
    options: dict[str, Any] = {
        "family": spec.family,
        "ard": None if spec.gamma == "auto" else spec.gamma == "ard",
        "sample_weight": weight,
        "process": process,
        "random_state": seed,
        "device": device,
        "reporter": reporter,
    }
    # Matrices of a few hundred rows: on two threads the search took 4.5 times as long (353 rows).
    with few_blas_threads():
        if spec.compares and score is not None:
            widths = propose_widths(X, y, labels=labels, **options)
        else:
            widths = [learn_widths(X, y, labels=labels, **options)]
    choices = [
        KernelChoice(
            w.family,
            w.gamma,
            w.share,
            n_lengths=w.n_lengths,
            n_matter=w.n_matter,
            noise_to_signal=float(np.min(w.lam, initial=1.0)),
            warp=warp,
            search={
                "kernel": np.array([w.family for w in widths]),
                "one_width": np.array([w.one_width for w in widths]),
                "process_evidence": np.array([w.log_evidence for w in widths]),
                "loo_score": np.full(len(widths), np.nan),
            },
        )
        for w in widths
    ]
    return choices[0] if score is None else _best_choice(choices, score, reporter)


def _best_choice(
    choices: list[KernelChoice], score: Callable[[KernelChoice], float], reporter: Reporter
) -> KernelChoice:
    """Return the kernel of highest score, with the scores of all; one needs no score."""
    if len(choices) == 1:
        return choices[0]
    scores = np.full(len(choices), np.nan)
    for k, choice in enumerate(choices):
        if reporter.budget.over:  # the simplest kernels come first
            break
        reporter.say(f"comparing {len(choices)} kernels: {choice.family}")
        scores[k] = score(choice)
    best = choices[int(np.argmax(np.nan_to_num(scores, nan=-np.inf)))]
    assert best.search is not None
    best.search["loo_score"][:] = scores
    return best


def _warn_of_narrow_functions(choice: KernelChoice, X: np.ndarray) -> None:
    """Warn of a width so small that the functions of different rows do not overlap."""
    distinct = np.unique(X, axis=0) if len(X) <= _MOST_ROWS else X[:1]
    if len(distinct) < 2:
        return
    assert choice.kernel is not None
    some = np.arange(0, len(distinct), -(-len(distinct) // _APART_ROWS))
    K = np.array(choice.kernel.bind(distinct[some])(distinct))
    K[some, np.arange(len(some))] = 0.0  # the row itself
    nearest = float(np.median(np.max(K, axis=0)))
    if nearest < _APART:
        gamma = f"gamma={choice.gamma:g}" if np.ndim(choice.gamma) == 0 else "gamma"
        warn(
            f"{gamma} is so large that the kernel functions of different rows do not overlap: the "
            f"correlation of a row with the nearest other one is {nearest:.1g} in the median. The "
            "model knows nothing about new rows. Use a smaller gamma, or learn it (gamma='auto')."
        )


def _warn_of_scales(spec: KernelSpec, X: np.ndarray, names: Sequence[str] | None) -> None:
    """Warn where a kernel of one width serves inputs of very different scales."""
    part = X[:: 1 + len(X) // _SPREAD_ROWS]
    largest = float(np.max(np.abs(part), initial=0.0))
    part = part / (np.ldexp(1.0, int(np.frexp(largest)[1])) if largest > 0.0 else 1.0)
    warn_of_scales(spec, np.std(part, axis=0), np.max(np.abs(part), axis=0), names)


def warn_of_scales(
    spec: KernelSpec, spread: np.ndarray, size: np.ndarray, names: Sequence[str] | None
) -> None:
    """Warn of inputs on which a kernel of one width hardly depends.

    The warning is given where at least half of the inputs that vary have a standard deviation below
    1 % of the largest. `spread` are the standard deviations, `size` the magnitudes.
    """
    gamma = spec.gamma
    one_width = is_option(spec.family, *FAMILIES, "auto", "laplacian")
    if not one_width or np.ndim(gamma) > 0 or learns_widths(gamma):
        return  # length scales are learnt for standardised inputs
    varies = spread > 1e-10 * size  # less is the rounding of a constant
    unseen = varies & (spread < _INVISIBLE * np.max(spread))
    if 2 * np.sum(unseen) < np.sum(varies) or not np.any(unseen):
        return
    widest = int(np.argmax(spread))
    warn(
        f"{np.sum(unseen)} of {np.sum(varies)} inputs vary by less than 1 % of the variation "
        f"of input {widest if names is None else repr(names[widest])}, so a kernel with one "
        "gamma almost ignores them. Scale the inputs (sklearn.preprocessing.StandardScaler), "
        "or learn one length scale per input (gamma='ard')."
    )
