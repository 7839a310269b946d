"""Baseline and candidate in one process, in turns: the most exact way to know their ratio.

Both share the process, its memory layout and the minute, so what differs is the mode. They take
turns of 20 to 50 ms (short enough for drift to hit both, long enough for caches to belong to the
one whose turn it is), in the order A B B A, so that neither always goes first. One process gives
one number, the median over its rounds of log(baseline / candidate). Its level is not reported: it
is measured in shared caches, and a case's own process tells it better.
"""

from __future__ import annotations

import gc
import math
import statistics
from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import msgspec

from benchbench import interference, measure, steady
from benchbench.calls import grad_mode, quiet_collector
from benchbench.caveats import Caveat
from benchbench.failures import CaseError
from benchbench.records import ComparisonPolicy, Job, PairedProcess, Samples

T = TypeVar("T")

if TYPE_CHECKING:
    from benchbench.devices import Device
    from benchbench.evidence import Watch
    from benchbench.findings import Findings

# Flags of the process, by what happened to it and never by its value.
STARVED_SHARE = 0.05
FEW_ROUNDS = "few_rounds"
# Calls so slow that the time is over after a few rounds vary little from one to the next; below
# this many rounds a median is none.
FEWEST_ROUNDS = 5
_BUFFER_SAMPLES = 4096


class Arm:
    """One side of a duet: a loop that is warm, and how many samples make a turn."""

    def __init__(self, name: str, loop: measure.Loop, call_s: float, per_sample: int) -> None:
        self.name = name
        self.loop = loop
        self.per_sample = per_sample
        self.sample_s = max(call_s * per_sample, 1e-9)
        self.durations: list[int] = []
        self.medians: list[float] = []
        self._turn = array("q")

    def prepare(self, turn_s: float) -> None:
        """Make room for the samples of a turn of ``turn_s`` seconds; at least one."""
        size = max(1, min(_BUFFER_SAMPLES, math.ceil(turn_s / self.sample_s)))
        self._turn = measure.buffer(size)

    def turn(self) -> None:
        """Take the samples of one turn; keep them all, and their median per call."""
        self.loop.read(self._turn, 0, len(self._turn), self.per_sample)
        taken = self._turn.tolist()
        self.durations += taken
        self.medians.append(statistics.median(taken) / self.per_sample)

    def samples(self, round_number: int) -> Samples:
        """Return the raw readings, in the order they were taken."""
        return Samples(
            phase="duet_baseline" if self.name == "baseline" else "duet_candidate",
            calls_per_sample=self.per_sample,
            duration_ns=self.durations,
            round=round_number,
        )


def alternate(first: Arm, second: Arm, policy: ComparisonPolicy) -> int:
    """Let both arms take turns, A B B A, and return the number of whole rounds.

    Stops after ``policy.rounds`` rounds, or before when ``policy.process_max_time_s`` is over.
    """
    for arm in (first, second):
        arm.prepare(policy.turn_s)
    clock = first.loop.clock
    until = clock() + int(policy.process_max_time_s * measure.NS)
    done = 0
    while done < policy.rounds:
        for arm in (first, second) if done % 2 == 0 else (second, first):
            arm.turn()
        done += 1
        if clock() >= until:
            break
    return done


def log_ratio(baseline: Arm, candidate: Arm) -> float:
    """Return the median over rounds of log(baseline / candidate), from the turns' medians.

    Pairing by round lets slow drift of the host cancel: both turns of a round feel it alike.
    """
    pairs = zip(baseline.medians, candidate.medians, strict=True)
    return statistics.median(math.log(max(a, 1e-9) / max(b, 1e-9)) for a, b in pairs)


class Duet:
    """A worker's job of kind ``duet``."""

    def __init__(self, job: Job, device: Device, findings: Findings) -> None:
        if job.partner is None:
            raise CaseError("load", "BadJob", "a duet job needs a partner")
        self.job = job
        self.device = device
        self.findings = findings

    def run(self) -> None:
        """Load and compile both, warm both up, let them take turns."""
        from benchbench.jobs import Side  # jobs imports this module

        partner = self.job.partner
        assert partner is not None
        jobs = [msgspec.structs.replace(self.job, case=partner), self.job]
        sides = [Side(job, self.device, self.findings) for job in jobs]
        # One watch: its counters are the process's, and starting a second one would clear them.
        sides[1].watch = sides[0].watch
        for side in self.in_turn(sides):
            with side.phases.enter("load"):
                side.load()
            with side.phases.enter("inputs"), grad_mode(self.job.settings.grad_mode):
                side.make_inputs()
        with grad_mode(self.job.settings.grad_mode):
            with sides[0].phases.enter("converters"):
                sides[0].watch.start()
            for side in self.in_turn(sides):
                side.compile()
                side.forget_check()
            self.compare([side.loop() for side in sides], sides[0].watch)

    def in_turn(self, pair: list[T]) -> list[T]:
        """Return baseline and candidate in the order of this process.

        What is loaded and warmed up second is 0.3 % faster for that alone (measured with a model
        against itself), so every other process begins with the candidate.
        """
        return pair if self.job.round % 2 == 0 else pair[::-1]

    def compare(self, loops: list[measure.Loop], watch: Watch) -> None:
        """Warm up and alternate; an event while alternating leaves the process without a ratio."""
        phases = self.findings.phases

        def events() -> int:
            return watch.events

        with quiet_collector():
            with phases.enter("warmup"):
                clock = measure.self_check(loops[0].clock)
                self.device.preheat()
                named = list(zip(("baseline", "candidate"), loops, strict=True))
                warm = {
                    name: self.warm(name, loop, clock, events) for name, loop in self.in_turn(named)
                }
                arms = [warm["baseline"], warm["candidate"]]
            with phases.enter("sample"):
                gc.collect()
                before, seen = interference.read(), events()
                first, second = self.in_turn(arms)
                rounds = alternate(first, second, self.job.comparison)
                happened = interference.between(before, interference.read())
        if events() != seen:
            raise CaseError(
                "sample",
                "RecompiledWhileSampling",
                "a compile or capture event happened while baseline and candidate took turns",
            )
        self.findings.interference = happened
        self.findings.samples = [arm.samples(self.job.round) for arm in arms]
        self.findings.paired = PairedProcess(
            round=self.job.round,
            log_ratio=log_ratio(arms[0], arms[1]),
            baseline_median_s=statistics.median(arms[0].medians) / measure.NS,
            candidate_median_s=statistics.median(arms[1].medians) / measure.NS,
            rounds=rounds,
            flags=flags(happened.wait_over_wall, rounds),
        )

    def warm(
        self, name: str, loop: measure.Loop, clock: measure.ClockCheck, events: Callable[[], int]
    ) -> Arm:
        """Warm one side up on its own."""
        policy = self.job.policy
        warm = steady.warm_up(loop, policy, events=events, check=clock)
        per_sample = loop.longest(measure.calls_per_sample(warm.call_s, policy, clock))
        return Arm(name, loop, warm.call_s, per_sample)


def flags(waited: float | None, rounds: int) -> list[str]:
    """Return why a process is left out of the interval; empty for one that counts."""
    found = []
    if waited is not None and waited > STARVED_SHARE:
        found.append(Caveat.STARVED.name)
    if rounds < FEWEST_ROUNDS:
        found.append(FEW_ROUNDS)
    return found
