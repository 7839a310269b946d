"""Numbers out of raw samples: floats in, floats out. Pure, deterministic, no torch.

Everything here describes *one process* unless it says otherwise. An interval computed from the
samples of one process says how well that process's median is known; it does not know how much
another process of the same case would differ, which is usually several times more.

scipy is imported where it is used, so that verbs which only read a table start quickly.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchbench.records import Latency, Samples, StopReason, Throughput

Floats = NDArray[np.float64]

CONFIDENCE = 0.95

# A percentile is reported when at least this many samples are expected beyond it: the usual
# rule for counts of a binomial (expected count of 5 or more; Cochran, Biometrics 10, 1954).
# p90 needs 50 samples, p95 100, p99 500.
SAMPLES_BEYOND_PERCENTILE = 5

# Tukey's outer fence: far out, not merely in the tail (Exploratory Data Analysis, 1977).
OUTLIER_FENCE = 3.0


class Interval(NamedTuple):
    """Bounds in the unit of the values, and the confidence that was asked for."""

    low: float
    high: float
    confidence: float


def per_call_seconds(samples: Iterable[Samples]) -> Floats:
    """Return seconds per call of every sample of phase ``sample``, in the order measured."""
    parts = [
        np.asarray(part.duration_ns, dtype=np.float64) / (1e9 * part.calls_per_sample)
        for part in samples
        if part.phase == "sample" and part.duration_ns
    ]
    return np.concatenate(parts) if parts else np.empty(0)


def latency(samples: Sequence[Samples], stop_reason: StopReason | None = None) -> Latency | None:
    """Return the statistics of one case in seconds per call, or ``None`` without samples.

    Only samples of phase ``sample`` count. With several processes (rounds) the median is the
    median of the processes' medians and there is no interval, because samples of different
    processes are not samples of one distribution. Percentiles are given only for single calls
    and only where the number of samples supports them: a percentile of batch averages would
    hide the tail that it claims to show.
    """
    measured = [part for part in samples if part.phase == "sample" and part.duration_ns]
    if not measured:
        return None
    values = per_call_seconds(measured)
    rounds = sorted({part.round for part in measured})
    medians = [
        float(np.median(per_call_seconds(p for p in measured if p.round == number)))
        for number in rounds
    ]
    single_calls = all(part.calls_per_sample == 1 for part in measured)
    interval = median_interval(values) if len(rounds) == 1 else None
    return Latency(
        median_s=float(np.median(medians)),
        mean_s=mean(values),
        min_s=float(values.min()),
        max_s=float(values.max()),
        n_samples=int(values.size),
        n_processes=len(rounds),
        iterations_per_sample=max(part.calls_per_sample for part in measured),
        ci_low_s=interval.low if interval else None,
        ci_high_s=interval.high if interval else None,
        confidence=interval.confidence if interval else None,
        p90_s=percentile(values, 0.90) if single_calls else None,
        p95_s=percentile(values, 0.95) if single_calls else None,
        p99_s=percentile(values, 0.99) if single_calls else None,
        noise=noise(values),
        n_outliers=outliers(values),
        stop_reason=stop_reason,
    )


def throughput(items: float, item: str, measured: Latency) -> Throughput | None:
    """Return items per second at the median latency; ``None`` when that would be no number.

    ``items`` is what one call processes with the true batch, never with a padded one.
    """
    if not (measured.median_s > 0 and math.isfinite(items) and items > 0):
        return None
    value = items / measured.median_s
    return Throughput(value=value, unit=f"{item}/s") if math.isfinite(value) else None


def mean(values: Sequence[float] | Floats) -> float:
    """Return the mean, kept between the smallest and the largest value despite rounding."""
    x = np.asarray(values, dtype=np.float64)
    return float(np.clip(math.fsum(x) / x.size, x.min(), x.max()))


def noise(values: Sequence[float] | Floats) -> float | None:
    """Return the interquartile range over the median (a fraction); needs two samples."""
    x = np.asarray(values, dtype=np.float64)
    if x.size < 2:
        return None
    low, middle, high = np.quantile(x, [0.25, 0.5, 0.75])
    return float((high - low) / middle) if middle > 0 else None


def outliers(values: Sequence[float] | Floats) -> int:
    """Return how many samples lie above Q3 + 3 IQR. They are counted and never removed."""
    x = np.asarray(values, dtype=np.float64)
    if x.size < 4:  # quartiles of fewer are the samples themselves
        return 0
    low, high = np.quantile(x, [0.25, 0.75])
    return int(np.count_nonzero(x > high + OUTLIER_FENCE * (high - low)))


def samples_needed(p: float) -> int:
    """Return how many samples the percentile ``p`` (0.9 is the 90th) needs to be reported."""
    # 5 / (1 - 0.9) is 50.000000000000014 in floating point, which must not become 51.
    return math.ceil(round(SAMPLES_BEYOND_PERCENTILE / (1.0 - p), 6))


def percentile(values: Sequence[float] | Floats, p: float) -> float | None:
    """Return the percentile ``p``, or ``None`` when there are too few samples to support it."""
    x = np.asarray(values, dtype=np.float64)
    return float(np.quantile(x, p)) if x.size >= samples_needed(p) else None


def effective_sample_size(values: Sequence[float] | Floats) -> float:
    """Return how many independent samples know the median as well as these do, 1 to n.

    n / tau, with the autocorrelation time tau from Geyer's initial positive sequence (Statistical
    Science 7, 1992): pairs of neighbouring autocorrelations are added until a pair is no longer
    positive. The autocorrelation is that of the *side* of the median on which each sample lies,
    because that is what the variance of a median depends on; a few enormous samples therefore
    cannot hide a slow drift, as they would in the plain autocorrelation.
    """
    x = np.asarray(values, dtype=np.float64)
    n = int(x.size)
    if n < 4:
        return float(n)
    side = np.sign(x - np.median(x))
    side -= side.mean()
    variance = float(side @ side)
    if variance <= 0.0:  # all samples equal: nothing to correlate
        return float(n)
    correlation = _autocovariance(side) / variance
    pairs = correlation[: n - n % 2].reshape(-1, 2).sum(axis=1)
    not_positive = np.flatnonzero(pairs <= 0.0)
    last = int(not_positive[0]) if not_positive.size else int(pairs.size)
    tau = 2.0 * float(pairs[:last].sum()) - 1.0
    return float(np.clip(n / tau, 1.0, n)) if tau > 1.0 else float(n)


def _autocovariance(centred: Floats) -> Floats:
    """Return the sums of lagged products for every lag (by FFT: n can be 100 000)."""
    n = int(centred.size)
    padded = 1 << (2 * n - 1).bit_length()
    spectrum = np.fft.rfft(centred, padded)
    return np.asarray(np.fft.irfft(spectrum * np.conj(spectrum), padded)[:n], dtype=np.float64)


def median_interval(
    values: Sequence[float] | Floats,
    confidence: float = CONFIDENCE,
    *,
    effective: float | None = None,
) -> Interval | None:
    """Return a confidence interval of the median from order statistics; ``None`` if too few.

    The binomial interval of the sign test (no assumption about the distribution), with the
    number of samples replaced by ``effective`` (default: :func:`effective_sample_size`). For
    independent samples it is exactly ``scipy.stats.quantile_test(...).confidence_interval``. At
    95 % it needs six effective samples: with fewer, even the smallest and the largest sample do
    not enclose the median often enough.
    """
    x = np.sort(np.asarray(values, dtype=np.float64))
    n = int(x.size)
    if n == 0:
        return None
    m = math.floor(
        effective_sample_size(x if n < 4 else values) if effective is None else effective
    )
    rank = _lower_rank(min(m, n), confidence)
    if rank < 1:
        return None
    # Rank r of m effective samples is the same quantile as this index among n; rounded outwards.
    index = math.floor((rank - 1) * (n - 1) / max(m - 1, 1) + 1e-9)
    return Interval(float(x[index]), float(x[n - 1 - index]), confidence)


def _lower_rank(n: int, confidence: float) -> int:
    """Return the largest r with P(Binomial(n, 1/2) < r) <= (1 - confidence) / 2; 0 if none."""
    from scipy import special

    tail = (1.0 - confidence) / 2.0
    if n < 1 or 0.5**n > tail:
        return 0
    # bdtrik gives the real k with P(X <= k) = tail; P(X <= r - 1) <= tail then holds for r = k + 1.
    rank = math.floor(float(special.bdtrik(tail, n, 0.5))) + 1
    while rank > 0 and float(special.bdtr(rank - 1, n, 0.5)) > tail:
        rank -= 1
    while float(special.bdtr(rank, n, 0.5)) <= tail:
        rank += 1
    return rank


def relative_half_width(interval: Interval, middle: float) -> float | None:
    """Return the wider side of an interval over its middle (a fraction), e.g. 0.0025."""
    if not middle > 0:
        return None
    return max(interval.high - middle, middle - interval.low) / middle


def geometric_mean(ratios: Iterable[float]) -> float | None:
    """Return the geometric mean of the ratios; ``None`` for none.

    Raises ``ValueError`` for a ratio that is not a positive finite number: such a row has no
    place in a mean and must have been left out, aloud, by the caller.
    """
    values = list(ratios)
    wrong = [value for value in values if not (math.isfinite(value) and value > 0)]
    if wrong:
        raise ValueError(f"a geometric mean needs positive finite ratios, got {wrong[0]!r}")
    return math.exp(math.fsum(map(math.log, values)) / len(values)) if values else None
