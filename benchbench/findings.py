"""What a worker has found out about a case so far, and the rules that turn it into caveats."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import msgspec

from benchbench import measure
from benchbench.caveats import Caveat
from benchbench.phases import Phases
from benchbench.records import (
    AccuracyResult,
    DeviceTime,
    GraphEvidence,
    Interference,
    Measurement,
    Memory,
    PairedProcess,
    Samples,
    Steady,
    StopReason,
    TimingPolicy,
)

_STARVED = 0.05
_UNSTABLE = 5
_GROWS_BYTES_PER_CALL = 64 * 1024
_GROWS_SHARE = 0.05
_GROWS_BYTES = 16 * 2**20
# Sampling may not eat more than this share of the free memory when a model leaks.
_LEAK_SHARE = 0.25


@dataclass(slots=True)
class Findings:
    """What is known of a case so far: the measurement in the making, also when it fails."""

    phases: Phases
    samples: list[Samples] = field(default_factory=list)
    items: float = 1.0
    item: str = "samples"
    stop_reason: StopReason | None = None
    steady: Steady | None = None
    interference: Interference | None = None
    device_time: DeviceTime | None = None
    graph: GraphEvidence | None = None
    accuracy: AccuracyResult | None = None
    memory: Memory | None = None
    compile_stages_s: dict[str, float] = field(default_factory=dict)
    cache: Literal["cold", "warm", "bypassed", "none"] = "none"
    clock_read_s: float | None = None
    overhead_s: float | None = None
    weights_hash: str | None = None
    model_sources: dict[str, str] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    caveats: list[Caveat] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    look: Callable[[], GraphEvidence] | None = None
    """Collects the graph evidence of this moment, once there is something to collect from."""
    paired: PairedProcess | None = None
    report: Any = None
    """What a job of ``coverage`` or ``diagnose`` found."""

    def add(self, caveat: Caveat, note: str | None = None) -> None:
        """Add a caveat once, with a note that says more."""
        if caveat not in self.caveats:
            self.caveats.append(caveat)
        if note:
            self.notes.append(note)

    def note_growth(self, growth: float | None, calls: int) -> None:
        """Keep the growth of memory, and flag a model that needs more of it with every call."""
        memory = self.memory or Memory()
        self.memory = msgspec.structs.replace(memory, growth_bytes_per_call=growth)
        if growth is None or growth < _GROWS_BYTES_PER_CALL:
            return
        if growth * calls > max(_GROWS_BYTES, _GROWS_SHARE * (memory.weights_bytes or 0)):
            self.add(
                Caveat.MEMORY_GROWS,
                f"memory grew by {growth / 2**20:.3g} MiB per call:"
                f" the steady peak is the one after {calls} sampled calls",
            )

    def note_sampling(self, taken: Samples, threads: int) -> None:
        """Flag what the samples and the host's readings give reason to distrust."""
        moved = measure.drift(taken.duration_ns)
        if moved is not None:
            self.add(Caveat.DRIFT, f"the level moved by {moved:+.1%} while sampling")
        waiting = self.interference.wait_over_wall if self.interference else None
        if waiting is not None and waiting > _STARVED:
            self.add(
                Caveat.STARVED, f"waited for a core for {waiting:.0%} of the time while sampling"
            )
        factor = measure.spread_factor(taken.duration_ns)
        if threads > 1 and factor > _UNSTABLE:
            self.add(Caveat.UNSTABLE_THREADS, f"the 90th percentile is {factor:.1f} times the 10th")

    def measurement(self) -> Measurement:
        """Return all of it as the record's type."""
        values: dict[str, Any] = {
            name: getattr(self, name) for name in Measurement.__struct_fields__ if name in _OWN
        }
        values["caveats"] = [caveat.name for caveat in self.caveats]
        return Measurement(
            phase_s=dict(self.phases.wall_s), phase_cpu_s=dict(self.phases.cpu_s), **values
        )


_OWN = {one.name for one in fields(Findings)}


def growth_per_call(before: int | None, after: int | None, calls: int) -> float | None:
    """Return the bytes by which resident memory has grown per call; ``None`` when unknown."""
    if before is None or after is None or calls < 1:
        return None
    return max(0.0, (after - before) / calls)


def limited(policy: TimingPolicy, growth: float | None) -> TimingPolicy:
    """Return the policy, with fewer samples for a model that would fill the memory."""
    free = _available_bytes()
    if growth is None or growth < _GROWS_BYTES_PER_CALL or free is None:
        return policy
    calls = max(policy.min_samples, int(_LEAK_SHARE * free / growth))
    return msgspec.structs.replace(policy, max_samples=min(policy.max_samples, calls))


def _available_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def exclusive_stages(overlapping: dict[str, float]) -> dict[str, float]:
    """Return the main stages of compiling without their overlap, from torch's nested ones."""
    seconds = overlapping.get
    total = seconds("_compile.compile_inner", 0.0)
    backend = seconds("backend", 0.0) or seconds("OutputGraph.call_user_compiler", 0.0)
    aot = seconds("create_aot_dispatcher_function", 0.0)
    inductor = seconds("compile_fx_inner", 0.0)
    waiting = seconds("async_compile.wait", 0.0)
    stages = {
        "dynamo": total - backend,
        "aot": aot - inductor,
        "inductor": inductor - waiting,
        "kernels": waiting,
        "torchair": seconds("torchair.compile", 0.0),
        "backend": backend - max(aot, inductor),
    }
    return {name: value for name, value in stages.items() if value > 0}
