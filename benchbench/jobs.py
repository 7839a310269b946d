"""What a worker does in each kind of job: the phases of a case, in order, on real objects.

``measure`` times one mode. ``reference`` runs eager for the group's comparison of outputs.
``warm_compile`` compiles once more on the cache folder that ``measure`` has just filled.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import torch

from benchbench import (
    correctness,
    environment,
    evidence,
    forkserver,
    interference,
    loading,
    measure,
    queue_time,
    steady,
)
from benchbench.caveats import Caveat
from benchbench.correctness import leaves
from benchbench.correctness.recorder import Recorder, call_seed, seed_everything
from benchbench.devices import Device
from benchbench.devices.cpu import resident_bytes
from benchbench.evidence import Watch
from benchbench.failures import CaseError
from benchbench.models import Inputs, Workload
from benchbench.modes import Mode
from benchbench.phases import Phases
from benchbench.records import (
    AccuracyResult,
    GraphEvidence,
    Interference,
    Job,
    Measurement,
    Memory,
    Samples,
    Steady,
    StopReason,
    TimingPolicy,
)

# Inputs of the calls that are timed; the checked calls have the numbers from 0 on.
_TIMED_INPUTS = (100, 101)
# Inputs that nobody has seen before, to tell a model that remembers results from one that works.
_NEW_INPUTS = (102, 103, 104)
_MEMOISED = 20
_SLOW_CALL_S = 0.2

_PLAIN = (torch.Tensor, torch.nn.Parameter)

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
    device_time: Any = None
    graph: GraphEvidence | None = None
    accuracy: AccuracyResult | None = None
    memory: Memory | None = None
    compile_stages_s: dict[str, float] = field(default_factory=dict)
    cache: Any = "none"
    clock_read_s: float | None = None
    overhead_s: float | None = None
    weights_hash: str | None = None
    model_sources: dict[str, str] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    caveats: list[Caveat] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, caveat: Caveat, note: str | None = None) -> None:
        """Add a caveat once, with a note that says more."""
        if caveat not in self.caveats:
            self.caveats.append(caveat)
        if note:
            self.notes.append(note)

    def measurement(self) -> Measurement:
        """Return all of it as the record's type."""
        names = [name for name in Measurement.__struct_fields__ if hasattr(self, name)]
        values = {name: getattr(self, name) for name in names}
        values["caveats"] = [caveat.name for caveat in self.caveats]
        return Measurement(
            phase_s=dict(self.phases.wall_s), phase_cpu_s=dict(self.phases.cpu_s), **values
        )


def run(job: Job, device: Device, findings: Findings) -> None:
    """Do the job; what it finds out is in ``findings``, also when it raises."""
    if job.kind == "reference":
        _Reference(job, device, findings).run()
    else:
        _Measure(job, device, findings).run()


class _Reference:
    """Eager's side of the comparison, written to a file."""

    def __init__(self, job: Job, device: Device, findings: Findings) -> None:
        self.job = job
        self.device = device
        self.findings = findings

    def run(self) -> None:
        job, findings = self.job, self.findings
        phases = findings.phases
        with phases.enter("load"):
            prepare_process(job, self.device)
            findings.environment = environment.collect(self.device)
        with phases.enter("check"), grad_mode(job.settings.grad_mode):
            findings.accuracy = correctness.make_reference(
                functools.partial(self._build, loading.build_workload),
                functools.partial(self._build, loading.build_golden),
                calls=job.policy.check_calls + 1,
                seed=job.case.seed,
                synchronize=self.device.synchronize,
                path=Path(_needed(job.reference_path, "reference_path")),
            )

    def _build(self, build: Callable[..., Workload]) -> Workload:
        # A model that fails while it is built fails in the phase "load" here, too. Parameters
        # that are made in inference mode would be of another kind than those that are measured.
        with self.findings.phases.enter("load"), torch.inference_mode(False), torch.enable_grad():
            return _build(build, self.job, self.device)


