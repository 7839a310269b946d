"""What a worker does in each kind of job: the phases of a case, in order, on real objects.

``measure`` times one mode. ``reference`` runs eager for the group's comparison of outputs.
``warm_compile`` compiles once more on the cache folder that ``measure`` has just filled. ``check``
ends where the timing would begin. ``coverage`` and ``bisect`` have modules of their own.
"""

from __future__ import annotations

import functools
import gc
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import torch

from benchbench import correctness, environment, evidence, forkserver, loading, measure
from benchbench.calls import grad_mode, materialise, materialised, weights_bytes
from benchbench.caveats import Caveat
from benchbench.correctness.recorder import Recorder, call_seed, seed_everything
from benchbench.devices import Device
from benchbench.evidence import Watch
from benchbench.failures import CaseError
from benchbench.findings import Findings, exclusive_stages
from benchbench.metas import meta_faults
from benchbench.models import Inputs, Workload
from benchbench.modes import Mode
from benchbench.reasons import error_reason
from benchbench.records import AccuracyResult, Job, Memory, Phase
from benchbench.timing import Timer

# Inputs of the calls that are timed; the checked calls have the numbers from 0 on.
_TIMED_INPUTS = (100, 101)
# Inputs that nobody has seen before, to tell a model that remembers results from one that works.
_NEW_INPUTS = (102, 103, 104, 105, 106)
_MEMOISED = 20
_SLOW_CALL_S = 0.2


def run(job: Job, device: Device, findings: Findings) -> None:
    """Do the job; what it finds out is in ``findings``, also when it raises."""
    if job.kind == "reference":
        _Reference(job, device, findings).run()
    elif job.kind == "duet":
        from benchbench.duet import Duet

        Duet(job, device, findings).run()
    elif job.kind == "coverage":
        from benchbench.coverage import work

        work.run(job, findings)
    elif job.kind == "bisect":
        from benchbench.diagnose import bisect

        bisect.run(job, device, findings)
    else:
        Side(job, device, findings).run()


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
        # A simulated device has eager of its own to prove, so its reference is the CPU's.
        place = getattr(self.device, "reference_device", self.device.torch_device)()
        # A model that fails while it is built fails in the phase "load" here, too. Parameters
        # that are made in inference mode would be of another kind than those that are measured.
        with self.findings.phases.enter("load"), torch.inference_mode(False), torch.enable_grad():
            return _build(build, self.job, place)


