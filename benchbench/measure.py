"""The loops that time calls, and the rule that says when the median is settled.

Nothing here knows a model, a mode or a device by name, and nothing imports torch. Durations are
kept as the integers that the clock gave; what statistics make of them is decided elsewhere.
scipy would offer one of the estimators below, but importing it costs every worker half a second.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchbench.records import Samples, StopReason, TimingPolicy

Call = Callable[[], object]
Clock = Callable[[], int]

NS = 1_000_000_000
FOR_EVER = 1 << 62

# A sample lasts at least this many clock reads, so that reading the clock is at most 0.1 % of it.
_READS_PER_SAMPLE = 1000
# While sampling, memory is tidied and the stop rule asked this often, outside timed spans.
_SLICE_S = 0.1
_SLICE_SAMPLES = 20
# The time limit yields to this many samples, for as long as this many times the limit.
_FEWEST_SAMPLES = 3
_LONGEST_OVERRUN = 5
# Drift: the last third of the samples against the first third.
_DRIFT = 0.02
_DRIFT_SAMPLES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockCheck:
    """What reading the clock costs and what it can tell apart, in seconds."""

    read_s: float
    resolution_s: float


class Loop:
    """Alternating calls with a budget between two resets: what is timed, as one thing to pass on.

    Two calls with different inputs are alternated, so that a result remembered for the last
    input cannot pass for work. On a device with a queue each call is followed by
    ``synchronize``: what is timed is what a caller sees who waits for the result.
    """

    def __init__(
        self,
        calls: Sequence[Call],
        *,
        synchronize: Callable[[], None] | None = None,
        clock: Clock = time.perf_counter_ns,
        reset: Callable[[], None] | None = None,
        max_calls: int | None = None,
    ) -> None:
        self.clock = clock
        self.raw_calls = tuple(calls)
        self._reset = reset
        self._room = max_calls if reset is not None else None
        self._used = 0
        self._turn = 0
        self._calls = self.raw_calls
        if synchronize is not None:
            self._calls = tuple(_synchronized(call, synchronize) for call in self.raw_calls)

    def rewind(self) -> None:
        """Put the model's own state back to where it was after loading. Never inside a span."""
        if self._reset is not None:
            self._reset()
        self._used = 0

    def longest(self, per_sample: int) -> int:
        """Return ``per_sample``, or fewer calls where the model needs a reset before that."""
        return per_sample if self._room is None else max(1, min(per_sample, self._room))

    def read(
        self, into: array[int], at: int, count: int, per_sample: int, until_ns: int = FOR_EVER
    ) -> int:
        """Take up to ``count`` samples of ``per_sample`` calls; return how many were taken.

        The durations, in nanoseconds, are stored from index ``at`` on. No further sample begins
        once the clock has passed ``until_ns``; at least one is taken.
        """
        done = 0
        while done < count:
            room = count - done if self._room is None else (self._room - self._used) // per_sample
            if room < 1:
                self.rewind()
                continue
            chunks = self._chunks(min(room, count - done), per_sample)
            taken = time_calls(chunks, into, at + done, self.clock, until_ns)
            self._used += taken * per_sample
            done += taken
            if taken < len(chunks) or self.clock() >= until_ns:
                break
        return done

    def take(self, count: int) -> list[Call]:
        """Return ``count`` calls without synchronisation, for loops that fill a queue."""
        if self._room is not None and self._used + count > self._room:
            self.rewind()
        self._used += count
        return [self.raw_calls[index % len(self.raw_calls)] for index in range(count)]

    def _chunks(self, count: int, per_sample: int) -> list[tuple[Call, ...]]:
        size = len(self._calls)
        turns = [
            tuple(self._calls[(start + index) % size] for index in range(per_sample))
            for start in range(size)
        ]
        chunks = [turns[(self._turn + index * per_sample) % size] for index in range(count)]
        self._turn = (self._turn + count * per_sample) % size
        return chunks


def time_calls(
    chunks: list[tuple[Call, ...]], into: array[int], at: int, clock: Clock, until_ns: int
) -> int:
    """Time each chunk; the one place where a span is taken. Outputs are dropped at once."""
    done = 0
    for chunk in chunks:
        begin = clock()
        for call in chunk:
            call()
        end = clock()
        into[at + done] = end - begin
        done += 1
        if end >= until_ns:
            break
    return done


def self_check(clock: Clock = time.perf_counter_ns, reads: int = 2000) -> ClockCheck:
    """Measure the clock itself: the cost of one read and the smallest step it shows."""
    readings = [clock() for _ in range(reads + 1)]
    steps = [after - before for before, after in itertools.pairwise(readings)]
    seen = [step for step in steps if step > 0]
    return ClockCheck(
        read_s=(readings[-1] - readings[0]) / reads / NS,
        resolution_s=min(seen, default=0) / NS,
    )


def overhead_s(
    per_sample: int, *, clock: Clock = time.perf_counter_ns, samples: int = 200
) -> float:
    """Return the seconds per call that the loop reads for calls that do nothing."""
    loop = Loop((_nothing, _nothing), clock=clock)
    readings = buffer(samples)
    loop.read(readings, 0, samples, per_sample)
    return statistics.median(readings) / per_sample / NS


def calls_per_sample(call_s: float, policy: TimingPolicy, check: ClockCheck) -> int:
    """Return how many calls make a sample long enough for the clock; 1 for all but short calls."""
    wanted = max(policy.min_sample_s, _READS_PER_SAMPLE * check.read_s)
    return max(1, math.ceil(wanted / max(call_s, 1e-9) - 1e-6))


