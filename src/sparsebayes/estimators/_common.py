"""The kernel of a classifier."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils import check_random_state

from ..designs import Design, KernelDesign
from ..designs.candidates import different_rows, one_scale, own_scales, power_of_two
from ..kernels import FAMILIES, STATIONARY, Kernel, learns_widths, make_kernel, resolve_gamma
from ..kernels import is_option as is_text
from ..rows.executors import few_blas_threads
from ._sklearn import warn

_INVISIBLE = 0.01  # of the largest spread of an input: 1e-4 of its share in squared distances
_SAMPLE = 10_000  # rows that tell the spread of the inputs


def make_candidates(
    model: Any, X: Any, rows: np.ndarray, columns: Any = None, choice: Any = None
) -> tuple[Design, np.ndarray, Kernel | None]:
    """The design over rows X, what its columns are in the X of the user, and the kernel.

    After `set_kernel`; `rows` are the numbers of these rows for the user. `columns(X)` is the
    design where the columns of X are the candidates (default: each in its own scale), and `choice`
    a `CandidateChoice` where not every different row carries a function.
    """
    if model.kernel is None:
        design = own_scales(X) if columns is None else columns(X)
        return design, design.indices, None
    if is_text(model.kernel, "precomputed"):
        if X.shape[1] != model.n_features_in_ or rows[-1] >= X.shape[1]:
            raise ValueError(
                f"kernel='precomputed' needs a square matrix of the training rows, got X with "
                f"{X.shape[1]} columns."
            )
        design = one_scale(X, rows)
        if choice is not None:
            design = choice.among(design)
        return design, design.indices, None
    kernel = fitted_kernel(model)
    if choice is not None:
        return *choice.functions(X, kernel, rows), kernel
    centres = different_rows(X)
    return KernelDesign(X, kernel, centres, cache_size=model.cache_size), rows[centres], kernel


def set_kernel(
    model: Any,
    X: np.ndarray,
    y: np.ndarray,
    weight: np.ndarray | None,
    gamma: Any = None,
    device: Any = None,
) -> None:
    """Set `kernel_` and `gamma_` of a model: as it was told, or learnt from these rows.

    Where widths were learnt also `kernel_search_` and, unless they are one for all inputs on
    request, `feature_relevance_`. `y` may have several columns; for classes see `label_columns`.
    `gamma` is used in place of the model's where it is given; `device` computes kernels.
    """
    kernel = model.kernel
    if kernel is None or is_text(kernel, "precomputed"):
        keep_kernel(model, None, None)
        return
    if model._known_kernel is not None:
        keep_kernel(model, *model._known_kernel)
        return
    gamma = model.gamma if gamma is None else gamma
    check_scales(model, X)
    automatic = is_text(kernel, "auto")
    widths = automatic or is_text(kernel, *STATIONARY)
    if is_text(gamma, "auto") and not widths:
        gamma = "scale"
    learnt = learns_widths(gamma)
    if not (automatic or learnt):
        keep_kernel(model, kernel, resolve_gamma(gamma, X, weight, kernel=kernel))
        return
    if not widths:
        known = ", ".join(map(repr, STATIONARY))
        raise ValueError(
            f"gamma={gamma!r} learns the widths of kernel='auto', {known}; kernel={kernel!r} takes "
            "'scale', 'median' or a number."
        )
    from ..kernels.widths import choose_family, learn_widths, propose_widths

    random_state = check_random_state(getattr(model, "random_state", 0))
    seed = int(random_state.randint(np.iinfo(np.int32).max))
    if not learnt:
        gamma = resolve_gamma(gamma, X, weight)
        family = choose_family(X, y, gamma, sample_weight=weight, random_state=seed)
        keep_kernel(model, family, gamma)
        return
    ard = None if gamma == "auto" else gamma == "ard"
    what = {
        "family": kernel,
        "ard": ard,
        "sample_weight": weight,
        "random_state": seed,
        "device": device,
    }
    scores = np.full(1, np.nan)
    # Matrices of a few hundred rows: on two threads the search took 4.5 times as long (353 rows).
    with few_blas_threads():
        if (automatic or ard is None) and model._judges(len(X)):
            proposals = propose_widths(X, y, labels=is_classifier(model), **what)
        else:
            proposals = [learn_widths(X, y, process=model._keeps_rows, **what)]
    if len(proposals) > 1:
        scores = np.array([model._left_out_score(w, X, y, weight) for w in proposals])
    found = proposals[int(np.argmax(np.nan_to_num(scores, nan=-np.inf)))]
    if len(proposals) > 1:
        model._keep_choice(found, X, y, weight)
    keep_kernel(model, found.family, found.gamma, found.share)
    model._n_lengths, model._process_lam = found.n_lengths, float(np.min(found.lam, initial=1.0))
    model.kernel_search_ = {
        "kernel": np.array([w.family for w in proposals]),
        "one_width": np.array([w.one_width for w in proposals]),
        "process_evidence": np.array([w.log_evidence for w in proposals]),
        "left_out": scores,
    }
    if gamma != "evidence":
        model.feature_relevance_ = found.relevance


def keep_kernel(model: Any, kernel: Any, gamma: Any, share: float = 0.5) -> None:
    """Fitted attributes of a kernel, and none of an earlier one; None where there is no kernel."""
    for name in (
        "feature_relevance_",
        "kernel_search_",
        "rough_share_",
        "_n_lengths",
        "_process_lam",
    ):
        vars(model).pop(name, None)
    if kernel is None:
        return
    model.kernel_, model.gamma_ = kernel, gamma
    if is_text(kernel, "sum"):
        model.rough_share_ = share


def fitted_kernel(model: Any) -> Kernel:
    """The kernel of a model, after `set_kernel`."""
    return make_kernel(
        model.kernel_,
        gamma=model.gamma_,
        degree=model.degree,
        coef0=model.coef0,
        share=getattr(model, "rough_share_", 0.5),
    )


def check_scales(model: Any, X: np.ndarray) -> None:
    """Warn where one width is to serve inputs of very different scales; see `warn_of_scales`."""
    some = X[:: 1 + len(X) // _SAMPLE]
    some = some / power_of_two(np.max(np.abs(some)))
    warn_of_scales(model, np.std(some, axis=0), np.max(np.abs(some), axis=0))


def warn_of_scales(model: Any, spread: np.ndarray, size: np.ndarray) -> None:
    """Warn of inputs that a kernel of one width hardly sees.

    It is said where at least half of the inputs that vary have a standard deviation below 1 % of
    the largest: squared distances, and with them the kernel, hardly depend on those inputs.
    `spread` are the standard deviations and `size` the magnitudes.
    """
    name, gamma = model.kernel, model.gamma
    one_width = is_text(name, *FAMILIES, "auto", "laplacian")
    if not one_width or np.ndim(gamma) > 0 or is_text(gamma, "ard", "evidence", "auto"):
        return  # learnt widths are those of standardised inputs
    varies = spread > 1e-10 * size  # less is the rounding of a constant
    unseen = varies & (spread < _INVISIBLE * np.max(spread))
    if 2 * np.sum(unseen) < np.sum(varies) or not np.any(unseen):
        return
    largest = int(np.argmax(spread))
    names = getattr(model, "feature_names_in_", None)
    warn(
        f"{np.sum(unseen)} of {np.sum(varies)} inputs vary by less than 1 % of what input "
        f"{largest if names is None else repr(names[largest])} does, and a kernel of one width "
        "hardly sees them: bring the inputs to one scale (sklearn.preprocessing.StandardScaler), "
        "or learn a width for each (gamma='ard')."
    )


def label_columns(codes: np.ndarray) -> np.ndarray:
    """Targets that stand in for classes 0, 1, ...: -1 and 1, or a column for each class."""
    n_classes = int(codes.max()) + 1
    if n_classes == 2:
        return 2.0 * codes - 1.0
    return np.equal.outer(codes, np.arange(n_classes)).astype(np.float64)
