"""Host and device time of one call on a device with a queue, and which of the two binds.

Graph modes mostly buy host time, so one number cannot say what a mode is good for: ``period`` is
what throughput comes from, ``enqueue`` is the host's cost, ``device_span`` the device's.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from benchbench.measure import FOR_EVER, NS, Loop, buffer, time_calls
from benchbench.records import DeviceTime

if TYPE_CHECKING:
    from benchbench.devices import Device

_PIPELINE_S = 0.2
_FIRST_CALLS = 10
_SPANS = 20
# The device is kept busy for as long as the host needs for this many calls.
_HOLD = 3
# The host binds when the device waits for it: a call takes as long as queueing it does, and the
# device idles. The device binds when it never idles.
_HOST_BOUND = 1.05
_GAP = 0.10
_NO_GAP = 0.02


def device_time(loop: Loop, device: Device, call_s: float) -> DeviceTime:
    """Return host and device time per call of a device with a queue, and which of them binds."""
    period_s, enqueue_s = pipeline(loop, call_s=call_s, synchronize=device.synchronize)
    span_s = device_span(loop, device, enqueue_s)
    gap = None if span_s is None else max(0.0, 1 - span_s / period_s)
    return DeviceTime(
        period_s=period_s,
        enqueue_s=enqueue_s,
        device_span_s=span_s,
        gap=gap,
        bound=_bound(period_s, enqueue_s, gap),
        resolution_s=event_resolution_s(device),
    )


def pipeline(loop: Loop, *, call_s: float, synchronize: Callable[[], None]) -> tuple[float, float]:
    """Return the sustained seconds per call, and the seconds until a call returns to its caller.

    Many calls, one synchronisation at the end. The queue may fill up and make the host wait, so
    the host's cost is read where the queue is still empty: the quicker of the median of the first
    calls and the median of all.
    """
    wanted = max(_FIRST_CALLS, math.ceil(_PIPELINE_S / max(call_s, 1e-7)))
    calls = loop.take(loop.longest(wanted))
    returns = buffer(len(calls))
    synchronize()
    begin = loop.clock()
    time_calls([(call,) for call in calls], returns, 0, loop.clock, FOR_EVER)
    synchronize()
    period_s = (loop.clock() - begin) / len(calls) / NS
    first = statistics.median(returns[:_FIRST_CALLS])
    return period_s, min(first, statistics.median(returns)) / NS


def device_span(loop: Loop, device: Device, enqueue_s: float) -> float | None:
    """Return the device's seconds for one call, or ``None`` where they cannot be told.

    The span between two events is the device's own only if the host has put the whole call into
    the queue before the device reaches the first event; otherwise it measures the host. So the
    device is given other work first, and a span counts only if its first event was still to come.
    """
    spans: list[float] = []
    for _ in range(_SPANS):
        start, end = device.event(), device.event()
        if start is None or end is None:
            break
        (timed,) = loop.take(1)
        device.synchronize()
        device.hold(_HOLD * enqueue_s)
        start.record()
        timed()
        end.record()
        ahead = not start.query()
        device.synchronize()
        if ahead:
            spans.append(start.elapsed_s(end))
    return statistics.median(spans) if spans else None


def event_resolution_s(device: Device) -> float | None:
    """Return the seconds that two events right behind one another are apart."""
    steps: list[float] = []
    for _ in range(_SPANS):
        start, end = device.event(), device.event()
        if start is None or end is None:
            return None
        start.record()
        end.record()
        device.synchronize()
        steps.append(start.elapsed_s(end))
    return statistics.median(steps)


def _bound(
    period_s: float, enqueue_s: float, gap: float | None
) -> Literal["host", "device", "mixed", "unknown"]:
    host_keeps_up = period_s > _HOST_BOUND * enqueue_s
    if gap is None:
        return "unknown" if host_keeps_up else "host"
    if gap < _NO_GAP:
        return "device"
    return "host" if not host_keeps_up and gap > _GAP else "mixed"
