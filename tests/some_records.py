"""Records made by hand, for tests of everything behind the store."""

from __future__ import annotations

from typing import Any

from benchbench.records import (
    SCHEMA_VERSION,
    AccuracyResult,
    Case,
    CompileCost,
    Failure,
    GraphBreak,
    GraphEvidence,
    Latency,
    Memory,
    Plan,
    Record,
    Target,
    Throughput,
)

RUN_ID = "20260801T120000Z_abc1234_0001"
PASS = AccuracyResult(verdict="pass", max_abs=1e-6, compared_leaves=4, compared_calls=4)


def make_case(mode: str = "eager", model: str = "mlp[tiny]", **changes: Any) -> Case:
    group = f"{model}/forward/b1/float32/cpu"
    options: dict[str, Any] = changes.get("options", {})
    braced = "{" + ",".join(f"{k}={v}" for k, v in options.items()) + "}" if options else ""
    values: dict[str, Any] = {
        "key": f"{group}/{mode}{braced}",
        "group": group,
        "model": model,
        "model_target": Target(path="models.mlp.build"),
        "mode": mode,
        "mode_target": Target(path=f"modes.{mode}"),
        "device": "cpu",
        "workload": "forward",
        "dtype": "float32",
        "batch_size": 1,
    }
    return Case(**{**values, **changes})


def make_latency(median_s: float = 0.002, **changes: Any) -> Latency:
    values: dict[str, Any] = {
        "median_s": median_s,
        "mean_s": median_s * 1.01,
        "min_s": median_s * 0.99,
        "max_s": median_s * 1.2,
        "n_samples": 60,
        "ci_low_s": median_s * 0.998,
        "ci_high_s": median_s * 1.002,
        "confidence": 0.95,
        "p90_s": median_s * 1.05,
        "noise": 0.004,
    }
    return Latency(**{**values, **changes})


def make_record(
    mode: str = "eager", median_s: float | None = 0.002, model: str = "mlp[tiny]", **changes: Any
) -> Record:
    """Return an ``ok`` record whose outputs agree; ``changes`` replace any of its fields."""
    case = changes.pop("case", None) or make_case(mode, model)
    values: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "run_id": RUN_ID,
        "case_key": case.key,
        "started_at": "2026-08-01T12:00:00Z",
        "case": case,
        "status": "ok",
        "latency": None if median_s is None else make_latency(median_s),
        "accuracy": PASS,
    }
    return Record(**{**values, **changes})


def make_failed(
    mode: str, status: str = "failed", model: str = "mlp[tiny]", **changes: Any
) -> Record:
    values: dict[str, Any] = {
        "status": status,
        "failure": Failure(
            phase="compile",
            kind="Unsupported",
            reason="op bb::gap_a is not supported",
            hint="write a converter",
            log=f"logs/{mode}.log",
            rerun=f"python -m benchbench model=mlp mode={mode}",
        ),
        "accuracy": None,
    }
    return make_record(mode, None, model, **{**values, **changes})


def make_skipped(mode: str = "npugraph_ex", model: str = "mlp[tiny]") -> Record:
    failure = Failure(phase="load", kind="skipped", reason="no NPU on this machine")
    return make_failed(mode, "skipped", model, failure=failure)


def make_plan(*cases: Case, **changes: Any) -> Plan:
    return Plan(run_id=RUN_ID, cases=list(cases) or [make_case()], **changes)


def many_sided() -> list[Record]:
    """Return a failed, a skipped, a noisy, a timed out row and names that break tables."""
    chinese, odd = "模型测试", "a|b\nx<b>y</b>\\🙂e\u0301"
    graph = GraphEvidence(
        effective="inductor",
        graphs=2,
        breaks=[GraphBreak(reason="call to print | \n here", location="mlp.py:12")],
        recompiles=["step == 7"],
    )
    return [
        make_record(
            "eager",
            0.0021234,
            chinese,
            graph=GraphEvidence(),
            throughput=Throughput(value=470.9, unit="samples/s"),
            memory=Memory(steady_peak_bytes=350 * 2**20, meaning="resident memory above the base"),
        ),
        make_record(
            "inductor",
            0.0016087,
            chinese,
            graph=graph,
            compile=CompileCost(cold_s=7.53, warm_s=1.21),
            throughput=Throughput(value=621.6, unit="samples/s"),
            memory=Memory(steady_peak_bytes=290 * 2**20, meaning="resident memory above the base"),
            caveats=["ONE_PROCESS", "GRAPH_BREAKS"],
        ),
        make_skipped("npugraph_ex", chinese),
        make_failed(
            "max-autotune",
            model=chinese,
            failure=Failure(
                phase="compile",
                kind="Unsupported",
                reason="流资源不足: 'op|a', \"b\",\n\tsecond line",
                hint="write a converter",
                log="logs/max-autotune.log",
                rerun="python -m benchbench model=模型测试 mode=max-autotune",
            ),
        ),
        make_record("eager", 0.000312, odd, graph=GraphEvidence()),
        make_record(
            "inductor",
            0.00025,
            odd,
            latency=make_latency(
                0.00025, noise=0.31, ci_low_s=None, ci_high_s=None, p90_s=None, n_samples=12
            ),
            graph=GraphEvidence(effective="inductor", graphs=1),
            compile=CompileCost(cold_s=3.0, warm_word="not cached"),
            caveats=["NOISY", "FROM_A_NEWER_VERSION"],
        ),
        make_skipped("npugraph_ex", odd),
        make_failed("max-autotune", "timeout", odd),
    ]
