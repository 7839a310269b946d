"""The rehearsal's report and its command line; runs are in tests/npusim."""

from __future__ import annotations

from typing import Any

import pytest
from some_records import make_case, make_record

from benchbench import rehearse
from benchbench.errors import ConfigError
from benchbench.records import AccuracyResult, Failure, GraphBreak, GraphEvidence, Memory, Record

GIB = 1 << 30
GROUP = "mlp[tiny]/forward/b1/float32/npu-sim"
FACTS = {
    "device": {
        "name": "Ascend910B3",
        "memory_bytes": 64 * GIB,
        "torch_npu": "2.13.0",
        "cann": {"CANN": "8.5.0"},
    }
}


def row(mode: str, graph: GraphEvidence | None = None, **changes: Any) -> Record:
    case = make_case(mode, device="npu-sim", group=GROUP, key=f"{GROUP}/{mode}")
    values: dict[str, Any] = {
        "case": case,
        "median_s": None,
        "simulated": True,
        "environment": FACTS,
        "graph": graph or GraphEvidence(effective=mode),
        "memory": Memory(steady_peak_bytes=3 << 20),
        "accuracy": AccuracyResult(verdict="pass", max_abs=0.0),
    }
    return make_record(mode, **{**values, **changes})


CAPTURED = GraphEvidence(
    effective="npugraph_ex",
    graphs=1,
    captured_ops=12,
    captures=1,
    counters={"npusim replays": 25},
)
LOWERED = GraphEvidence(
    effective="torchair",
    graphs=1,
    captured_ops=12,
    ir_ops={"MatMulV2": 3, "Data": 4},
    converters={"aten.amax.default": "reductions.py (converter)"},
)


def test_modes_and_device_are_added_unless_typed() -> None:
    assert rehearse.overrides(["model=mlp"]) == ["model=mlp", "device=npu-sim", rehearse.MODES]
    assert rehearse.overrides(["mode=eager", "device=npu-sim"]) == ["mode=eager", "device=npu-sim"]
    assert rehearse.overrides(["suite=smoke"]) == ["suite=smoke", "device=npu-sim"]
    assert "device=npu-sim" in rehearse.overrides(["device.options.soc=Ascend310P3"])


def test_another_device_is_refused() -> None:
    with pytest.raises(ConfigError, match="run device=npu"):
        rehearse.overrides(["device=npu"])


def test_report_of_three_cases_that_are_ready() -> None:
    report = rehearse.render(
        [row("eager"), row("npugraph_ex", CAPTURED), row("max-autotune", LOWERED)]
    )
    lines = report.splitlines()
    assert lines[0] == "rehearsed on: simulated Ascend910B3, CANN 8.5.0, torch_npu 2.13.0"
    assert lines[2] == "mlp[tiny]/forward/b1/float32"
    cells = {line.split()[0]: line for line in lines if line.startswith("  ")}
    assert "op by op" in cells["eager"]
    assert "1 of 12 ops" in cells["npugraph_ex"]
    assert "1, 25 replays" in cells["npugraph_ex"]
    assert "7 of 2 kinds" in cells["max-autotune"]
    assert "1 added" in cells["max-autotune"]
    assert "3.00 MiB + engine" in cells["max-autotune"]
    assert "pass, equal" in cells["eager"]
    assert "added converters: aten.amax.default by reductions.py (converter)" in report
    assert "3 cases: 3 ready" in report
    for limit in rehearse.LIMITS:
        assert limit in report


def test_report_never_holds_a_time() -> None:
    report = rehearse.render([row("eager", phase_s={"compile": 1.2345, "sample": 2.5})])
    for unit in (" ms", " µs", "1.2345", "1.23 s", "2.5"):
        assert unit not in report


def test_failed_case_gives_reason_hint_and_log() -> None:
    failure = Failure(
        phase="compile",
        kind="NotImplementedError",
        reason="torch.ops.aten.foo.default ge_converter is not implemented!",
        hint="the op needs a converter",
        log="logs/x.log",
    )
    failed = row("max-autotune", status="failed", failure=failure, accuracy=None, memory=None)
    assert rehearse.outcome(failed) == "would fail"
    report = rehearse.render([failed])
    assert "failed in phase compile (NotImplementedError): torch.ops.aten.foo.default" in report
    assert "next: the op needs a converter" in report
    assert "log: logs/x.log" in report
    assert "not checked" in report


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        (
            GraphEvidence(graphs=2, breaks=[GraphBreak(reason="print", location="m.py:3")]),
            "1 graph break, the first at m.py:3: print",
        ),
        (GraphEvidence(graphs=2, recompiles=["size changed"]), "recompiled 1 times: size changed"),
        (
            GraphEvidence(graphs=1, captures=2, recaptures={"mutated input": 1}),
            "captured again 1 times: mutated input",
        ),
        (
            GraphEvidence(graphs=1, converters={"npu.x": "torchair (automatic callback)"}),
            "npu.x: no converter, so torchair compiles a callback",
        ),
        (
            GraphEvidence(graphs=1, counters={"npusim peak bytes": 63 * GIB}),
            "takes 63.0 GiB of 64.0 GiB device memory",
        ),
    ],
)
def test_what_disappoints_is_said(graph: GraphEvidence, words: str) -> None:
    found = rehearse.findings(row("npugraph_ex", graph))
    assert [finding.fails for finding in found] == [False]
    assert words in found[0].sentence
    assert rehearse.outcome(row("npugraph_ex", graph)) == "runs, see below"


def test_fallback_and_wrong_outputs_would_fail() -> None:
    fallback = row("npugraph_ex", GraphEvidence(fallbacks=["no device graph captured"]))
    assert rehearse.outcome(fallback) == "would fail"
    wrong = row("eager", accuracy=AccuracyResult(verdict="fail", reason="off by 3", max_abs=3.0))
    assert rehearse.outcome(wrong) == "would fail"
    assert "fail, off by 3.0e+00" in rehearse.render([wrong])


def test_skipped_case_keeps_its_reason() -> None:
    failure = Failure(phase="load", kind="skipped", reason="torch_npu is not installed")
    skipped = row("eager", status="skipped", failure=failure, graph=None, environment={})
    assert rehearse.outcome(skipped) == "skipped"
    report = rehearse.render([skipped])
    assert "torch_npu is not installed" in report
    assert report.startswith("rehearsed on: simulated NPU\n")
