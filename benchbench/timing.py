"""The timed part of a case: warm up, sample, and begin again should something compile meanwhile."""

from __future__ import annotations

import gc

import msgspec

from benchbench import interference, measure, queue_time, steady
from benchbench.calls import quiet_collector
from benchbench.caveats import Caveat
from benchbench.devices import Device
from benchbench.devices.cpu import resident_bytes
from benchbench.evidence import Watch
from benchbench.failures import CaseError
from benchbench.findings import Findings, growth_per_call, limited
from benchbench.modes import Mode
from benchbench.records import Job, Memory, Samples, TimingPolicy


class Timer:
    """Times the two calls of a loop; what it reads goes into the findings."""

    def __init__(
        self, job: Job, device: Device, mode: Mode, watch: Watch, findings: Findings
    ) -> None:
        self.job = job
        self.policy = job.policy
        self.device = device
        self.mode = mode
        self.watch = watch
        self.findings = findings

    def run(self, loop: measure.Loop) -> None:
        """Warm up and sample; an event while sampling sends back to the warm-up, once."""
        phases = self.findings.phases
        with phases.enter("warmup"):
            clock = measure.self_check(loop.clock)
            self.findings.clock_read_s = clock.read_s
            self.device.preheat()
            self.device.reset_peak_memory()
        with quiet_collector():
            for attempt in (1, 2):
                with phases.enter("warmup"):
                    warm, policy = self.warm_up(loop, clock)
                per_sample = loop.longest(measure.calls_per_sample(warm.call_s, policy, clock))
                with phases.enter("sample"):
                    before = self.watch.events
                    with self.watch.window():
                        taken = self.sample(loop, policy, per_sample)
                    if self.watch.events == before:
                        break
                self.spoilt(taken, attempt)
            self.keep(taken)
            with phases.enter("finish"):
                self.findings.overhead_s = measure.overhead_s(per_sample)
                if self.device.queued:
                    self.findings.device_time = queue_time.device_time(
                        loop, self.device, warm.call_s
                    )

    def warm_up(
        self, loop: measure.Loop, clock: measure.ClockCheck
    ) -> tuple[steady.WarmUp, TimingPolicy]:
        """Warm up; return also the policy for sampling, with fewer samples for a leaking model."""
        before = resident_bytes()
        warm = steady.warm_up(loop, self.policy, events=lambda: self.watch.events, check=clock)
        self.findings.samples += warm.samples
        self.findings.steady = warm.steady
        if not warm.steady.reached:
            self.findings.add(Caveat.NOT_STEADY, f"not steady: {warm.steady.reason}")
        if warm.events:
            self.findings.add(
                Caveat.RECOMPILED_IN_WARMUP,
                f"{warm.events} compile or capture events while warming up",
            )
        growth = growth_per_call(before, resident_bytes(), warm.steady.calls)
        return warm, limited(self.policy, growth)

    def sample(self, loop: measure.Loop, policy: TimingPolicy, per_sample: int) -> Samples:
        """Sample, with readings of host and memory around it."""
        gc.collect()
        resident = resident_bytes()
        before = interference.read()
        taken, reason = measure.sample(loop, policy, per_sample=per_sample, tidy=gc.collect)
        self.findings.interference = interference.between(before, interference.read())
        gc.collect()
        calls = len(taken.duration_ns) * per_sample
        self.findings.note_growth(growth_per_call(resident, resident_bytes(), calls), calls)
        reached = self.findings.steady is None or self.findings.steady.reached
        self.findings.stop_reason = reason if reached else "not_steady"
        return taken

    def spoilt(self, taken: Samples, attempt: int) -> None:
        """Keep samples with a compile among them as warm-up; the second time the row is invalid."""
        self.findings.samples.append(msgspec.structs.replace(taken, phase="warmup"))
        found = self.watch.collect(self.mode, self.device)
        text = "; ".join(found.in_window) or "a compile or capture event"
        if attempt == 2:
            self.findings.graph = found
            raise CaseError(
                "sample",
                "RecompiledWhileSampling",
                f"while sampling, twice: {text}",
                "see the recompile reasons; fix shapes and attributes that change",
            )
        self.findings.add(
            Caveat.RECOMPILED_IN_WARMUP, f"sampling began again after an event inside it: {text}"
        )

    def keep(self, taken: Samples) -> None:
        """Keep the samples, and the peak of memory up to here."""
        self.findings.samples.append(taken)
        self.findings.memory = msgspec.structs.replace(
            self.findings.memory or Memory(),
            steady_peak_bytes=self.device.peak_memory_bytes(),
            meaning=self.device.memory_meaning,
        )
        self.findings.note_sampling(taken, self.job.settings.threads)
