"""The steady-state gate: call until nothing compiles any more and the level stays.

A fixed number of warm-up calls is either wasteful or wrong: modes with graph replay reach their
level at the third call after a capture, a model of three seconds must not be warmed up a
thousand times, and another one is slow for its first second.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchbench.measure import (
    NS,
    ClockCheck,
    Loop,
    buffer,
    calls_per_sample,
    standard_error,
)
from benchbench.records import Samples, Steady, TimingPolicy

# After a compile or capture event the level is not trusted before this many calls and seconds:
# with graph replay the first call compiles, the second records, only the third is quick.
_CALLS_AFTER_EVENT = 5
_SECONDS_AFTER_EVENT = 0.2
# A window of the gate: long enough for a median, short enough to have three.
_WINDOW_SAMPLES = 10
_WINDOW_S = 0.05
_WINDOWS = 3
_WINDOWS_BEFORE_DOUBLING = 6
# Three windows of a slow model may take this share of the longest warm-up, fewer samples each.
_WINDOW_SHARE = 0.25
_COARSE_SAMPLES = 5
_COARSE_TOLERANCE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUp:
    """How a warm-up went: its raw readings, its verdict, and what a call takes now."""

    samples: list[Samples]
    steady: Steady
    call_s: float
    events: int
    """Compile, recompile and capture events while warming up."""


def warm_up(
    loop: Loop, policy: TimingPolicy, *, events: Callable[[], int], check: ClockCheck
) -> WarmUp:
    """Call until events and level have settled, or until the time for it is over.

    ``events`` returns the number of compile, recompile and capture events so far. Steady means:
    none of them for a while, and the medians of the last three windows agree, without a slope,
    within the tolerance or within what the spread of the samples explains.
    """
    return _WarmUp(loop, policy, events, check).run()


class _WarmUp:
    """The state of one warm-up."""

    def __init__(
        self, loop: Loop, policy: TimingPolicy, events: Callable[[], int], check: ClockCheck
    ) -> None:
        self.loop = loop
        self.policy = policy
        self.events = events
        self.check = check
        self.begin = self.event_ns = loop.clock()
        self.until = self.begin + int(policy.warmup_max_time_s * NS)
        self.calls = self.calls_at_event = 0
        self.first_events = self.seen_events = events()
        self.parts: list[Samples] = []
        self.call_ns = 0.0

    def run(self) -> WarmUp:
        """Return the readings and whether the level is steady."""
        self._single_calls()
        steady, reason = self._windows()
        return WarmUp(
            samples=self.parts,
            steady=Steady(
                reached=steady,
                reason=reason,
                calls=self.calls,
                seconds=(self.loop.clock() - self.begin) / NS,
            ),
            call_s=self.call_ns / NS,
            events=self.seen_events - self.first_events,
        )

    def _single_calls(self) -> None:
        """Time the first calls one by one: they tell how long a call takes, and how it settles."""
        readings: list[int] = []
        while len(readings) < max(1, self.policy.warmup_min_calls) and self._fits():
            readings += self._read(1, 1)
            self.call_ns = statistics.median(readings[-3:])
        self.parts.append(_samples(1, readings))

    def _windows(self) -> tuple[bool, str]:
        windows: list[npt.NDArray[np.int64]] = []
        readings: list[int] = []
        verdict: tuple[bool, str] | None = None
        per_sample, factor, tried = 0, 1, 0
        while self._fits():
            wanted = self.loop.longest(calls_per_sample(self.call_ns / NS, self.policy, self.check))
            if not per_sample or not per_sample / 2 < wanted < per_sample * 2:
                self._keep(per_sample, readings)
                per_sample, readings, windows = wanted, [], []
            before = self.seen_events
            window = self._read(self._window_samples(per_sample) * factor, per_sample)
            readings += window
            if self.seen_events != before:
                windows, verdict = [], None
            else:
                windows.append(np.asarray(window))
            self.call_ns = statistics.median(window) / per_sample
            tried += 1
            if len(windows) >= _WINDOWS:
                verdict = settled(windows[-_WINDOWS:], self.policy.steady_tolerance, per_sample)
                if verdict[0] and self._quiet():
                    break
            if tried % _WINDOWS_BEFORE_DOUBLING == 0:
                # Longer windows have steadier medians, which a noisy host needs.
                windows, factor = [], factor * 2
        self._keep(per_sample, readings)
        since = self.calls - self.calls_at_event
        if self.seen_events != self.first_events and since < _CALLS_AFTER_EVENT:
            return False, f"a compile or capture event happened {since} calls before the end"
        return verdict or self._coarse()

    def _coarse(self) -> tuple[bool, str]:
        """Judge by the last single calls, for models too slow for windows."""
        single = self.parts[0].duration_ns[-_WINDOWS:]
        if len(single) < _WINDOWS:
            fitted = f"only {self.calls} calls fitted into {self.policy.warmup_max_time_s:g} s"
            return False, fitted
        return settled([np.asarray([value]) for value in single], _COARSE_TOLERANCE, 1)

    def _read(self, count: int, per_sample: int) -> list[int]:
        readings = buffer(count)
        until = self.until - int(self.call_ns * per_sample)
        taken = self.loop.read(readings, 0, count, per_sample, until)
        self.calls += taken * per_sample
        seen = self.events()
        if seen != self.seen_events:
            self.seen_events = seen
            self.event_ns = self.loop.clock()
            self.calls_at_event = self.calls
        return readings[:taken].tolist()

    def _window_samples(self, per_sample: int) -> int:
        sample_s = max(self.call_ns * per_sample / NS, 1e-9)
        wanted = max(_WINDOW_SAMPLES, math.ceil(_WINDOW_S / sample_s))
        share = _WINDOW_SHARE * self.policy.warmup_max_time_s / _WINDOWS
        return max(1, min(wanted, int(share / sample_s)))

    def _fits(self) -> bool:
        """Say whether one more call ends before the time is over; the first one always does."""
        return self.calls == 0 or self.loop.clock() + self.call_ns <= self.until

    def _quiet(self) -> bool:
        """Say whether nothing has happened for long enough, and enough has been called at all."""
        now = self.loop.clock()
        return (
            self.calls >= self.policy.warmup_min_calls
            and now - self.begin >= self.policy.warmup_min_time_s * NS
            and self.calls - self.calls_at_event >= _CALLS_AFTER_EVENT
            and now - self.event_ns >= _SECONDS_AFTER_EVENT * NS
        )

    def _keep(self, per_sample: int, readings: list[int]) -> None:
        if readings:
            self.parts.append(_samples(per_sample, readings))


def settled(
    windows: Sequence[npt.NDArray[np.int64]], tolerance: float, per_sample: int = 1
) -> tuple[bool, str]:
    """Say whether the medians of ``windows`` agree and have no slope, with a sentence.

    The slope is Theil and Sen's: the median of the slopes between all pairs of medians.
    """
    medians = [float(np.median(window)) for window in windows]
    middle = statistics.median(medians)
    if middle <= 0:
        return True, "calls are shorter than the clock can tell"
    allowed = _allowed(windows, middle, tolerance)
    spread = (max(medians) - min(medians)) / middle
    slopes = [
        (medians[b] - medians[a]) / (b - a)
        for a in range(len(medians))
        for b in range(a + 1, len(medians))
    ]
    slope = abs(statistics.median(slopes)) / middle
    level = ", ".join(f"{median / per_sample / 1e6:.4g}" for median in medians)
    if spread <= allowed and slope <= allowed / 2:
        return True, f"the last {len(medians)} windows agree within {allowed:.1%} ({level} ms)"
    return False, f"the last {len(medians)} windows differ by {spread:.1%} ({level} ms)"


def _allowed(windows: Sequence[npt.NDArray[np.int64]], middle: float, tolerance: float) -> float:
    """Return the difference that is no movement: the tolerance, or what the spread explains."""
    fewest = min(len(window) for window in windows)
    if fewest < _COARSE_SAMPLES:
        return max(tolerance, _COARSE_TOLERANCE)
    explained = max(3 * standard_error(window) / middle for window in windows)
    return max(tolerance, min(explained, _COARSE_TOLERANCE))


def _samples(per_sample: int, readings: list[int]) -> Samples:
    return Samples(phase="warmup", calls_per_sample=per_sample, duration_ns=readings)