class Side:
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
        # One context around all inputs and calls: tensors made outside of it would recompile.
        with grad_mode(self.job.settings.grad_mode):
            with self.phases.enter("inputs"):
                self.make_inputs()
            with self.phases.enter("converters"):
                self.register_converters()
                self.watch.start(compiles=self.mode.compiles)
                self.findings.look = functools.partial(self.watch.collect, self.mode, self.device)
            self.compile()
            if self.job.kind == "warm_compile":
                return
            with self.phases.enter("check"):
                self.check()
            if self.job.kind == "check":
                return
            Timer(self.job, self.device, self.mode, self.watch, self.findings).run(self.loop())
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
        # The model's code before the base of memory is taken: code is no weight.
        loading.resolve(self.case.model_target.path)
        forkserver.import_modules(forkserver.model_modules(self.case.model_target))
        # What is alive by now stays: never looked at again, a collection takes 1 ms, not 100.
        gc.collect()
        gc.freeze()
        self.device.mark_memory_base()
        self.workload = _build(loading.build_workload, self.job, self.device.torch_device())
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
        """Make the inputs of the first call and of the timed ones; hash the weights."""
        self.recorder = Recorder(
            self.workload, seed=self.case.seed, synchronize=self.device.synchronize
        )
        self.findings.weights_hash = self.recorder.trace.weights
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

    def register_converters(self) -> None:
        """Let a mode that needs converters find out which, before anything is counted."""
        register = getattr(self.mode, "register_converters", None)
        if register is None:
            return
        inputs = self.recorder.inputs(0)
        self.mark(inputs)
        register(self.workload.module, inputs, self.device, self.case.converters)

    # ---- first call and check -----------------------------------------------------------------

    def compile(self) -> None:
        """Wrap the module and call it once, which compiles."""
        inputs = self.recorder.inputs(0)
        self.mark(inputs)
        filled = _is_filled(self.job.cache_dir)
        self.device.reset_peak_memory()
        with self.phases.enter("compile"):
            self.prepared = self.mode.prepare(self.workload.module, self.device, self.watch)
            prepared = getattr(self.device, "prepared", None)
            if prepared is not None:  # a simulated device has to be there before the first call
                prepared(self.mode.backend(self.case.device))
            output = self.first_call(inputs)
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

    def first_call(self, inputs: Inputs) -> Any:
        """Make the call that compiles; when it leaves the graph, name all that keeps it out."""
        try:
            return self.prepared(*inputs.args, **inputs.kwargs)
        except torch._dynamo.exc.Unsupported as error:  # imported here at the latest
            sentence = self.watch.explain(error, self.workload.module, inputs)
            self.findings.graph = self.watch.collect(self.mode, self.device)
            if sentence is None:
                raise
            hint = f"mode.{self.mode.name}.fullgraph=false counts the breaks instead"
            raise CaseError("compile", "NotInGraph", sentence, hint) from error
        except (AssertionError, RuntimeError) as error:
            self.blame_metas(error, inputs)
            raise

    def blame_metas(self, error: BaseException, inputs: Inputs) -> None:
        """Raise the failure of a first call that a wrong Meta function explains, if one does."""
        if not self.mode.compiles or self.device.is_out_of_memory(error):
            return
        metas = meta_faults(self.workload.module, inputs)
        if not metas.found:
            return
        self.findings.graph = self.watch.collect(self.mode, self.device)
        if metas.missing:
            hint = "register_fake gives an op its Meta function"
            raise CaseError("compile", "NotInGraph", f"not in graph: {metas.sentence()}", hint)
        raise CaseError(
            "compile",
            type(error).__name__,
            f"first run of the graph: {metas.sentence()}; {error_reason(error)[1]}",
            "correct the op's Meta function",
        ) from error

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
            raise CaseError("check", "WrongOutput", reason, self.suspects())

    def suspects(self) -> str:
        """Return the hint of wrong outputs: the ops whose Meta function is wrong, if there are."""
        metas = meta_faults(self.workload.module, self.timed[0]) if self.mode.compiles else None
        return (metas.sentence() if metas else "") or "no time is taken of wrong outputs"

    def forget_check(self) -> None:
        """Drop the copies of the check: they are no part of the mode's memory."""
        del self.recorder

    def require_graph(self, phase: Phase) -> None:
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

    # ---- timing and end -----------------------------------------------------------------------

    def loop(self) -> measure.Loop:
        """Return the two timed calls as a loop."""
        calls: list[measure.Call] = [
            functools.partial(self.prepared, *inputs.args, **inputs.kwargs) for inputs in self.timed
        ]
        if self.lazy:
            self.findings.notes.append("outputs are lazy: reading them is inside the timed span")
            calls = [materialised(call) for call in calls]
        loop = measure.Loop(
            calls,
            synchronize=self.device.synchronize if self.device.queued else None,
            reset=self.workload.reset,
            max_calls=self.workload.max_calls,
        )
        loop.rewind()
        return loop

    def finish(self) -> None:
        """Collect the evidence; last of all, try inputs that nobody has seen."""
        # Last, as it takes 0.1 s: all that the model imported when it was called is there, too.
        self.findings.model_sources = loading.source_hashes(self.case.model_target.path)
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
        # All of them at once, as a model may know its inputs by an id that is used again.
        made = [self.new_inputs(i) for i in _NEW_INPUTS if steady_s < _SLOW_CALL_S]
        for inputs in made:
            if self.workload.reset is not None:
                self.workload.reset()
            self.device.synchronize()
            begin = time.perf_counter()
            materialise(self.prepared(*inputs.args, **inputs.kwargs))
            self.device.synchronize()
            new_s.append(time.perf_counter() - begin)
        new_call_s = statistics.median(new_s) if new_s else 0.0
        if new_call_s > _MEMOISED * steady_s:
            self.findings.add(
                Caveat.MEMOISED,
                f"a new input takes {new_call_s / steady_s:.0f} times as long as a known one",
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


def _build(build: Callable[..., Workload], job: Job, place: torch.device) -> Workload:
    return build(job.case, device=place, dtype=getattr(torch, job.case.dtype))


def _is_filled(folder: str | None) -> bool:
    """Say whether a compile cache holds anything; the machine's shared one always may."""
    if folder is None:
        return True
    return any(path.is_file() for path in Path(folder).rglob("*"))


def _needed(value: str | None, name: str) -> str:
    if value is None:
        raise CaseError("load", "BadJob", f"the job has no {name}")
    return value
