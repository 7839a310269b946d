"""The worker's side of ``coverage``: builds a model, traces it, lowers it. Computes nothing.

On the simulated NPU no kernel is installed: device memory is reserved and never touched, so that a
model of billions of weights needs neither time nor memory. Nothing here is a number of the model.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch._dynamo.exc import Unsupported

from benchbench import converters, devices, loading, npusim
from benchbench.breaks import break_reasons, graph_break
from benchbench.calls import grad_mode
from benchbench.correctness.recorder import seed_everything
from benchbench.coverage.found import Coverage, Lowered, Op
from benchbench.coverage.judge import Judge
from benchbench.coverage.lowering import CONVERTER_ERRORS, PLACEHOLDER, Lowering, collected
from benchbench.coverage.metas import StandIns, registered_ops
from benchbench.coverage.skeleton import Argument, Schema
from benchbench.devices.npu import Npu
from benchbench.errors import LoadError
from benchbench.evidence import Watch
from benchbench.findings import Findings
from benchbench.models import Workload
from benchbench.modes.max_autotune import MaxAutotune
from benchbench.reasons import error_reason
from benchbench.records import Job

# Python callables between ops, which torchair folds or hands on by itself.
_PLUMBING = frozenset({"operator.getitem"})
_MAX_TRACES = 5
_VERSIONS = ("torch", "torch_npu", "transformers")


def run(job: Job, findings: Findings) -> None:
    """Do the job; the result is ``findings.report``."""
    work = _Work(job, findings)
    if "skeleton" in job.ask:
        work.describe(job.ask["skeleton"])
    else:
        work.run()


class _Work:
    def __init__(self, job: Job, findings: Findings) -> None:
        self.job = job
        self.case = job.case
        self.findings = findings
        self.phases = findings.phases
        self.route = job.ask["route"]
        self.watch = Watch()
        self.begun = time.monotonic()
        self.simulator: npusim.Simulator | None = None
        self.notes: list[str] = []

    def run(self) -> None:
        with self.phases.enter("load"):
            place = self.set_up()
            before = registered_ops()
            for plugin in self.job.plugins:
                loading.import_plugin(plugin)
            mode = loading.build_mode(self.case.mode_target)
            assert isinstance(mode, MaxAutotune)
            self.mode = mode
            self.workload = self.build(place)
            self.metas = StandIns(before)
        with self.phases.enter("inputs"):
            seed_everything(self.case.seed)
            self.inputs = self.workload.make_inputs(self.case.seed * 1000)
            self.mode.mark_inputs(self.inputs)
        with self.quiet(), grad_mode(self.job.settings.grad_mode):
            with self.phases.enter("converters"):
                self.load_torchair()
                self.trace()
            with self.phases.enter("compile"):
                self.lower()
        self.findings.report = msgspec.to_builtins(self.result())

    def describe(self, name: str) -> None:
        """Report the schema of an op."""
        with self.phases.enter("load"):
            self.set_up()
            for plugin in self.job.plugins:
                loading.import_plugin(plugin)
            if self.job.ask.get("model"):
                loading.resolve(self.case.model_target.path)
            op = converters.overload(name)
            if op is None:
                raise LoadError(f"this torch has no op {name}")
            self.findings.report = msgspec.to_builtins(_schema(op))

    # ---- surroundings -----------------------------------------------------------

    def set_up(self) -> torch.device:
        """Prepare the process for its route; return where the model goes."""
        for folder in reversed(self.job.search_paths):
            if folder not in sys.path:
                sys.path.insert(0, folder)
        if self.route == "approximate":
            from benchbench.coverage import approximate

            approximate.install(self.config())
            return torch.device("cpu")
        device = devices.device("npu-sim" if self.route == "simulated" else "npu")
        threads = self.job.settings.threads
        if self.route == "simulated":
            self.simulator = npusim.activate(self.config())
            assert isinstance(device, Npu)
            Npu.setup(device, threads, 1)  # without kernels: nothing is to be computed
        else:
            device.setup(threads, 1)
        return device.torch_device()

    def config(self) -> npusim.SimConfig:
        """Return the chip, the CANN version and the IR that the lowering is for."""
        return npusim.decode(self.job.settings.environment.get(npusim.CONFIG_VARIABLE))

    def build(self, place: torch.device) -> Workload:
        """Return the model on the device."""
        with torch.inference_mode(False), torch.enable_grad():
            return loading.build_workload(
                self.case, device=place, dtype=getattr(torch, self.case.dtype)
            )

    def load_torchair(self) -> None:
        """Import torchair, and let the simulated Graph Engine know the ops that call back."""
        self.device = devices.device("npu" if self.route == "device" else "npu-sim")
        from benchbench.modes import npu_compat

        npu_compat.load("torchair", self.watch)
        if self.simulator is not None:
            self.simulator.install_ge()

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """Let Dynamo tell of breaks in its list instead of on the terminal."""
        begun = len(break_reasons())
        yield
        self.breaks = [graph_break(reason) for reason in break_reasons()[begun:]]

    # ---- tracing and lowering -----------------------------------------------------------

    def trace(self) -> None:
        """Find out which ops torchair would get, and register what these need."""
        self.traced: list[Any] = []
        self.decompositions: dict[Any, Callable[..., Any]] = {}
        self.registered: list[converters.Registered] = []
        self.error: str | None = None
        chosen = converters.selection(self.case.converters)
        files = converters.available(chosen.path) if chosen.use != "off" else []
        for _ in range(_MAX_TRACES):
            graphs: list[Any] = []
            with collected(graphs):
                self.call(complete=True)
            self.traced += graphs
            counts = _counted(graphs)
            done = {item.op for item in self.registered}
            wanted = [
                (op, file)
                for op, file in converters.needed(counts, converters.status, files, chosen.use)
                if op not in done
            ]
            registered, decompositions = converters.register(wanted)
            self.registered += registered
            self.decompositions |= decompositions
            if not decompositions:  # they bring other ops into the graph
                return

    def lower(self) -> None:
        """Lower the model with what was registered."""
        self.lowering = Lowering(keep_graphs=bool(self.job.ask.get("dump")))
        if self.error is not None and not self.traced:
            return
        self.error = None
        with self.lowering.observed():
            self.call(complete=True)

    def call(self, *, complete: bool) -> None:
        """Compile and call the model; where it cannot be one graph, in several."""
        torch._dynamo.reset()
        try:
            with self.whole(complete):
                self.compiled()(*self.inputs.args, **self.inputs.kwargs)
        except Unsupported as error:
            if not complete or not self.mode.fullgraph:
                self.error = error_reason(error)[1]
                return
            self.call(complete=False)
            if not break_reasons():
                self.error = error_reason(error)[1]
        except CONVERTER_ERRORS as error:
            kind, text, _ = error_reason(error)
            self.error = f"{kind}: {text}"

    @contextlib.contextmanager
    def whole(self, complete: bool) -> Iterator[None]:
        asked = self.mode.fullgraph
        self.mode.fullgraph = asked and complete
        try:
            yield
        finally:
            self.mode.fullgraph = asked

    def compiled(self) -> Callable[..., Any]:
        """Return the model as the mode compiles it, with our decompositions."""
        backend = self.mode.compile_arguments(self.device, self.watch)["backend"]
        given = {**backend.keywords.get("decompositions", {}), **self.decompositions}
        backend.keywords["decompositions"] = given
        return torch.compile(
            self.workload.module,
            fullgraph=self.mode.fullgraph,
            dynamic=self.mode.dynamic,
            backend=backend,
        )

    # ---- what came of it -----------------------------------------------------------

    def result(self) -> Coverage:
        """Return all that was found out."""
        config = self.config()
        judge = Judge(
            self.registered,
            self.metas.used,
            op_proto=config.ir_definitions,
            approximate=self.route == "approximate",
        )
        breaks = [
            one.reason + (f" at {one.location}" if one.location else "") for one in self.breaks
        ]
        simulated = self.route != "device"
        return Coverage(
            key=self.case.key,
            model=self.case.model,
            route=self.route,
            soc=config.soc if simulated else str(torch.npu.get_device_name()),  # type: ignore[attr-defined]
            cann=config.cann if simulated else None,
            versions=_versions(),
            ops=self.ops(judge),
            graphs=self.graphs(),
            converters={item.op: item.how() for item in self.registered},
            breaks=list(dict.fromkeys(breaks)),
            error=self.error,
            dump=self.dump(),
            seconds=time.monotonic() - self.begun,
            peak_rss_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            notes=[*self.notes, *self.workload.notes],
        )

    def ops(self, judge: Judge) -> list[Op]:
        """Return the rows, gaps first, then by calls."""
        lowering = self.lowering
        rows = [
            judge.op(name, lowering.targets[name], seen)
            for name, seen in lowering.ops.items()
            if name not in _PLUMBING
        ]
        rows += judge.decomposed(self.traced)
        return sorted(rows, key=lambda op: (not op.is_gap, -op.calls, op.op))

    def graphs(self) -> list[Lowered]:
        """Return the lowered graphs."""
        return [
            Lowered(
                name=graph.name,
                fx_nodes=graph.fx_nodes,
                ir_nodes=sum(graph.ir.values()),
                lowering_s=graph.lowering_s,
                ir=dict(graph.ir.most_common()),
                placeholders=graph.ir[PLACEHOLDER],
            )
            for graph in self.lowering.graphs
        ]

    def dump(self) -> list[str]:
        """Write the graphs if that was asked for; return the files."""
        target = self.job.ask.get("dump")
        if not target:
            return []
        path = Path(target)
        path.parent.mkdir(parents=True, exist_ok=True)
        files = []
        for index, graph in enumerate(self.lowering.graphs):
            file = path if not index else path.with_stem(f"{path.stem}_{index}")
            if file.suffix == ".pb":
                file.write_bytes(graph.proto)
            else:
                file.write_text(graph.text, encoding="utf-8")
            files.append(str(file))
        return files


def _schema(op: Any) -> Schema:
    arguments = [
        Argument(
            name=argument.name,
            type=str(argument.type),
            default=repr(argument.default_value) if argument.has_default_value() else None,
            keyword_only=argument.kwarg_only,
            written=bool(argument.alias_info and argument.alias_info.is_write),
        )
        for argument in op._schema.arguments
    ]
    return Schema(
        op=str(op), text=str(op._schema), arguments=arguments, outputs=len(op._schema.returns)
    )


def _counted(graphs: list[Any]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for gm in graphs:
        counts.update(converters.ops_of(gm.graph))
    return dict(counts)


def _versions() -> dict[str, str]:
    found = {}
    for name in _VERSIONS:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found
