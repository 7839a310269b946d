"""Verdicts: calibrated on known distributions, and never more certain than the data."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from benchbench.verdicts import (
    LOOK_CONFIDENCE,
    Verdict,
    decide,
    decided,
    processes_needed,
    smallest_effect,
)

logs = st.floats(min_value=-1, max_value=1, allow_nan=False)


def test_interval_is_the_paired_t_interval_of_scipy() -> None:
    values = [0.011, 0.034, 0.021, 0.017, 0.04]
    decision = decide(values)
    reference = scipy_stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert decision.ci_low == pytest.approx(math.exp(reference.low), rel=1e-12)
    assert decision.ci_high == pytest.approx(math.exp(reference.high), rel=1e-12)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.05, 0.051, 0.049, 0.05, 0.052], Verdict.FASTER),
        ([-0.05, -0.051, -0.049, -0.05, -0.052], Verdict.SLOWER),
        ([0.001, -0.001, 0.0, 0.002, -0.002], Verdict.SAME),
        ([0.3, -0.3, 0.1, -0.1, 0.0], Verdict.UNCLEAR),
        # clearly not 1, yet below the margin: a true 1 % is no 'faster'
        ([0.010, 0.011, 0.009, 0.010, 0.010], Verdict.SAME),
        ([0.018, 0.0185, 0.0175, 0.018, 0.022], Verdict.UNCLEAR),
    ],
)
def test_each_verdict(values: list[float], expected: Verdict) -> None:
    assert decide(values).verdict is expected


def test_false_alarms_and_coverage_on_normal_noise() -> None:
    """5 processes of sd 0.6 %: the interval covers 1 in 95 %, and a 2 % margin never alarms."""
    rng = np.random.default_rng(7)
    decisions = [decide(list(row)) for row in rng.normal(0, 0.006, (2000, 5))]
    covered = sum(d.ci_low <= 1 <= d.ci_high for d in decisions)  # type: ignore[operator]
    alarms = sum(d.verdict in (Verdict.FASTER, Verdict.SLOWER) for d in decisions)
    assert 0.94 <= covered / len(decisions) <= 0.96
    assert alarms == 0


def test_smallest_effect_is_seen_about_as_often_as_promised() -> None:
    rng = np.random.default_rng(8)
    sd, n = 0.01, 9
    effect = smallest_effect(sd, n)
    assert effect is not None
    seen = 0
    for row in rng.normal(math.log1p(effect), sd, (1500, n)):
        low, _ = scipy_stats.ttest_1samp(row, 0).confidence_interval(0.95)
        seen += low > 0
    assert seen / 1500 >= 0.93
    assert processes_needed(sd, effect) == n


def test_one_process_never_claims_a_small_difference() -> None:
    assert decide([0.048]).verdict is Verdict.UNCLEAR
    assert decide([0.06]).verdict is Verdict.FASTER
    assert decide([0.06]).advisory
    assert decide([0.06], usual_sd=0.03).verdict is Verdict.UNCLEAR
    assert decide([0.06]).ci_low is None


def test_flagged_processes_make_it_noisy() -> None:
    values = [0.05, 0.051, 0.049, 0.05]
    assert decide(values, flagged=1).verdict is Verdict.FASTER
    assert decide(values, flagged=3).verdict is Verdict.NOISY
    assert decide([], flagged=5).verdict is Verdict.NOISY
    assert decide([]).verdict is Verdict.NOT_COMPARABLE


def test_spread_far_beyond_the_usual_is_noisy() -> None:
    assert decide([0.3, 0.5, 0.2, 0.4, 0.1], usual_sd=0.005).verdict is Verdict.NOISY


def test_a_look_stops_only_with_a_verdict_or_a_narrow_interval() -> None:
    assert decided(decide([0.05] * 4 + [0.051], confidence=LOOK_CONFIDENCE))
    assert not decided(decide([0.3, -0.3, 0.1, -0.1, 0.0]))
    assert not decided(decide([0.2]).__class__(verdict=Verdict.UNCLEAR, n=1))


def test_not_finite_is_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        decide([math.nan, 0.0])


@given(st.lists(logs, min_size=1, max_size=20))
def test_swapping_the_arms_mirrors_the_verdict(values: list[float]) -> None:
    mirror = {Verdict.FASTER: Verdict.SLOWER, Verdict.SLOWER: Verdict.FASTER}
    there, back = decide(values), decide([-value for value in values])
    assert back.verdict is mirror.get(there.verdict, there.verdict)


@given(st.lists(logs, min_size=2, max_size=20), st.floats(min_value=0.001, max_value=0.5))
def test_a_verdict_needs_interval_and_size(values: list[float], margin: float) -> None:
    decision = decide(values, margin=margin)
    assert decision.ci_low is not None
    assert decision.ci_high is not None
    assert decision.speedup is not None
    if decision.verdict is Verdict.FASTER:
        assert decision.ci_low >= 1  # exp rounds a tiny positive bound to 1
        assert decision.speedup >= (1 + margin) * (1 - 1e-12)
    if decision.verdict is Verdict.SAME:
        assert decision.ci_low >= 1 / (1 + margin) * (1 - 1e-12)
        assert decision.ci_high <= (1 + margin) * (1 + 1e-12)
