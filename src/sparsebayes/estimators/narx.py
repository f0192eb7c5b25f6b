"""Nonlinear dynamic systems: terms of lagged values, fitted to the simulated output."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from .._array import RandomState
from ..callbacks import Budget
from ..designs import Design
from ..narx.equation import Equation, noise_part
from ..narx.functions import Gaussians, Hinges, Hysteresis, Monomials, Several, Transformed
from ..narx.leverage import Leverage
from ..narx.records import as_records, is_whole, lag_tuple, rows, series, stretches
from ..narx.refine import (
    Model,
    Problem,
    choose,
    finish,
    held_back_rms,
    spread,
    stable_start,
)
from ..narx.simulation import Lags, free_run, sensitivities
from ..narx.table import TermTable, equation_latex, equation_text
from ..posterior.predictive import LocationScale
from ..predict import without_noise
from ..solvers import OrthogonalLeastSquares, run
from ..solvers.run import StopReason
from ._predictive import interval_ends, probabilities
from ._sklearn import HasMethods, Number, Whole, check_is_fitted, warn, whole_fit, words
from ._summary import Summary, Term

_CANDIDATES = ("polynomial", "hinge", "hysteresis", "rbf")
_CENTRES = 200  # Gaussian candidates, spread evenly over the record
_KNOTS = (0.1, 0.25, 0.5, 0.75, 0.9)  # quantiles at which a hinge may be
_MOST_OF_ERROR = 0.5  # share of few time steps in the squared error from which a fit warns
_RANGES = 10.0  # ranges of the data beyond which a simulation has diverged


class NARXRegressor(Summary):
    """Nonlinear dynamic model with a readable equation: y(k) = f(past outputs, inputs) + e(k).

    Terms are selected among functions of lagged values by orthogonal least squares. Their weights
    are fitted to the *simulated* output, instead of to the next value, if that improves the
    simulation of held-out segments. Simulations have a standard deviation.

    Parameters
    ----------
    input_lags : int, list of int, or list of lists, default=2
        Largest lag of the inputs, a list of lags, or one list of lags per input.
    output_lags : int or list of int, default=2
        Largest lag of the output, or a list of lags.
    delay : int, default=0
        Smallest lag of the inputs if `input_lags` is a number. With 0, u(k) can act on y(k).
    degree : int, default=3
        Largest degree of a monomial.
    candidates : {"polynomial", "hinge", "hysteresis", "rbf"}, transformer, or list of these, \
            default="polynomial"
        Candidate terms: monomials of the lagged values; hinge functions ``max(x - knot, 0)`` of
        each, for saturation; products with the absolute value or the sign of an increment, such as
        ``|u(k)-u(k-1)|*y(k-1)``, for hysteresis; Gaussian functions of all lagged values; or the
        columns of a scikit-learn transformer.
    selector : {"lrols", "ols", "press"} or estimator, default="lrols"
        Selection of terms by the error one step ahead: orthogonal least squares with local
        regularisation (stopped by BIC), without regularisation (BIC), or stopped by the
        leave-one-out error; or an estimator of this package with ``kernel=None`` and
        ``fit_intercept=False``.
    max_terms : int, default=20
        Largest number of terms.
    refine : {"auto", "simulation", None}, default="auto"
        ``"simulation"`` fits the weights to the simulated output and drops and adds terms by the
        simulated error on held-back segments; None keeps the equation error; ``"auto"`` takes the
        one whose simulation of held-back segments is better.
    noise_lags : int, default=0
        Terms e(k-1), ..., e(k-noise_lags) of past errors one step ahead (NARMAX), by extended
        least squares. `predict` uses them; a simulation has no past errors.
    max_time : float or None, default=None
        Time limit in seconds. The fit then ends with the terms reached so far and a
        ConvergenceWarning.

    Attributes
    ----------
    terms_ : TermTable
        Names, coefficients, their standard deviations and error reduction ratios, in order of
        selection.
    coef_ : array of shape (n_terms,)
        Weight of each term, in the order of `terms_`.
    covariance_ : array of shape (n_terms, n_terms)
        Covariance of the weights, in the order of `terms_`.
    noise_coef_ : array of shape (noise_lags,)
        Weights of past errors, if `noise_lags` is positive.
    noise_variance_ : float
        Variance of the error one step ahead.
    simulation_variance_ : float
        Variance of the simulated error on held-back segments.
    refined_ : bool
        Whether the weights are those of the simulated output.
    held_back_error_ : dict
        Root mean square of the simulated error on held-back segments: ``"one step"`` (infinite
        where that model diverges) and ``"simulation"``.
    refused_ : list of str
        Terms that were rejected because the simulation diverged with them.
    limits_ : tuple of float
        Lower and upper limit of a simulation: ten times the range of the training outputs below
        their minimum and above their maximum. Beyond the limits a simulation has diverged.
    n_candidates_, max_lag_, n_inputs_ : int
        Number of candidate terms, longest lag, number of inputs.
    path_ : list of pairs
        Number of terms and simulated error on held-back segments, as terms were dropped and added.
    converged_ : bool
        Whether the fit of the weights converged.

    See Also
    --------
    sparsebayes.lagged, sparsebayes.simulate : Lagged terms and simulations for any regressor.

    Notes
    -----
    Rows are consecutive time steps of one experiment, so ``cross_val_score`` with random splits is
    meaningless.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes import NARXRegressor
    >>> rng = np.random.default_rng(0)
    >>> u, y = rng.uniform(-1, 1, 600), np.zeros(600)
    >>> for k in range(1, 600):
    ...     y[k] = 0.5 * y[k - 1] + u[k - 1] - 0.3 * u[k] * y[k - 1] + 0.01 * rng.standard_normal()
    >>> model = NARXRegressor(degree=2).fit(u[:400], y[:400])
    >>> sorted(model.terms_.term.tolist())
    ['u(k-1)', 'y(k-1)', 'y(k-1)*u(k)']
    >>> free, std = model.simulate(u[400:], y[400:402], return_std=True)
    >>> bool(np.mean(np.abs(free - y[400:]) < 2 * std) > 0.9)
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "delay": [Whole(0)],
        "degree": [Whole(1)],
        "selector": [words("lrols", "ols", "press"), HasMethods("fit")],
        "max_terms": [Whole(1)],
        "refine": [None, words("auto", "simulation")],
        "noise_lags": [Whole(0)],
        "max_time": [None, Number(0, None, "right")],
    }

    def __init__(
        self,
        input_lags: Any = 2,
        output_lags: Any = 2,
        *,
        delay: int = 0,
        degree: int = 3,
        candidates: Any = "polynomial",
        selector: Any = "lrols",
        max_terms: int = 20,
        refine: str | None = "auto",
        noise_lags: int = 0,
        max_time: float | None = None,
    ) -> None:
        self.input_lags = input_lags
        self.output_lags = output_lags
        self.delay = delay
        self.degree = degree
        self.candidates = candidates
        self.selector = selector
        self.max_terms = max_terms
        self.refine = refine
        self.noise_lags = noise_lags
        self.max_time = max_time

    # Fitting.

    @whole_fit
    def fit(self, u: Any, y: Any) -> NARXRegressor:
        """Select the terms and fit their weights.

        Parameters
        ----------
        u : array of shape (n,) or (n, n_inputs), None, or a list of these
            Inputs; None for a model of the output alone; a list for several records. A missing
            value (NaN) ends a segment.
        y : array of shape (n,), or a list of these
            Output; missing values are NaN.

        Returns
        -------
        self
        """
        self._validate_params()
        budget = Budget(self.max_time)
        records = as_records(u, y)
        self.n_inputs_ = records[0][0].shape[1]
        self._lags = self._make_lags(self.n_inputs_)
        self.max_lag_ = self._lags.max_lag
        x, t, stretch = rows(records, self._lags)
        if x.shape[1] < 4 * len(x) + 8:
            n_inputs = len(x) - len(self._lags.outputs)
            current = ", u(k) included" if any(0 in lags for lags in self._lags.inputs) else ""
            raise ValueError(
                f"Only {x.shape[1]} time steps have all their lagged values, but at least "
                f"{4 * len(x) + 8} are needed. The model has {len(x)} lagged values "
                f"({len(self._lags.outputs)} of the output and {n_inputs} of the inputs{current}), "
                "and needs 4 time steps for each, plus 8. Use longer series or fewer lags."
            )
        low, high = float(np.min(t)), float(np.max(t))
        margin = _RANGES * max(high - low, 1e-12 * max(abs(low), abs(high)), 1e-300)
        self.limits_ = (low - margin, high + margin)
        functions = self._candidate_functions(x)
        self.n_candidates_ = len(functions)
        order = self._select(functions.design(x), t, budget)
        self._mean = float(np.mean(t))
        equation = Equation(functions, x, t, stretch, int(self.noise_lags))
        all_records = stretches(records, 2 * self.max_lag_ + 8)
        problem = Problem(functions, self._lags, all_records, self.limits_)
        active = np.sort(order)
        model = Model(active, equation.weights(active))
        model, covariance = self._refine(problem, model, order, equation, budget)
        self._keep(problem, equation, order, model, covariance)
        self._leverage = Leverage.of_record(
            x, lambda values: self.coef_ @ self._functions_chosen(values)
        )
        return self

    def _refine(
        self,
        problem: Problem,
        model: Model,
        order: np.ndarray,
        equation: Equation,
        budget: Budget,
    ) -> tuple[Model, np.ndarray]:
        """Fit terms and weights to the simulated error, if requested and better.

        The model and the covariance of its weights are returned.
        """
        if not problem.records:
            raise ValueError(
                "No record is long enough to be simulated. Pass longer series, or use fewer lags."
            )
        folds = problem.folds()
        one_step = held_back_rms(problem, model, folds, refit=False)[1]
        errors = {"one step": one_step}
        refused: list[int] = []
        refined, fit = None, None
        if self.refine is None:
            remaining = list(order)
            while not np.isfinite(errors["one step"]) and len(remaining) > 1:
                refused.append(remaining.pop())
                active = np.sort(np.array(remaining, dtype=np.intp))
                model = Model(active, equation.weights(active))
                errors["one step"] = held_back_rms(problem, model, folds, refit=False)[1]
        else:
            start, refused = stable_start(problem, model, list(order), equation.weights)
            refined, errors["simulation"], self.path_ = choose(
                problem, start, int(self.max_terms), budget=budget
            )
        take = refined is not None and not (
            self.refine == "auto" and np.isfinite(one_step) and errors["simulation"] >= one_step
        )
        if self.refine == "auto" and not take:
            refused = []
        if take:
            assert refined is not None
            model, covariance, fit = finish(problem, refined, True)
            self._spread = spread(problem, refined, covariance, True)
        else:
            _, covariance, fit = finish(problem, model, False)
            covariance = equation.covariance(model)
            self._spread = spread(problem, model, covariance, False)
        self.refined_, self.held_back_error_ = take, errors
        self.converged_ = bool(fit.converged) and not fit.diverged and not budget.reason
        self.refused_ = [problem.functions.take([j]).names[0] for j in refused]
        self._warn_of_simulation(budget, fit.diverged)
        return model, covariance

    def _warn_of_simulation(self, budget: Budget, diverged: bool) -> None:
        """Warn of a choice that has not ended, an unstable model, and errors of a few steps."""
        if self._spread.few_steps > _MOST_OF_ERROR:
            warn(
                f"A few time steps have {self._spread.few_steps:.0%} of the squared error of the "
                "simulation, so its intervals are too wide elsewhere. Look for faulty values in "
                "the record."
            )
        if budget.reason:
            reason = StopReason(budget.reason)
            message = f"The choice of terms has not ended ({reason}). {reason.advice}"
            warn(message, ConvergenceWarning)
        if diverged:
            warn(
                "The simulation of the training record exceeds ten times the range of the "
                "data, so the fitted model is unstable. Use a lower degree, fewer lags or "
                "fewer terms.",
                ConvergenceWarning,
            )

    def _keep(
        self,
        problem: Problem,
        equation: Equation,
        order: np.ndarray,
        model: Model,
        covariance: np.ndarray,
    ) -> None:
        # In the order of choice; terms that were added to the simulation are the last.
        rank = {int(j): i for i, j in enumerate(order)}
        last = len(rank)
        by_choice = np.argsort([rank.get(int(j), last) for j in model.active], kind="stable")
        active, self.coef_ = model.active[by_choice], model.weights[by_choice]
        self.covariance_ = covariance[np.ix_(by_choice, by_choice)]
        self._functions_chosen = problem.functions.take(active)
        residual, self.noise_coef_ = equation.noise(active, self.coef_)
        free = max(len(residual) - len(active) - self.noise_lags, 1)
        self.noise_variance_ = float(residual @ residual / free)
        self.simulation_variance_ = self._spread.least
        self.terms_ = TermTable(
            np.array(self._functions_chosen.names, dtype=str),
            self.coef_.copy(),
            np.sqrt(np.maximum(np.diag(self.covariance_), 0.0)),
            equation.error_reductions(active),
        )

    def _candidate_functions(self, x: np.ndarray) -> Any:
        """All candidates."""
        names = self._lags.variables
        requested = self.candidates
        requested = list(requested) if isinstance(requested, (list, tuple)) else [requested]
        parts: list[Any] = []
        if "polynomial" not in requested:
            # Whatever else: a constant and the lagged values themselves.
            parts.append(Monomials.up_to(names, 1))
        for each in requested:
            if hasattr(each, "transform"):
                parts.append(Transformed.fit(each, x, names))
            elif each == "polynomial":
                parts.append(Monomials.up_to(names, int(self.degree)))
            elif each == "hinge":
                parts.append(Hinges.at_quantiles(names, x, _KNOTS))
            elif each == "hysteresis":
                parts.append(Hysteresis.of_signals(names, *self._lags.signals))
            elif each == "rbf":
                rows = np.linspace(0, x.shape[1] - 1, min(_CENTRES, x.shape[1])).astype(int)
                width = np.std(x, axis=1) * np.sqrt(len(x))
                parts.append(
                    Gaussians(x[:, rows].T.copy(), np.maximum(width, 1e-300), np.arange(len(rows)))
                )
            else:
                raise ValueError(
                    f"candidates={each!r} is not valid. Use one of {', '.join(_CANDIDATES)}, "
                    "a transformer, or a list of these."
                )
        return parts[0] if len(parts) == 1 else Several(parts)

    def _select(self, design: Design, t: np.ndarray, budget: Budget) -> np.ndarray:
        """Candidates chosen one step ahead, most important first."""
        if not isinstance(self.selector, str):
            return self._select_by(clone(self.selector), design, t)
        n, m = design.n_rows, design.n_candidates
        solver = OrthogonalLeastSquares(
            regularization="local" if self.selector == "lrols" else "none",
            stopping="press" if self.selector == "press" else "bic",
            max_terms=min(int(self.max_terms), m),
            # The penalty of a term under the extended BIC, which counts the m candidates.
            threshold=float(np.sqrt(max(np.log(n) + 2.0 * np.log(m), 1.0))),
        )
        scale = float(np.max(np.abs(t))) or 1.0
        result = run(solver, design, t / scale, max_iter=10_000, max_time=budget.seconds_left)
        active = np.asarray(result.state.active, dtype=np.intp)
        if not len(active):
            active = np.array([0], dtype=np.intp)  # a constant output: the constant, or y(k-1)
        return active

    def _select_by(self, selector: Any, design: Design, t: np.ndarray) -> np.ndarray:
        selector.fit(design.dense(), t)
        active = np.asarray(getattr(selector, "active_", None))
        if active.dtype == object or active.ndim != 1:
            raise ValueError(
                f"{type(selector).__name__} has no active_, so its selected terms are "
                "unknown. Pass an estimator of sparsebayes with kernel=None as selector."
            )
        coef = np.asarray(selector.coef_)[active] if len(active) else np.zeros(0)
        size = np.abs(coef) * np.sqrt(design.sqnorms()[active])
        chosen = active[np.argsort(-size, kind="stable")][: int(self.max_terms)]
        return chosen.astype(np.intp) if len(chosen) else np.array([0], dtype=np.intp)

    def _make_lags(self, n_inputs: int) -> Lags:
        outputs = lag_tuple(self.output_lags, 1, "output_lags")
        if 0 in outputs:
            raise ValueError("Output lags must be at least 1; lag 0 is the value to predict.")
        given = self.input_lags
        nested = isinstance(given, (list, tuple)) and any(isinstance(g, Iterable) for g in given)
        each = list(given) if nested else [given] * n_inputs
        if len(each) != n_inputs:
            raise ValueError(
                f"input_lags has lags for {len(each)} inputs, but u has {n_inputs}. Pass one "
                "list per input, or one for all."
            )
        inputs = tuple(lag_tuple(lags, int(self.delay), "input_lags") for lags in each)
        if not outputs and not any(inputs):
            raise ValueError(
                "There are no candidate terms, because there are no inputs and no output lags."
            )
        return Lags(outputs, inputs)

    # Asking.

    def predict(
        self, u: Any, y: Any, steps: int = 1, return_std: bool | str = False
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Predict the output a number of time steps ahead.

        Parameters
        ----------
        u : array of shape (n,) or (n, n_inputs), or None
            Inputs; None for a system without inputs.
        y : array of shape (n,)
            Measured outputs.
        steps : int, default=1
            Number of steps ahead: the prediction of y(k) uses y up to k - steps, and all inputs up
            to k.
        return_std : bool or "function", default=False
            Also return the standard deviation of the new output, noise included, or of the
            function alone; one step ahead only.

        Returns
        -------
        y : array of shape (n,)
            NaN for the first ``max_lag_ + steps - 1`` time steps and where the past is missing.
        std : array, only if requested
        """
        check_is_fitted(self)
        if not (is_whole(steps) and steps >= 1):
            raise ValueError(f"steps must be an integer of at least 1, got {steps!r}.")
        if return_std and steps != 1:
            raise ValueError(
                "return_std requires steps=1. Use simulate(..., return_std=True) for simulations."
            )
        noise = 0.0 if without_noise(return_std) else self.noise_variance_
        u, y = series(u, y, self.n_inputs_)
        L, n = self.max_lag_, len(y)
        out, std = np.full(n, np.nan), np.full(n, np.nan)
        if n < L + steps:
            return (out, std) if return_std else out
        inputs, outputs = self._lags.of_inputs(u), self._lags.of_outputs(y)
        if steps == 1:
            x = np.concatenate([outputs, inputs])
            self._warn_unlike(x)
            phi = self._functions_chosen(x)
            out[L:] = self.coef_ @ phi
            if len(self.noise_coef_):
                out[L:] += noise_part(y[L:] - out[L:], self.noise_coef_)
            if return_std:
                variance = np.einsum("pn,pq,qn->n", phi, self.covariance_, phi, optimize=True)
                std[L:] = np.sqrt(np.maximum(variance, 0.0) + noise)
            return (out, std) if return_std else out
        # One short free run from each time step, all of them at once.
        S = n - L - steps + 1
        start = np.array([y[i : i + S] for i in range(L)]).reshape(L, S)
        along = np.array([inputs[:, i : i + S] for i in range(steps)]).reshape(steps, -1, S)
        bad = ~np.all(np.isfinite(start), axis=0) | ~np.all(np.isfinite(along), axis=(0, 1))
        done = free_run(self._functions_chosen, self.coef_, self._lags, along, start, self.limits_)
        out[L + steps - 1 :] = np.where(bad | (done.stopped < L + steps), np.nan, done.y[-1])
        return out

    def predict_interval(self, u: Any, y: Any, coverage: float = 0.95) -> np.ndarray:
        """Return the central prediction interval of the output one step ahead.

        Parameters
        ----------
        u, y
            As in `predict`.
        coverage : float, default=0.95
            Probability that the interval contains the output.

        Returns
        -------
        interval : array of shape (n, 2)
            NaN where `predict` is.
        """
        return self.predict_quantiles(u, y, interval_ends(coverage))

    def predict_quantiles(self, u: Any, y: Any, alpha: Any) -> np.ndarray:
        """Return quantiles of the output one step ahead.

        Parameters
        ----------
        u, y
            As in `predict`.
        alpha : float or array of float
            Probabilities of the quantiles, between 0 and 1.

        Returns
        -------
        quantiles : array of shape (n, len(alpha))
            NaN where `predict` is.
        """
        alpha = probabilities(alpha)
        return LocationScale(*self.predict(u, y, return_std=True)).quantiles(alpha)

    def simulate(
        self,
        u: Any,
        initial: Any = None,
        *,
        n_steps: int | None = None,
        return_std: bool = False,
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Simulate the output from the inputs, using the model's own past outputs (a free run).

        Parameters
        ----------
        u : array of shape (n,) or (n, n_inputs), or None
            Inputs at all time steps, the first ``max_lag_`` included.
        initial : array, optional
            The first ``max_lag_`` outputs; more are ignored. By default the mean of the outputs
            that the model was fitted to.
        n_steps : int, optional
            Number of time steps if there are no inputs.
        return_std : bool, default=False
            Whether to return the standard deviation of the measured output. It accounts for the
            noise, the uncertainty of the weights (linearised) and the measurement noise of the
            initial outputs.

        Returns
        -------
        y : array of shape (n,)
            Simulated output, which begins with `initial`. If it leaves `limits_` (the range
            of the training outputs, extended by ten times its length on both sides), it is NaN from
            that time step on, with a RuntimeWarning.
        std : array of shape (n,)
            Only with ``return_std=True``.
        """
        u, start = self._start(u, initial, n_steps)
        inputs = self._lags.of_inputs(u).T[:, :, None]
        done = free_run(self._functions_chosen, self.coef_, self._lags, inputs, start, self.limits_)
        out = self._stopped(done.y, done.stopped)[:, 0]
        self._warn_unlike(np.concatenate([self._lags.of_outputs(out), inputs[:, :, 0].T]))
        if not return_std:
            return out
        J = sensitivities(self._functions_chosen, self.coef_, self._lags, inputs, done)[:, 0]
        P = len(self.coef_)
        with np.errstate(over="ignore", invalid="ignore"):
            variance = self._spread.variance(J[:, :P], self.covariance_)
            if initial is not None:
                variance += self.noise_variance_ * np.sum(np.square(J[:, P:]), axis=1)
        return out, np.where(np.isnan(out), np.nan, np.sqrt(variance))

    def sample(
        self,
        u: Any,
        initial: Any = None,
        *,
        n_samples: int = 1,
        n_steps: int | None = None,
        random_state: RandomState = 0,
    ) -> np.ndarray:
        """Simulate models drawn from the posterior of the weights, with noise on the output.

        Parameters
        ----------
        u, initial, n_steps
            As in `simulate`.
        n_samples : int, default=1
            Number of draws.
        random_state : int, Generator or None, default=0
            Seed of the draws; with None they differ in each call.

        Returns
        -------
        y : array of shape (n, n_samples)
            NaN from where a run diverges.
        """
        u, start = self._start(u, initial, n_steps)
        rng = np.random.default_rng(random_state)
        values, vectors = np.linalg.eigh(self.covariance_ * self._spread.inflation)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        weights = self.coef_[:, None] + root @ rng.standard_normal((len(root), n_samples))
        inputs = np.repeat(self._lags.of_inputs(u).T[:, :, None], n_samples, axis=2)
        done = free_run(
            self._functions_chosen,
            weights,
            self._lags,
            inputs,
            np.repeat(start, n_samples, axis=1),
            self.limits_,
        )
        noise = np.sqrt(self._spread.least) * rng.standard_normal(done.y.shape)
        return self._stopped(done.y, done.stopped) + noise

    def score(self, u: Any, y: Any) -> float:
        """Return R^2 of the simulation from the first measured outputs; -inf if it diverges.

        Parameters
        ----------
        u, y
            As in `predict`.
        """
        u, y = series(u, y, self.n_inputs_)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            free = np.asarray(self.simulate(u, y[: self.max_lag_], n_steps=len(y)))
        observed = np.isfinite(y)
        observed[: self.max_lag_] = False
        if not np.all(np.isfinite(free[observed])):
            return -np.inf
        total = np.sum(np.square(y[observed] - np.mean(y[observed])))
        return float(1.0 - np.sum(np.square(y[observed] - free[observed])) / max(total, 1e-300))

    def errors_by_horizon(self, u: Any, y: Any, horizons: Iterable[int]) -> np.ndarray:
        """Return the root mean squared error of `predict` for each number of steps ahead.

        It is infinite if a simulation diverges.

        Parameters
        ----------
        u, y
            As in `predict`.
        horizons : iterable of int
            Numbers of steps ahead.
        """
        _, y = series(u, y, self.n_inputs_)
        out = []
        for steps in horizons:
            ahead = np.asarray(self.predict(u, y, steps=steps))
            observed = np.isfinite(y)
            observed[: self.max_lag_ + steps - 1] = False
            off = (y - ahead)[observed & np.isfinite(ahead)]
            complete = np.all(np.isfinite(y)) and len(off) < np.count_nonzero(observed)
            out.append(np.inf if complete or not len(off) else float(np.sqrt(np.mean(off**2))))
        return np.array(out)

    def _start(self, u: Any, initial: Any, n_steps: int | None) -> tuple[np.ndarray, np.ndarray]:
        check_is_fitted(self)
        L = self.max_lag_
        if u is None:
            if n_steps is None:
                raise ValueError(
                    "A model without inputs needs n_steps, the number of time steps to simulate."
                )
            u = np.empty((n_steps, 0))
        u, _ = series(u, None, self.n_inputs_)
        if not np.all(np.isfinite(u)):
            raise ValueError(
                "u contains missing values, but a simulation needs every input. Impute them first."
            )
        if len(u) < L:
            raise ValueError(f"u has {len(u)} rows, but the largest lag is {L}.")
        if initial is None:
            return u, np.full((L, 1), self._mean)
        start = np.asarray(initial, dtype=np.float64).ravel()[:L]
        if len(start) < L:
            raise ValueError(f"initial has {len(start)} values, but the model needs {L}.")
        if not np.all(np.isfinite(start)):
            raise ValueError("initial contains missing values. Impute them, or omit initial.")
        return u, start[:, None]

    def _warn_unlike(self, x: np.ndarray) -> None:
        """Warn of lagged values in combinations that the training record does not have."""
        unlike = self._leverage.unlike(x)
        if unlike is None:
            return
        step = unlike.first + self.max_lag_
        warn(
            f"{unlike.n_steps} of {x.shape[1]} time steps combine lagged values as the training "
            f"record does nowhere, the first at time step {step}, most of all in "
            f"{self._lags.variables[unlike.variable]}. The record does not tell which of the "
            "lagged values that changed together acts on the output, so that predictions may be "
            "wrong and intervals too narrow there. Fit to a record in which they change "
            "independently."
        )

    def _stopped(self, y: np.ndarray, stopped: np.ndarray) -> np.ndarray:
        """NaN from where a run left the limits, with a warning."""
        if np.any(stopped < len(y)):
            warn(
                "The simulation exceeded ten times the range of the data at time step "
                f"{stopped.min()} and is NaN from there on. The model is unstable for these "
                "inputs.",
                RuntimeWarning,
            )
            y = np.where(np.arange(len(y))[:, None] < stopped, y, np.nan)
        return y

    # Reading.

    def __str__(self) -> str:
        if "terms_" not in vars(self):
            return repr(self)
        return equation_text(self.terms_, self.noise_coef_)

    def _summary_pairs(self) -> list[tuple[str, str]]:
        return [("equation", str(self)), *super()._summary_pairs()]

    def _summary_terms(self) -> list[Term]:
        rows = zip(self.terms_.term, self.terms_.coefficient, self.terms_.std, strict=True)
        return [Term(str(name), "", float(weight), float(std)) for name, weight, std in rows]

    def to_latex(self, digits: int = 4) -> str:
        """Return the equation in LaTeX, with terms in order of selection.

        Parameters
        ----------
        digits : int, default=4
            Significant digits of the weights.
        """
        check_is_fitted(self)
        return equation_latex(self.terms_, self.noise_coef_, digits)