class _Measure:
    """One case from loading to the last reading."""

    def __init__(self, job: Job, device: Device, findings: Findings) -> None:
        self.job = job
        self.case = job.case
        self.policy = job.policy
        self.device = device
        self.findings = findings
        self.phases = findings.phases
        self.watch = Watch()
        self.seed = functools.partial(call_seed, job.case.seed)

    def run(self) -> None:
        """Go through the phases."""
        with self.phases.enter("load"):
            self.load()
        with self.phases.enter("inputs"):
            self.make_inputs()
        # One context around all calls from the first one on: another one would recompile.
        with grad_mode(self.job.settings.grad_mode):
            with self.phases.enter("converters"):
                self.watch.start()
            self.compile()
            if self.job.kind == "warm_compile":
                return
            with self.phases.enter("check"):
                self.check()
            self.time()
            with self.phases.enter("finish"):
                self.finish()

    # ---- before the first call ----------------------------------------------------------------

    def load(self) -> None:
        """Import, select the device, build the model."""
        prepare_process(self.job, self.device)
        self.mode: Mode = loading.build_mode(self.case.mode_target)
        if self.mode.compiles:
            begin = time.perf_counter()
            forkserver.prepare_imports()
            # Apart from the compile phase: what an import costs is no property of the model.
            self.findings.compile_stages_s["imports"] = time.perf_counter() - begin
        _import_model(self.case.model_target.path)
        self.device.mark_memory_base()
        self.workload = _build(loading.build_workload, self.job, self.device)
        self.findings.notes += self.workload.notes
        self.findings.items = float(self.workload.items)
        self.findings.item = self.workload.item
        self.findings.environment = environment.collect(self.device)
        self.note_spoiling_variables()

    def note_spoiling_variables(self) -> None:
        """Name what the user's shell has set and what the row suffers from."""
        asked = self.job.settings.environment
        for sentence in environment.spoiling_variables(os.environ, asked):
            self.findings.add(Caveat.SETTING_SPOILS, sentence)

    def make_inputs(self) -> None:
        """Make the inputs of the first call and of the timed ones; hash weights and sources."""
        self.recorder = Recorder(
            self.workload, seed=self.case.seed, synchronize=self.device.synchronize
        )
        self.findings.weights_hash = self.recorder.trace.weights
        self.findings.model_sources = loading.source_hashes(self.case.model_target.path)
        self.timed = [self.new_inputs(index) for index in _TIMED_INPUTS]

    def new_inputs(self, index: int) -> Inputs:
        """Return inputs that no checked call has seen, marked as the mode wants them."""
        seed_everything(self.seed(index))
        inputs = self.workload.make_inputs(self.seed(index))
        self.mark(inputs)
        return inputs

    def mark(self, inputs: Inputs) -> None:
        """Let the mode mark inputs before their first use (sizes of dynamic dimensions)."""
        marking = getattr(self.mode, "mark_inputs", None)
        if marking is not None:
            marking(inputs)

    # ---- first call and check -----------------------------------------------------------------

    def compile(self) -> None:
        """Wrap the module and call it once, which compiles."""
        inputs = self.recorder.inputs(0)
        self.mark(inputs)
        filled = _is_filled(self.job.cache_dir)
        self.device.reset_peak_memory()
        with self.phases.enter("compile"):
            self.prepared = self.mode.prepare(self.workload.module, self.device, self.watch)
            output = self.prepared(*inputs.args, **inputs.kwargs)
            self.lazy = materialise(output)
            self.device.synchronize()
        self.findings.memory = Memory(
            compile_peak_bytes=self.device.peak_memory_bytes(),
            weights_bytes=weights_bytes(self.workload.module),
            meaning=self.device.memory_meaning,
        )
        self.recorder.record(0, inputs, output)
        if self.mode.compiles:
            self.note_cache(filled)
            self.require_graph("compile")

    def note_cache(self, filled: bool) -> None:
        """Take over the compile stages and what the cache did."""
        self.findings.compile_stages_s |= exclusive_stages(self.watch.compile_stages())
        self.findings.cache = self.watch.cache()
        hits = self.watch.counter("inductor", "fxgraph_cache_hit")
        # In a folder that was empty a hit is the case's own graph met again: still cold.
        if self.job.kind == "measure" and hits and filled:
            self.findings.add(Caveat.WARM_CACHE)

    def check(self) -> None:
        """Call with other inputs and compare outputs and state with eager's."""
        if not self.job.accuracy or self.job.reference_path is None:
            reason = "there is nothing to compare with" if self.job.accuracy else "switched off"
            self.findings.accuracy = AccuracyResult(verdict="off", reason=reason)
            self.forget_check()
            return
        for index in range(1, self.policy.check_calls + 1):
            inputs = self.recorder.inputs(index)
            self.mark(inputs)
            output = self.prepared(*inputs.args, **inputs.kwargs)
            materialise(output)
            self.recorder.record(index, inputs, output)
        del inputs, output
        self.recorder.finish()
        result = correctness.compare(
            self.recorder, Path(self.job.reference_path), getattr(torch, self.case.dtype)
        )
        self.findings.accuracy = result
        if correctness.WITHOUT_GOLDEN in result.notes:
            self.findings.add(Caveat.CHECKED_WITHOUT_GOLDEN)
        self.forget_check()
        if self.mode.compiles:
            self.require_graph("check")
        if result.verdict == "fail":
            reason = result.reason or "outputs differ from eager's"
            raise CaseError("check", "WrongOutput", reason, "no time is taken of wrong outputs")

    def forget_check(self) -> None:
        """Drop the copies of the check: they are no part of the mode's memory."""
        del self.recorder

    def require_graph(self, phase: Any) -> None:
        """Raise when what ran was eager although a graph was asked for."""
        found = self.watch.collect(self.mode, self.device)
        self.findings.graph = found
        if found.fallbacks:
            raise CaseError(
                phase,
                "Fallback",
                f"{self.mode.name} did not run as asked: {'; '.join(found.fallbacks)}",
                "the graph breaks and recompile reasons are in the record",
            )

    # ---- timing -------------------------------------------------------------------------------

    def time(self) -> None:
        """Warm up and sample; an event while sampling sends back to the warm-up, once."""
        loop = self.loop()
        check = measure.self_check(loop.clock)
        self.findings.clock_read_s = check.read_s
        self.device.preheat()
        self.device.reset_peak_memory()
        with quiet_collector():
            for attempt in (1, 2):
                with self.phases.enter("warmup"):
                    warm, policy = self.warm_up(loop, check)
                per_sample = loop.longest(measure.calls_per_sample(warm.call_s, policy, check))
                with self.phases.enter("sample"):
                    before = self.watch.events
                    with self.watch.window():
                        taken = self.sample(loop, policy, per_sample)
                    if self.watch.events == before:
                        break
                self.spoilt(taken, attempt)
            with self.phases.enter("sample"):
                self.findings.overhead_s = measure.overhead_s(per_sample)
                if self.device.queued:
                    self.findings.device_time = queue_time.device_time(
                        loop, self.device, warm.call_s
                    )
        self.after_sampling(taken)

    def loop(self) -> measure.Loop:
        """Return the two timed calls as a loop."""
        calls: list[measure.Call] = [
            functools.partial(self.prepared, *inputs.args, **inputs.kwargs) for inputs in self.timed
        ]
        if self.lazy:
            self.findings.notes.append("outputs are lazy: reading them is inside the timed span")
            calls = [_materialised(call) for call in calls]
        loop = measure.Loop(
            calls,
            synchronize=self.device.synchronize if self.device.queued else None,
            reset=self.workload.reset,
            max_calls=self.workload.max_calls,
        )
        loop.rewind()
        return loop

    def warm_up(
        self, loop: measure.Loop, check: measure.ClockCheck
    ) -> tuple[steady.WarmUp, TimingPolicy]:
        """Warm up; return also the policy for sampling, with fewer samples for a leaking model."""
        before = resident_bytes()
        warm = steady.warm_up(loop, self.policy, events=lambda: self.watch.events, check=check)
        self.findings.samples += warm.samples
        self.findings.steady = warm.steady
        if not warm.steady.reached:
            self.findings.add(Caveat.NOT_STEADY, f"not steady: {warm.steady.reason}")
        if warm.events:
            self.findings.add(
                Caveat.RECOMPILED_IN_WARMUP,
                f"{warm.events} compile or capture events while warming up",
            )
        return warm, _limited(self.policy, before, warm)

    def sample(self, loop: measure.Loop, policy: TimingPolicy, per_sample: int) -> Samples:
        """Sample, with readings of host and memory around it."""
        gc.collect()
        resident = resident_bytes()
        before = interference.read()
        taken, reason = measure.sample(loop, policy, per_sample=per_sample, tidy=gc.collect)
        self.findings.interference = interference.between(before, interference.read())
        gc.collect()
        calls = len(taken.duration_ns) * per_sample
        growth = _growth(resident, resident_bytes(), calls)
        self.findings.memory = msgspec.structs.replace(
            self.findings.memory or Memory(), growth_bytes_per_call=growth
        )
        reached = self.findings.steady is None or self.findings.steady.reached
        self.findings.stop_reason = reason if reached else "not_steady"
        self.note_growth(growth, calls)
        return taken

    def note_growth(self, growth: float | None, calls: int) -> None:
        """Flag a model that needs more memory with every call."""
        weights = (self.findings.memory or Memory()).weights_bytes or 0
        if growth is None or growth < _GROWS_BYTES_PER_CALL:
            return
        if growth * calls > max(_GROWS_BYTES, _GROWS_SHARE * weights):
            self.findings.add(
                Caveat.MEMORY_GROWS,
                f"memory grew by {growth / 2**20:.3g} MiB per call:"
                f" the steady peak is the one after {calls} sampled calls",
            )

    def spoilt(self, taken: Samples, attempt: int) -> None:
        """Keep samples with a compile among them as warm-up; the second time the row is invalid."""
        self.findings.samples.append(msgspec.structs.replace(taken, phase="warmup"))
        found = self.watch.collect(self.mode, self.device).in_window
        text = "; ".join(found) or "a compile or capture event"
        if attempt == 2:
            self.findings.graph = self.watch.collect(self.mode, self.device)
            raise CaseError(
                "sample",
                "RecompiledWhileSampling",
                f"while sampling, twice: {text}",
                "see the recompile reasons; fix shapes and attributes that change",
            )
        self.findings.add(
            Caveat.RECOMPILED_IN_WARMUP, f"sampling began again after an event inside it: {text}"
        )

    def after_sampling(self, taken: Samples) -> None:
        """Keep the samples, and the memory and caveats that follow from them."""
        findings = self.findings
        findings.samples.append(taken)
        findings.memory = msgspec.structs.replace(
            findings.memory or Memory(),
            steady_peak_bytes=self.device.peak_memory_bytes(),
            meaning=self.device.memory_meaning,
        )
        moved = measure.drift(taken.duration_ns)
        if moved is not None:
            findings.add(Caveat.DRIFT, f"the level moved by {moved:+.1%} while sampling")
        waiting = findings.interference.wait_over_wall if findings.interference else None
        if waiting is not None and waiting > _STARVED:
            findings.add(
                Caveat.STARVED, f"waited for a core for {waiting:.0%} of the time while sampling"
            )
        factor = measure.spread_factor(taken.duration_ns)
        if self.job.settings.threads > 1 and factor > _UNSTABLE:
            findings.add(
                Caveat.UNSTABLE_THREADS, f"the 90th percentile is {factor:.1f} times the 10th"
            )

    def finish(self) -> None:
        """Collect the evidence; last of all, try inputs that nobody has seen."""
        clean = self.watch.collect(self.mode, self.device)
        # Events of a first, discarded window are in the notes; the samples are from a clean one.
        self.findings.graph = msgspec.structs.replace(clean, in_window=[])
        for name in evidence.caveats(self.mode, clean):
            self.findings.add(Caveat[name])
        if self.mode.compiles and clean.fallbacks:
            self.require_graph("warmup")
        self.look_for_memory_of_results()

    def look_for_memory_of_results(self) -> None:
        """Flag a model for which inputs that it knows are far quicker than new ones."""
        taken = self.findings.samples[-1]
        steady_s = statistics.median(taken.duration_ns) / taken.calls_per_sample / measure.NS
        new_s: list[float] = []
        for index in _NEW_INPUTS if steady_s < _SLOW_CALL_S else ():
            inputs = self.new_inputs(index)
            if self.workload.reset is not None:
                self.workload.reset()
            self.device.synchronize()
            begin = time.perf_counter()
            materialise(self.prepared(*inputs.args, **inputs.kwargs))
            self.device.synchronize()
            new_s.append(time.perf_counter() - begin)
        if new_s and min(new_s) > _MEMOISED * steady_s:
            self.findings.add(
                Caveat.MEMOISED,
                f"a new input takes {min(new_s) / steady_s:.0f} times as long as a known one",
            )


