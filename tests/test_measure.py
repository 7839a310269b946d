"""The timing loops, on a scripted clock: nothing here depends on the machine."""

from __future__ import annotations

from array import array
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchbench import measure, queue_time, steady
from benchbench.measure import NS, ClockCheck, Loop
from benchbench.records import TimingPolicy

MS = 1_000_000
CHECK = ClockCheck(read_s=1e-7, resolution_s=4e-8)


class Clock:
    """Time that passes only when a call says so, plus what a read of the clock costs."""

    def __init__(self, read_ns: int = 0) -> None:
        self.now = 1_000
        self.read_ns = read_ns

    def __call__(self) -> int:
        self.now += self.read_ns
        return self.now


def call(clock: Clock, duration_ns: Callable[[int], int], seen: list[int]) -> measure.Call:
    """Return a call that lasts as long as a function of its number says."""

    def run() -> None:
        seen.append(len(seen) + 1)
        clock.now += duration_ns(len(seen))

    return run


def loop_of(duration_ns: Callable[[int], int], **more: object) -> tuple[Loop, Clock, list[int]]:
    clock, seen = Clock(), []
    one = call(clock, duration_ns, seen)
    return Loop((one, one), clock=clock, **more), clock, seen


# ---- loop ---------------------------------------------------------------------------------


def test_inputs_alternate_through_samples_and_reads() -> None:
    """Case 35."""
    order: list[str] = []
    loop = Loop((lambda: order.append("a"), lambda: order.append("b")))
    into = array("q", [0] * 10)
    loop.read(into, 0, 3, 1)
    loop.read(into, 3, 2, 3)
    assert "".join(order) == "ababababa"


def test_a_sample_covers_its_calls_and_nothing_else() -> None:
    loop, _, seen = loop_of(lambda n: 5 * MS)
    into = array("q", [0] * 4)
    assert loop.read(into, 1, 2, 3) == 2
    assert into.tolist() == [0, 15 * MS, 15 * MS, 0]
    assert len(seen) == 6


def test_no_sample_begins_after_the_limit_but_one_is_always_taken() -> None:
    loop, clock, seen = loop_of(lambda n: 10 * MS)
    into = array("q", [0] * 10)
    assert loop.read(into, 0, 10, 1, clock.now + 25 * MS) == 3
    assert loop.read(into, 0, 10, 1, clock.now - 1) == 1
    assert len(seen) == 4


def test_resets_are_outside_of_samples_and_in_time() -> None:
    clock, seen, resets = Clock(), [], []

    def reset() -> None:
        resets.append(len(seen))
        clock.now += NS  # would show in a sample

    one = call(clock, lambda n: MS, seen)
    loop = Loop((one, one), clock=clock, reset=reset, max_calls=5)
    into = array("q", [0] * 6)
    assert loop.read(into, 0, 6, 2) == 6
    assert resets == [4, 8]
    assert set(into) == {2 * MS}
    assert loop.longest(100) == 5
    assert len(loop.take(3)) == 3


def test_without_a_reset_the_number_of_calls_is_free() -> None:
    loop, _, _ = loop_of(lambda n: MS, max_calls=2)
    into = array("q", [0] * 9)
    assert loop.read(into, 0, 9, 1) == 9


def test_a_device_with_a_queue_is_waited_for_in_each_call() -> None:
    done: list[str] = []
    loop = Loop((lambda: done.append("call"),), synchronize=lambda: done.append("wait"))
    loop.read(array("q", [0]), 0, 1, 2)
    assert done == ["call", "wait", "call", "wait"]
    loop.take(1)[0]()
    assert done[4:] == ["call"]


# ---- clock --------------------------------------------------------------------------------


def test_the_clock_is_checked_against_itself() -> None:
    """Case 40: monotonic, its cost and its step known."""
    clock = Clock(read_ns=50)
    checked = measure.self_check(clock)
    assert checked.read_s == pytest.approx(50e-9)
    assert checked.resolution_s == pytest.approx(50e-9)
    assert measure.self_check().read_s < 1e-4