def sample(
    loop: Loop, policy: TimingPolicy, *, per_sample: int, tidy: Callable[[], object]
) -> tuple[Samples, StopReason]:
    """Sample until the median is settled, or the time or the number of samples is used up.

    ``tidy`` is called every now and then between two samples (it collects garbage, as the
    collector is off while samples are taken); the call after it is not timed.
    """
    clock = loop.clock
    per_sample = loop.longest(per_sample)
    readings = buffer(policy.max_samples)
    scratch = buffer(1)
    begin = clock()
    limit = begin + int(policy.max_time_s * NS)
    last_limit = begin + int(policy.max_time_s * _LONGEST_OVERRUN * NS)
    count = min(_FEWEST_SAMPLES, policy.max_samples)
    count = loop.read(readings, 0, count, per_sample, last_limit)
    while (reason := _stop_reason(readings, count, policy, clock() - begin)) is None:
        tidy()
        longest = max(readings[max(0, count - _SLICE_SAMPLES) : count])
        if longest < _SLICE_S * NS:
            loop.read(scratch, 0, 1, per_sample)
        slice_ns = max(int(_SLICE_S * NS), _SLICE_SAMPLES * longest)
        batch = min(policy.max_samples - count, 1 + _SLICE_SAMPLES + slice_ns // max(1, longest))
        count += loop.read(
            readings, count, batch, per_sample, min(limit - longest, clock() + slice_ns)
        )
    taken = readings[:count].tolist()
    return Samples(phase="sample", calls_per_sample=per_sample, duration_ns=taken), reason


def _stop_reason(
    readings: array[int], count: int, policy: TimingPolicy, elapsed_ns: int
) -> StopReason | None:
    if count >= policy.max_samples:
        return "max_samples"
    enough = count >= policy.min_samples and elapsed_ns >= policy.min_time_s * NS
    if enough and relative_half_width(np.asarray(readings[:count])) <= policy.relative_half_width:
        return "precise"
    # The next sample must fit, too; without this a slow call would overrun by its whole length.
    room_ns = elapsed_ns + readings[count - 1]
    return "max_time" if room_ns > policy.max_time_s * NS else None


def relative_half_width(durations: npt.NDArray[np.int64]) -> float:
    """Return half the width of the median's 95 % interval, relative to the median.

    The interval is the one of order statistics, which needs no assumption on the distribution.
    Neighbouring samples resemble one another, so their number is divided by the autocorrelation
    time first.
    """
    middle = float(np.median(durations))
    if middle <= 0:
        return 0.0
    effective = len(durations) / autocorrelation_time(durations > middle)
    reach = min(0.5, 0.98 / math.sqrt(effective))
    low, high = np.quantile(durations, [0.5 - reach, 0.5 + reach])
    return float(high - low) / 2 / middle


def autocorrelation_time(series: npt.NDArray[np.bool_]) -> float:
    """Return how many neighbours of a series count as one, at least 1.

    Geyer's initial positive sequence: sums of neighbouring pairs of autocorrelations are positive
    for a reversible process, so the first that is not is noise and ends the sum. For a median the
    series that matters is the one of "above or below".
    """
    values = series.astype(np.float64)
    values -= values.mean()
    size = len(values)
    variance = float(values @ values)
    if size < 4 or variance == 0.0:
        return 1.0
    spectrum = np.fft.rfft(values, 2 * size)
    correlation = np.fft.irfft(spectrum * np.conj(spectrum))[:size] / variance
    pairs = correlation[0 : size - size % 2 : 2] + correlation[1 : size - size % 2 : 2]
    ends = np.flatnonzero(pairs <= 0)
    positive = pairs[: ends[0]] if len(ends) else pairs
    return float(min(size, max(1.0, 2 * positive.sum() - 1)))


def drift(durations: Sequence[int]) -> float | None:
    """Return by how much the level moved from the first to the last third of the samples.

    ``None`` when it did not: less than 2 %, or no more than the spread of the samples explains.
    """
    third = len(durations) // 3
    if third < _DRIFT_SAMPLES:
        return None
    values = np.asarray(durations)
    first, last = values[:third], values[-third:]
    before, after = float(np.median(first)), float(np.median(last))
    if before <= 0:
        return None
    error = math.hypot(*(_correlated_error(part) for part in (first, last)))
    moved = abs(after - before)
    return after / before - 1 if moved > _DRIFT * before and moved > 3 * error else None


def _correlated_error(values: npt.NDArray[np.int64]) -> float:
    """Return the standard error of a median of samples that resemble their neighbours."""
    return standard_error(values) * math.sqrt(autocorrelation_time(values > np.median(values)))


def spread_factor(durations: Sequence[int]) -> float:
    """Return the 90th percentile of the samples divided by the 10th."""
    low, high = np.percentile(np.asarray(durations), [10, 90])
    return float(high / low) if low > 0 else 1.0


def standard_error(window: npt.NDArray[np.int64]) -> float:
    """Return the standard error of the window's median, from its quartiles."""
    low, high = np.percentile(window, [25, 75])
    return float(1.253 * (high - low) / 1.349 / math.sqrt(len(window)))


def buffer(size: int) -> array[int]:
    """Return room for ``size`` readings: nothing is allocated while samples are taken."""
    return array("q", bytes(8 * size))


def _synchronized(call: Call, synchronize: Callable[[], None]) -> Call:
    def run() -> None:
        call()
        synchronize()

    return run


def _nothing() -> None:
    pass
