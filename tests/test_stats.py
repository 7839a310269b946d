"""Statistics: what each number means, what is withheld, and on which data it must not fall over.

Covers cases 44 and 68 (one sample, undefined spread), 20 (true batch), 80 (geometric mean).
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import quantile_test

from benchbench import stats
from benchbench.records import Samples

durations = st.lists(st.integers(min_value=1, max_value=10**12), min_size=1, max_size=60)


def sampled(values_ns: list[int], k: int = 1, round: int = 0) -> Samples:
    return Samples(phase="sample", calls_per_sample=k, duration_ns=values_ns, round=round)


@given(durations, st.integers(1, 1000))
def test_order_of_the_numbers_holds_for_any_samples(values: list[int], k: int) -> None:
    found = stats.latency([sampled(values, k)])
    assert found is not None
    assert found.n_samples == len(values)
    assert 0 < found.min_s <= found.median_s <= found.max_s
    assert found.min_s <= found.mean_s <= found.max_s
    assert math.isclose(found.min_s, min(values) / 1e9 / k)
    if found.ci_low_s is not None and found.ci_high_s is not None:
        assert found.min_s <= found.ci_low_s <= found.median_s <= found.ci_high_s <= found.max_s
    for number in (found.noise, found.p90_s, found.p95_s, found.p99_s):
        assert number is None or math.isfinite(number)


@given(durations)
def test_equal_input_gives_equal_output(values: list[int]) -> None:
    assert stats.latency([sampled(values)]) == stats.latency([sampled(values)])


def test_one_sample_pretends_nothing() -> None:
    """Case 44: with one sample there is a level and nothing else."""
    found = stats.latency([sampled([2_000_000])], "max_time")
    assert found is not None
    assert (found.median_s, found.n_samples, found.stop_reason) == (0.002, 1, "max_time")
    assert found.noise is None
    assert found.p90_s is None
    assert found.ci_low_s is None
    assert found.confidence is None


def test_two_samples_have_no_percentile_and_no_interval() -> None:
    found = stats.latency([sampled([2_000_000, 2_100_000])])
    assert found is not None
    assert found.p99_s is None
    assert found.ci_low_s is None


def test_no_samples_is_no_latency() -> None:
    assert stats.latency([]) is None
    assert stats.latency([sampled([])]) is None


def test_only_the_sample_phase_counts() -> None:
    warm = Samples(phase="warmup", calls_per_sample=1, duration_ns=[10**12] * 50)
    first = Samples(phase="compile", calls_per_sample=1, duration_ns=[10**12])
    found = stats.latency([first, warm, sampled([1_000_000] * 10)])
    assert found is not None
    assert found.max_s == 0.001


def test_one_enormous_sample_moves_the_mean_and_not_the_median() -> None:
    """Case 44: the headline is robust and the outlier is visible."""
    values = [2_000_000 + i * 1000 for i in range(20)]
    values[7] = 1_000_000_000
    found = stats.latency([sampled(values)])
    assert found is not None
    assert found.median_s == pytest.approx(0.002, rel=0.01)
    assert found.mean_s > 0.04
    assert found.max_s == 1.0
    assert found.n_outliers == 1


def test_equal_samples_have_zero_noise_and_an_interval_without_width() -> None:
    found = stats.latency([sampled([1000] * 100)])
    assert found is not None
    assert found.noise == 0.0
    assert found.ci_low_s == found.ci_high_s == found.median_s
    assert found.n_outliers == 0


def test_calls_per_sample_divide_and_forbid_percentiles() -> None:
    found = stats.latency([sampled([8_000_000] * 1000, k=8)])
    assert found is not None
    assert found.median_s == pytest.approx(0.001)
    assert found.iterations_per_sample == 8
    assert found.p90_s is None


@pytest.mark.parametrize(
    ("n", "expected"),
    [
        (49, (False, False, False)),
        (50, (True, False, False)),
        (100, (True, True, False)),
        (499, (True, True, False)),
        (500, (True, True, True)),
    ],
)
def test_percentiles_need_five_samples_beyond_them(n: int, expected: tuple[bool, ...]) -> None:
    found = stats.latency([sampled(list(range(1, n + 1)))])
    assert found is not None
    assert tuple(p is not None for p in (found.p90_s, found.p95_s, found.p99_s)) == expected


def test_several_processes_have_a_median_of_medians_and_no_interval() -> None:
    long_and_slow = sampled([3000] * 90, round=0)
    found = stats.latency([long_and_slow, sampled([1000] * 10, round=1), sampled([2000], round=2)])
    assert found is not None
    assert found.n_processes == 3
    assert found.median_s == pytest.approx(2000e-9)
    assert found.ci_low_s is None


@settings(max_examples=50)
@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=200))
def test_interval_of_independent_samples_is_scipys(values: list[float]) -> None:
    ours = stats.median_interval(values, effective=len(values))
    theirs = quantile_test(values, p=0.5).confidence_interval(0.95)
    if ours is None:
        assert math.isnan(theirs.low) or math.isnan(theirs.high)
    else:
        assert (ours.low, ours.high) == (theirs.low, theirs.high)


def test_six_effective_samples_are_the_least_for_an_interval() -> None:
    assert stats.median_interval([1.0, 2.0, 3.0, 4.0, 5.0], effective=5) is None
    assert stats.median_interval([1.0, 3.0, 2.0, 5.0, 4.0, 6.0], effective=6) == (1.0, 6.0, 0.95)


def test_interval_covers_the_true_median_for_independent_and_for_correlated_samples() -> None:
    """A plain interval of correlated samples would cover far less often than it claims."""
    rng = np.random.default_rng(1)
    covered = {"independent": 0, "correlated": 0, "ignoring it": 0}
    rounds = 300
    for _ in range(rounds):
        shocks = rng.normal(size=400)
        walk = np.empty(400)
        walk[0] = shocks[0]
        for i in range(1, 400):
            walk[i] = 0.9 * walk[i - 1] + shocks[i] * math.sqrt(1 - 0.81)
        for name, x, effective in (
            ("independent", shocks, None),
            ("correlated", walk, None),
            ("ignoring it", walk, 400.0),
        ):
            found = stats.median_interval(x, effective=effective)
            assert found is not None
            covered[name] += found.low <= 0.0 <= found.high
    assert covered["independent"] / rounds > 0.91
    assert covered["correlated"] / rounds > 0.87
    assert covered["ignoring it"] / rounds < 0.6


@given(st.lists(st.floats(0, 1e6), max_size=80))
def test_effective_sample_size_is_between_one_and_n(values: list[float]) -> None:
    found = stats.effective_sample_size(values)
    assert min(1, len(values)) <= found <= len(values)


def test_effective_sample_size_of_a_drift_is_small_even_with_an_outlier() -> None:
    drifting = [1.0 + i * 1e-3 for i in range(500)]
    assert stats.effective_sample_size(drifting) < 20
    drifting[100] = 1e6
    assert stats.effective_sample_size(drifting) < 20


def test_effective_sample_size_of_independent_samples_is_near_n() -> None:
    x = np.random.default_rng(3).normal(size=2000)
    assert stats.effective_sample_size(x) > 1200


def test_throughput_is_true_items_over_the_median() -> None:
    """Case 20: items come with the true batch; nothing here pads."""
    found = stats.latency([sampled([2_000_000] * 20)])
    assert found is not None
    rate = stats.throughput(3, "tokens", found)
    assert rate is not None
    assert rate.value == pytest.approx(1500.0)
    assert rate.unit == "tokens/s"


def test_throughput_of_nothing_is_absent() -> None:
    found = stats.latency([sampled([2_000_000])])
    assert found is not None
    assert stats.throughput(0, "tokens", found) is None
    assert stats.throughput(float("nan"), "tokens", found) is None


def test_geometric_mean_refuses_what_has_no_logarithm() -> None:
    """Case 80: 0, NaN and negative ratios never enter a log."""
    assert stats.geometric_mean([]) is None
    assert stats.geometric_mean([2.0, 0.5]) == pytest.approx(1.0)
    for wrong in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="positive finite"):
            stats.geometric_mean([1.0, wrong])