def test_durations_do_not_come_from_the_wall_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Case 40: the wall clock goes back by an hour, and no duration is negative."""
    import time

    monkeypatch.setattr(time, "time", lambda: 0.0)
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    loop = Loop((lambda: None,))
    into = array("q", [0] * 20)
    loop.read(into, 0, 20, 5)
    assert min(into) >= 0


def test_an_empty_call_costs_next_to_nothing() -> None:
    assert measure.overhead_s(1) < 1e-4
    assert measure.overhead_s(1000) < 1e-5


@pytest.mark.parametrize(
    ("call_s", "calls"), [(1e-6, 200), (150e-6, 2), (200e-6, 1), (3.0, 1), (0.0, 200_000)]
)
def test_short_calls_share_a_sample(call_s: float, calls: int) -> None:
    assert measure.calls_per_sample(call_s, TimingPolicy(), CHECK) == calls


def test_a_slow_clock_makes_longer_samples() -> None:
    slow = ClockCheck(read_s=2e-6, resolution_s=1e-6)
    assert measure.calls_per_sample(1e-5, TimingPolicy(), slow) == 200


# ---- warm-up ------------------------------------------------------------------------------


def warmed(
    duration_ns: Callable[[int], int],
    events: Callable[[int], int] = lambda n: 0,
    policy: TimingPolicy | None = None,
) -> tuple[steady.WarmUp, list[int]]:
    loop, _, seen = loop_of(duration_ns)
    warm = steady.warm_up(
        loop, policy or TimingPolicy(), events=lambda: events(len(seen)), check=CHECK
    )
    return warm, seen


def test_an_even_level_is_steady_soon() -> None:
    warm, seen = warmed(lambda n: 2 * MS)
    assert warm.steady.reached
    assert warm.events == 0
    assert warm.call_s == pytest.approx(2e-3)
    assert 0.3 <= warm.steady.seconds < 1.0
    assert sum(len(one.duration_ns) * one.calls_per_sample for one in warm.samples) == len(seen)


def test_slow_first_calls_are_waited_out() -> None:
    """Case 37: 20 ms for 30 calls, then 2 ms."""
    warm, _ = warmed(lambda n: 20 * MS if n <= 30 else 2 * MS)
    assert warm.call_s == pytest.approx(2e-3)


def test_a_level_that_falls_for_ever_is_not_steady() -> None:
    warm, _ = warmed(lambda n: int(50 * MS * 0.99**n) + MS // 10)
    falling, _ = warmed(lambda n: max(1000, 60 * MS - n * 100_000))
    assert not falling.steady.reached
    assert "differ by" in falling.steady.reason
    assert falling.steady.seconds == pytest.approx(10, abs=1)
    assert warm.steady.seconds <= 11


def test_three_seconds_per_call_are_not_warmed_a_thousand_times() -> None:
    """Case 37: the budget counts, and the level is judged by what fits into it."""
    warm, seen = warmed(lambda n: 3 * NS)
    assert len(seen) == 3
    assert warm.steady.reached
    longer, seen = warmed(lambda n: 30 * NS)
    assert len(seen) == 1
    assert not longer.steady.reached
    assert "only 1 calls" in longer.steady.reason


def test_after_an_event_the_level_is_waited_for_again() -> None:
    """A recompile at call 40 and a capture at call 90 are no part of what follows."""

    def duration(n: int) -> int:
        return NS if n in (40, 90) else 2 * MS

    warm, seen = warmed(duration, lambda n: (n >= 40) + (n >= 90))
    assert warm.events == 2
    assert warm.steady.reached
    assert len(seen) >= 90 + 5
    assert warm.steady.seconds >= 2.2


def test_events_that_never_end_are_named() -> None:
    """Case 14: every call recompiles."""
    warm, _ = warmed(lambda n: 200 * MS, lambda n: n)
    assert not warm.steady.reached
    assert "event" in warm.steady.reason


def test_a_call_that_becomes_much_quicker_gets_longer_samples() -> None:
    warm, _ = warmed(lambda n: 20 * MS if n <= 20 else 10_000)
    assert warm.steady.reached
    assert warm.samples[-1].calls_per_sample == 20
    assert warm.call_s == pytest.approx(10e-6)


def test_noise_that_explains_the_difference_is_no_movement() -> None:
    noise = np.random.default_rng(3)
    values = noise.normal(2 * MS, 0.05 * MS, 100_000).astype(int)
    warm, _ = warmed(lambda n: int(values[n]))
    assert warm.steady.reached
    assert warm.steady.seconds < 5


# ---- sampling -----------------------------------------------------------------------------


def sampled(
    duration_ns: Callable[[int], int], policy: TimingPolicy | None = None, per_sample: int = 1
) -> tuple[list[int], str, Clock]:
    loop, clock, _ = loop_of(duration_ns)
    taken, reason = measure.sample(
        loop, policy or TimingPolicy(), per_sample=per_sample, tidy=lambda: None
    )
    return taken.duration_ns, reason, clock


def test_an_even_level_stops_when_the_median_is_precise() -> None:
    durations, reason, clock = sampled(lambda n: 2 * MS)
    assert reason == "precise"
    assert len(durations) >= 20
    assert 0.3 * NS <= clock.now < 0.6 * NS


def test_a_wide_spread_stops_by_time() -> None:
    values = np.random.default_rng(1).uniform(1, 30, 10_000) * MS
    durations, reason, clock = sampled(lambda n: int(values[n]))
    assert reason == "max_time"
    assert 1.9 * NS < clock.now < 2.1 * NS
    assert durations[0] == int(values[1])


def test_the_number_of_samples_has_a_limit() -> None:
    durations, reason, _ = sampled(lambda n: n * MS, TimingPolicy(max_samples=12))
    assert (len(durations), reason) == (12, "max_samples")


def test_slow_calls_get_three_samples_and_no_more() -> None:
    durations, reason, _ = sampled(lambda n: 3 * NS)
    assert (len(durations), reason) == (3, "max_time")
    durations, reason, _ = sampled(lambda n: 60 * NS)
    assert (len(durations), reason) == (1, "max_time")


def test_one_enormous_sample_is_kept() -> None:
    """Case 44: nothing is deleted; the median does not feel it."""
    durations, _, _ = sampled(lambda n: NS if n == 7 else 2 * MS)
    assert max(durations) == NS
    assert np.median(durations) == 2 * MS


def test_tidying_is_outside_of_the_samples() -> None:
    loop, clock, _ = loop_of(lambda n: MS)
    tidied = []

    def tidy() -> None:
        tidied.append(clock.now)
        clock.now += 50 * MS

    taken, _ = measure.sample(loop, TimingPolicy(), per_sample=1, tidy=tidy)
    assert tidied
    assert set(taken.duration_ns) == {MS}


# ---- estimators ---------------------------------------------------------------------------


def test_independent_samples_count_in_full() -> None:
    series = np.random.default_rng(0).random(5000) > 0.5
    assert measure.autocorrelation_time(series) < 1.3


def test_samples_in_blocks_count_once_per_block() -> None:
    blocks = np.repeat(np.random.default_rng(0).random(500) > 0.5, 20)
    assert measure.autocorrelation_time(blocks) == pytest.approx(20, rel=0.3)


def test_the_interval_of_a_median_covers_it() -> None:
    """The half-width of 400 normal samples is about 1.96 standard errors of their median."""
    random = np.random.default_rng(5)
    widths = [
        measure.relative_half_width(random.normal(1e6, 1e4, 400).astype(np.int64))
        for _ in range(50)
    ]
    assert np.mean(widths) == pytest.approx(1.96 * 1.2533 * 0.01 / 20, rel=0.2)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=200))
def test_estimators_take_any_samples(values: list[int]) -> None:
    durations = np.asarray(values, dtype=np.int64)
    assert measure.relative_half_width(durations) >= 0
    assert 1 <= measure.autocorrelation_time(durations > np.median(durations)) <= len(values)
    assert measure.spread_factor(values) >= 1
    measure.drift(values)


def test_drift_is_a_move_beyond_the_spread() -> None:
    random = np.random.default_rng(2)
    even = random.normal(1e6, 2e4, 600).astype(int)
    moved = even + np.linspace(0, 1e5, 600).astype(int)
    assert measure.drift(even.tolist()) is None
    found = measure.drift(moved.tolist())
    assert found is not None
    assert found == pytest.approx(0.066, abs=0.02)
    assert measure.drift(even[:20].tolist()) is None


def test_times_that_jump_by_a_multiple_show() -> None:
    assert measure.spread_factor([1] * 50 + [100] * 50) == 100
    assert measure.spread_factor([100] * 99 + [1000]) < 1.1


# ---- host and device time -----------------------------------------------------------------


class QueueDevice:
    """A device that works through its queue at its own pace while the host goes on."""

    kind = "fake"
    index = 0
    queued = True

    def __init__(self, clock: Clock, can_hold: bool) -> None:
        self.clock = clock
        self.can_hold = can_hold
        self.free_at = 0

    def launch(self, host_ns: int, device_ns: int) -> None:
        self.clock.now += host_ns
        self.free_at = max(self.free_at, self.clock.now) + device_ns

    def synchronize(self) -> None:
        self.clock.now = max(self.clock.now, self.free_at)

    def hold(self, seconds: float) -> None:
        if self.can_hold:
            self.launch(0, int(seconds * NS))

    def event(self) -> QueueEvent:
        return QueueEvent(self)


class QueueEvent:
    def __init__(self, device: QueueDevice) -> None:
        self.device = device
        self.at = 0

    def record(self) -> None:
        self.at = max(self.device.free_at, self.device.clock.now)

    def query(self) -> bool:
        return self.device.clock.now >= self.at

    def elapsed_s(self, later: QueueEvent) -> float:
        return (later.at - self.at) / NS


def timed_on_device(
    host_ns: int, device_ns: int, *, can_hold: bool = True
) -> queue_time.DeviceTime:
    clock = Clock()
    device = QueueDevice(clock, can_hold)

    def one() -> None:
        device.launch(host_ns, device_ns)

    loop = Loop((one, one), synchronize=device.synchronize, clock=clock)
    call_s = (host_ns + device_ns) / NS
    return queue_time.device_time(loop, device, call_s)  # type: ignore[arg-type]


def test_a_device_that_never_idles_binds() -> None:
    found = timed_on_device(host_ns=100_000, device_ns=1 * MS)
    assert found.bound == "device"
    assert found.period_s == pytest.approx(1e-3, rel=0.01)
    assert found.enqueue_s == pytest.approx(1e-4)
    assert found.device_span_s == pytest.approx(1e-3)
    assert found.gap == pytest.approx(0, abs=0.02)


def test_a_device_that_waits_for_its_host_does_not_bind() -> None:
    found = timed_on_device(host_ns=1 * MS, device_ns=700_000)
    assert found.bound == "host"
    assert found.period_s == pytest.approx(1e-3, rel=0.01)
    assert found.device_span_s == pytest.approx(7e-4)
    assert found.gap == pytest.approx(0.3, abs=0.02)


def test_a_span_that_the_host_cannot_get_ahead_of_is_not_told() -> None:
    found = timed_on_device(host_ns=1 * MS, device_ns=100_000, can_hold=False)
    assert found.device_span_s is None
    assert found.gap is None
    assert found.bound == "host"
