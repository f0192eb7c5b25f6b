"""The loop stops for the right reason, and never takes NaN for success."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest

from sparsebayes.designs import DenseDesign
from sparsebayes.solvers.run import Result, StopReason, run


class Info(NamedTuple):
    log_evidence: float


@dataclass(frozen=True)
class Countdown:
    """A solver whose evidence is given for each step, and that then calls itself converged."""

    evidence: tuple[float, ...]

    def init(self, design, t):
        return 0

    def step(self, state, design, t):
        return state + 1, Info(self.evidence[state])

    def done(self, state):
        return StopReason.CONVERGED if state == len(self.evidence) else None

    def posterior(self, state, design, t):
        raise NotImplementedError


DESIGN, T = DenseDesign(np.eye(2)), np.ones(2)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_evidence_that_is_not_finite_ends_a_run_without_success(value):
    last = run(Countdown((1.0, value)), DESIGN, T, max_iter=10)
    assert last.stop_reason is StopReason.NOT_FINITE
    assert not last.converged
    early = run(Countdown((1.0, value, 2.0)), DESIGN, T, max_iter=10)
    assert (early.stop_reason, early.n_iter) == ("not_finite", 2)


def test_the_callback_sees_the_step_that_is_not_finite():
    seen = []
    run(
        Countdown((np.nan,)), DESIGN, T, max_iter=10, callback=lambda i, info, state: seen.append(i)
    )
    assert seen == [1]


def test_a_finite_run_ends_by_the_condition_of_its_solver():
    result = run(Countdown((1.0, 2.0)), DESIGN, T, max_iter=10)
    assert result.stop_reason is StopReason.CONVERGED
    assert result.converged


def test_every_reason_is_a_code_with_a_few_sentences_of_advice():
    for reason in StopReason:
        assert reason == reason.name.lower()
        assert reason.advice[0].isupper() or reason.advice.startswith("max_")  # a parameter
        assert reason.advice.endswith(".")
        assert reason.advice.count(". ") <= 2  # what happened, what it means, what to do
        assert Result(None, {}, 0, reason).converged == reason.converged
