"""The rungs of the triage ladder, and what it means when one of them breaks. Pure.

Each rung adds one piece of machinery to the one before it, so the first that breaks names the
piece whose fault it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from benchbench.coverage.found import Coverage
from benchbench.records import AccuracyResult, Case, Failure, Target

Problem: TypeAlias = Literal["none", "model", "Meta", "converter", "backend", "capture", "numerics"]
State: TypeAlias = Literal["ok", "failed", "wrong", "not run"]
RungKind: TypeAlias = Literal["reference", "check", "coverage", "lowering", "ge-compile"]

NPU_KINDS = ("npu", "npu-sim")
_META_WORDS = ("fake", "meta", "Meta", "FakeTensor")


class Rung(msgspec.Struct, frozen=True, kw_only=True):
    """One step: what is run, and which piece it adds."""

    name: str
    adds: str
    kind: RungKind = "check"
    case: Case


class Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What came of a rung."""

    name: str
    adds: str
    state: State
    failure: Failure | None = None
    accuracy: AccuracyResult | None = None
    note: str | None = None
    log: str | None = None


class Found(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the bisection of a graph found (see bisect.py)."""

    kind: Literal["meta", "value", "error", "nothing"]
    op: str | None = None
    node: str | None = None
    where: str | None = None
    """``file:line`` of the user's code that the op comes from."""
    text: str = ""
    alone: bool | None = None
    """Whether the op is wrong by itself, compiled with nothing around it."""
    nodes: int = 0
    compiles: int = 0


class Verdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whose fault it is, in one sentence, with the next step."""

    problem: Problem
    sentence: str
    rung: str | None = None
    op: str | None = None
    where: str | None = None
    next: str


def rungs(case: Case) -> list[Rung]:
    """Return the rungs for a case, the simplest first."""
    given = case.mode_target.options
    shape = {"fullgraph": given.get("fullgraph", True), "dynamic": given.get("dynamic", False)}
    modes = "benchbench.modes"
    ladder = [
        Rung(
            name="eager",
            adds="the model itself, called twice and in float64",
            kind="reference",
            case=_with(case, f"{modes}.eager.Eager", {"name": "eager"}, "eager"),
        ),
    ]
    if case.device in NPU_KINDS:
        ladder.append(
            Rung(
                name="eager on the device",
                adds="the device's kernels",
                case=_with(case, f"{modes}.eager.Eager", {"name": "eager"}, "eager"),
            )
        )
    ladder += [
        Rung(
            name="dynamo",
            adds="Dynamo: the model as a graph, run op by op",
            case=_with(
                case,
                f"{modes}.torch_compile.TorchCompile",
                {"name": "dynamo", "backend": "eager", **shape},
                "dynamo",
            ),
        ),
        Rung(
            name="aot_eager",
            adds="AOTAutograd: decompositions, Meta functions, functional form",
            case=_with(
                case, f"{modes}.aot_eager.AotEager", {"name": "aot_eager", **shape}, "aot_eager"
            ),
        ),
    ]
    return ladder + _own(case)


def _own(case: Case) -> list[Rung]:
    """Return the rungs of the mode that was asked for."""
    target = case.mode_target
    on_npu = case.device in NPU_KINDS and not target.options.get("stand_in")
    if on_npu and target.path.endswith("npugraph_ex.NpugraphEx"):
        return [
            Rung(
                name="force_eager",
                adds="npugraph_ex's own passes, without a captured graph",
                case=_optioned(case, force_eager=True),
            ),
            Rung(
                name="force_recapture",
                adds="a graph captured anew in each call",
                case=_optioned(case, force_recapture=True),
            ),
            Rung(name="capture", adds="replay of the captured graph", case=case),
        ]
    if on_npu and target.path.endswith("max_autotune.MaxAutotune"):
        return [
            Rung(
                name="coverage",
                adds="a converter for every op",
                kind="coverage",
                case=case,
            ),
            Rung(name="lowering", adds="lowering to Ascend IR", kind="lowering", case=case),
            Rung(
                name="run_eagerly",
                adds="torchair's own passes, run op by op",
                case=_optioned(case, **{"debug.run_eagerly": True}),
            ),
            Rung(
                name="compile",
                adds="the Graph Engine compiles the Ascend IR",
                kind="ge-compile",
                case=case,
            ),
            Rung(name="run", adds="the Graph Engine runs it", case=case),
        ]
    if target.path.endswith((".Eager", ".AotEager")):
        return []
    return [Rung(name=case.mode, adds="the mode's own backend", case=case)]


def _with(case: Case, path: str, options: Mapping[str, Any], name: str) -> Case:
    return msgspec.structs.replace(
        case,
        mode=name,
        key=f"{case.group}/{name}",
        mode_target=Target(path=path, options=dict(options)),
    )


def _optioned(case: Case, **options: Any) -> Case:
    target = case.mode_target
    given = dict(target.options)
    given["options"] = {**(given.get("options") or {}), **options}
    name = next(iter(options)).rpartition(".")[2]
    return msgspec.structs.replace(
        case,
        key=f"{case.key}/{name}",
        mode_target=Target(path=target.path, options=given),
    )


# ---- whose fault it is ---------------------------------------------------------------------------


def verdict(
    case: Case, steps: list[Step], coverage: Coverage | None = None, found: Found | None = None
) -> Verdict:
    """Return whose fault the first broken rung is."""
    broken = next((step for step in steps if step.state in ("failed", "wrong")), None)
    if broken is None:
        return Verdict(
            problem="none",
            sentence=f"no problem: {case.model} runs in {case.mode} and agrees with eager",
            next=f"python -m benchbench {_words(case)}",
        )
    return _blame(case, broken, coverage, found)


def _blame(case: Case, broken: Step, coverage: Coverage | None, found: Found | None) -> Verdict:
    reason = broken.failure.reason if broken.failure else broken.note or "it differs from eager"
    if found is not None and found.kind == "meta":
        return _verdict(
            "Meta",
            broken,
            f"{found.op} {found.text}",
            "mend the op's Meta function (torch.library.register_fake), then run this again",
            found,
        )
    if broken.name in ("eager", "eager on the device"):
        return _model(case, broken, reason)
    if broken.name in ("dynamo", "aot_eager"):
        return _graph(case, broken, reason, found)
    if broken.name == "coverage" and coverage is not None and coverage.gaps:
        return _converter(broken, coverage)
    if broken.name in ("coverage", "lowering"):
        return _verdict(
            "converter", broken, reason, f"python -m benchbench coverage {_words(case)}", found
        )
    if broken.state == "wrong":
        return _numbers(case, broken, reason, found)
    problem: Problem = "capture" if broken.name in ("force_recapture", "capture") else "backend"
    return _verdict(problem, broken, _with_op(reason, found), _next_of(broken.name), found)


def _model(case: Case, broken: Step, reason: str) -> Verdict:
    step = "make the model run in eager first; the log has the traceback"
    if broken.state == "wrong" and broken.name == "eager":
        step = "seed or remove what is random in the model: no mode can be compared with it"
    elif broken.name != "eager":
        step = "the device's own kernels: report the op to its vendor, or use another op"
    return _verdict("model", broken, reason, step, None)


def _graph(case: Case, broken: Step, reason: str, found: Found | None) -> Verdict:
    """Tell a model that cannot become a graph from an op that has no Meta function."""
    kind = broken.failure.kind if broken.failure else ""
    if broken.state == "wrong":
        return _verdict(
            "numerics" if broken.name == "aot_eager" else "model",
            broken,
            _with_op(reason, found),
            "an op whose result depends on how it is called, or state outside of the graph",
            found,
        )
    if any(word in f"{kind} {reason}" for word in _META_WORDS):
        return _verdict(
            "Meta",
            broken,
            reason,
            "give the op a Meta function: torch.library.register_fake",
            found,
        )
    return _verdict(
        "model",
        broken,
        reason,
        f"change the code at that place, or mode.{case.mode}.fullgraph=false to live with breaks",
        found,
    )


def _converter(broken: Step, coverage: Coverage) -> Verdict:
    first = coverage.gaps[0]
    metas = [op for op in coverage.gaps if any(r.cause == "Meta" for r in op.reasons)]
    problem: Problem = "Meta" if metas else "converter"
    op = metas[0] if metas else first
    more = f" (and {len(coverage.gaps) - 1} more ops)" if len(coverage.gaps) > 1 else ""
    return Verdict(
        problem=problem,
        rung=broken.name,
        op=op.op,
        where=op.detail,
        sentence=f"{problem} problem at rung {broken.name}: {op.op}, {op.calls} calls{more}:"
        f" {op.reasons[0].text}",
        next=op.reasons[0].advice,
    )


def _numbers(case: Case, broken: Step, reason: str, found: Found | None) -> Verdict:
    if broken.name in ("force_recapture", "capture"):
        step = "look for a tensor that is made or moved outside of the graph; " + _next_of(
            broken.name
        )
        return _verdict("capture", broken, reason, step, found)
    step = "compare that op by itself; a float32 run tells rounding from a wrong op"
    if broken.name == "run" and found is not None and found.kind == "value":
        step = f"check the converter of {found.op}: python -m benchbench coverage {_words(case)}"
    return _verdict("numerics", broken, _with_op(reason, found), step, found)


def _next_of(rung: str) -> str:
    return {
        "force_eager": "mode.npugraph_ex.options.pattern_fusion_pass=false, then halve the passes",
        "force_recapture": "does the model synchronise or allocate on the host while it runs?",
        "capture": "mode.npugraph_ex.options.force_recapture=true works: an address has changed",
        "run_eagerly": "mode.max-autotune.options.pattern_fusion_pass=false, then halve the passes",
        "compile": "look the code (E..., EZ...) up; mode.max-autotune.options.graph_dump.type=txt",
        "run": "the plog of CANN; mode.max-autotune.options.enable_dump=true",
    }.get(rung, "report it to the backend with the op above")


def _with_op(reason: str, found: Found | None) -> str:
    if found is None or found.op is None:
        return reason
    alone = {True: ", also by itself", False: ", but not by itself"}.get(found.alone or False, "")
    if found.alone is None:
        alone = ""
    what = "fails at" if found.kind == "error" else "first differs at"
    return f"{what} {found.op}{alone}: {found.text}" if found.text else f"{what} {found.op}"


def _verdict(problem: Problem, broken: Step, text: str, step: str, found: Found | None) -> Verdict:
    where = found.where if found else None
    place = f" at {where}" if where and where not in text else ""
    return Verdict(
        problem=problem,
        rung=broken.name,
        op=found.op if found else None,
        where=where,
        sentence=f"{problem} problem at rung {broken.name}: {text}{place}",
        next=step,
    )


def _words(case: Case) -> str:
    return f"model={case.model} mode={case.mode} workload={case.workload}"