def prepare_process(job: Job, device: Device) -> None:
    """Set search path, device and threads; import the plugins."""
    for folder in reversed(job.search_paths):
        if folder not in sys.path:
            sys.path.insert(0, folder)
    device.setup(job.settings.threads, job.settings.interop_threads)
    if job.settings.compile_threads is not None and (
        config := sys.modules.get("torch._inductor.config")
    ):
        # A worker that was forked after inductor was imported has read its variable too late.
        setattr(config, "compile_threads", job.settings.compile_threads)  # noqa: B010
    for plugin in job.plugins:
        loading.import_plugin(plugin)


@contextlib.contextmanager
def grad_mode(name: str) -> Iterator[None]:
    """Enter the grad mode in which everything is called."""
    with torch.inference_mode() if name == "inference_mode" else torch.no_grad():
        yield


@contextlib.contextmanager
def quiet_collector() -> Iterator[None]:
    """Keep the garbage collector out of the samples; what is alive now is not looked at again."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def materialise(output: object) -> bool:
    """Read from every lazy tensor of an output; say whether there was one.

    A tensor of a class of its own may be a promise whose work is done when it is read. Timing
    the promise would measure nothing, and the work would leak into the next span.
    """
    tensors = [leaf.tensor for leaf in leaves.walk(output, "out") if leaf.tensor is not None]
    lazy = [tensor for tensor in tensors if type(tensor) not in _PLAIN]
    for tensor in lazy:
        tensor.detach().reshape(-1)[:1].clone()
    return bool(lazy)


def _materialised(call: measure.Call) -> measure.Call:
    def run() -> None:
        materialise(call())

    return run


def weights_bytes(module: torch.nn.Module) -> int:
    """Return the bytes of parameters and buffers, tied ones once."""
    sizes: dict[tuple[str, int], int] = {}
    for tensor in (*module.parameters(), *module.buffers()):
        try:
            storage = tensor.untyped_storage()
            sizes[str(tensor.device), storage.data_ptr()] = storage.nbytes()
        except (RuntimeError, NotImplementedError):  # sparse, or a subclass without storage
            sizes[str(tensor.device), id(tensor)] = tensor.numel() * tensor.element_size()
    return sum(sizes.values())


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


def _build(build: Callable[..., Workload], job: Job, device: Device) -> Workload:
    dtype = getattr(torch, job.case.dtype)
    return build(job.case, device=device.torch_device(), dtype=dtype)


def _import_model(path: str) -> None:
    """Import the model's code before the base of memory is taken: code is no weight."""
    loading.resolve(path)


def _limited(policy: TimingPolicy, before: int | None, warm: steady.WarmUp) -> TimingPolicy:
    growth = _growth(before, resident_bytes(), warm.steady.calls)
    free = _available_bytes()
    if growth is None or growth < _GROWS_BYTES_PER_CALL or free is None:
        return policy
    calls = max(policy.min_samples, int(_LEAK_SHARE * free / growth))
    return msgspec.structs.replace(policy, max_samples=min(policy.max_samples, calls))


def _growth(before: int | None, after: int | None, calls: int) -> float | None:
    if before is None or after is None or calls < 1:
        return None
    return max(0.0, (after - before) / calls)


def _available_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _is_filled(folder: str | None) -> bool:
    """Say whether a compile cache holds anything; the machine's shared one always may."""
    if folder is None:
        return True
    return any(path.is_file() for path in Path(folder).rglob("*"))


def _needed(value: str | None, name: str) -> str:
    if value is None:
        raise CaseError("load", "BadJob", f"the job has no {name}")
    return value
