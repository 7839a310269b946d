"""Rows, speedups, break-even, best modes, means and differences.

Covers cases 80 (means over the common set), 77 (one definition), 79 (a faster failure is no
improvement), 20 (a fallback is not mixed in), 44 and 68 (figures that are none), 83 (differences).
"""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from some_records import (
    make_case,
    make_failed,
    make_latency,
    make_plan,
    make_record,
    make_skipped,
)

from benchbench import compare
from benchbench.compare import Row
from benchbench.records import (
    AccuracyResult,
    CompileCost,
    GraphEvidence,
    Paired,
    PairedProcess,
    Record,
    Settings,
)
from benchbench.verdicts import Verdict


def candidate(rows: list[Row]) -> Row:
    (row,) = [row for row in rows if not row.is_baseline]
    return row


def compared(record: Record, base: Record | None = None) -> Row:
    return candidate(compare.rows([base or make_record("eager", 0.002), record], "eager"))


@pytest.mark.parametrize(
    ("median_s", "verdict", "speedup"),
    [
        (0.001, Verdict.FASTER, 2.0),
        (0.004, Verdict.SLOWER, 0.5),
        (0.00197, Verdict.UNCLEAR, 0.002 / 0.00197),
        (0.00203, Verdict.UNCLEAR, 0.002 / 0.00203),
        (0.00190, Verdict.FASTER, 0.002 / 0.0019),
    ],
)
def test_speedup_is_baseline_over_candidate(
    median_s: float, verdict: Verdict, speedup: float
) -> None:
    row = compared(make_record("inductor", median_s))
    assert row.verdict is verdict
    assert row.speedup == pytest.approx(speedup)


def paired(*log_ratios: float, flags: tuple[int, ...] = ()) -> Paired:
    processes = [
        PairedProcess(round=i, log_ratio=value, flags=["STARVED"] if i in flags else [])
        for i, value in enumerate(log_ratios)
    ]
    base = make_record("eager", 0.002)
    return Paired(baseline_key=base.case_key, design="duet", processes=processes)


def test_verdict_comes_from_paired_processes_where_there_are_any() -> None:
    """The rows' own latencies say 1.05x; five paired processes know that it is 1.5 %."""
    record = make_record("inductor", 0.0019)
    five = msgspec.structs.replace(record, paired=paired(0.015, 0.016, 0.014, 0.015, 0.015))
    row = compared(five)
    assert row.verdict is Verdict.SAME
    assert row.speedup == pytest.approx(math.exp(0.015))
    assert "1.05x" in " ".join(row.reasons)
    assert not row.decision.advisory  # type: ignore[union-attr]


def test_the_best_mode_is_none_that_the_table_calls_slower() -> None:
    """Its own process was quick, but the pairs know better."""
    record = make_record("inductor", 0.0019)
    slower = msgspec.structs.replace(record, paired=paired(-0.1, -0.11, -0.09, -0.1, -0.1))
    found = compare.view([make_record("eager", 0.002), slower], baseline="eager")
    assert found.rows[1].verdict is Verdict.SLOWER
    assert found.summary.best[0].row.is_baseline


def test_flagged_processes_are_left_out_and_counted() -> None:
    record = make_record("inductor", 0.001)
    noisy = msgspec.structs.replace(record, paired=paired(0.7, 0.7, 0.7, 0.7, 0.7, flags=(0, 1)))
    assert compared(noisy).verdict is Verdict.NOISY
    assert any("did not get its core" in reason for reason in compared(noisy).reasons)
    fine = msgspec.structs.replace(record, paired=paired(9.0, 0.7, 0.71, 0.7, 0.69, flags=(0,)))
    assert compared(fine).speedup == pytest.approx(2.0, rel=0.02)


def test_percent_change_is_defined_once() -> None:
    """Case 77: 2.3 times the time is 130 % more, not 230 %; a missing past is no percentage."""
    assert compare.percent_change(1.0, 2.3) == pytest.approx(130.0)
    assert compare.percent_change(2.0, 1.0) == pytest.approx(-50.0)
    assert compare.percent_change(0.0, 1.0) is None
    assert compare.percent_change(math.nan, 1.0) is None


WITHHELD = [
    (make_failed("inductor"), "failed"),
    (make_failed("inductor", "oom"), "oom"),
    (make_skipped("inductor"), "skipped"),
    (make_record("inductor", None), "no latency"),
    (make_record("inductor", 0.0), "no latency"),
    (make_record("inductor", math.nan), "no latency"),
    (make_record("inductor", -1.0), "no latency"),
    (make_record("inductor", 0.001, diagnosis=True), "debug switch"),
    (make_record("inductor", 0.001, simulated=True), "simulated"),
    (make_record("inductor", 0.001, accuracy=None), "not checked"),
    (
        make_record("inductor", 0.001, accuracy=AccuracyResult(verdict="fail", reason="call 2")),
        "outputs are wrong: call 2",
    ),
    (
        make_record("inductor", 0.001, graph=GraphEvidence(fallbacks=["size not captured"])),
        "what ran is not what was asked for: size not captured",
    ),
    (make_record("inductor", 0.001, graph=GraphEvidence(in_window=["recompile"])), "recompile"),
]


@pytest.mark.parametrize(("record", "why"), WITHHELD)
def test_speedup_is_withheld_with_its_reason(record: Record, why: str) -> None:
    """Case 79: a row that fails has no speedup and is never best, however fast it was."""
    rows = compare.rows([make_record("eager", 0.002), record], "eager")
    row = candidate(rows)
    assert row.speedup is None
    assert row.verdict is Verdict.NOT_COMPARABLE
    assert why in " ".join(row.reasons)
    assert row.break_even is None
    summary = compare.summary(rows)
    assert [best.row.record.case.mode for best in summary.best] == ["eager"]
    assert all(mean.value is None for mean in summary.means)


@pytest.mark.parametrize("verdict", ["off", "random", "not_comparable", "nothing_to_compare"])
def test_outputs_that_cannot_be_compared_do_not_withhold(verdict: Any) -> None:
    record = make_record("inductor", 0.001, accuracy=AccuracyResult(verdict=verdict))
    assert compared(record).speedup == pytest.approx(2.0)


def test_a_failed_baseline_withholds_all_speedups() -> None:
    row = compared(make_record("inductor", 0.001), make_failed("eager"))
    assert row.speedup is None
    assert row.reasons == ("baseline: failed",)


def test_a_missing_baseline_is_said_and_no_baseline_is_fine() -> None:
    alone = [make_record("inductor", 0.001)]
    asked = compare.rows(alone, "eager")[0]
    assert asked.verdict is Verdict.NOT_COMPARABLE
    assert asked.reasons == ("no eager row to compare with",)
    unasked = compare.rows(alone, None)[0]
    assert (unasked.verdict, unasked.reasons) == (None, ())


def test_noise_and_overlapping_intervals_leave_doubt() -> None:
    noisy = compared(make_record("inductor", 0.0015, caveats=["NOISY"]))
    assert noisy.verdict is Verdict.NOISY
    wide = make_latency(0.0015, ci_low_s=0.001, ci_high_s=0.0025)
    unclear = compared(make_record("inductor", latency=wide))
    assert unclear.verdict is Verdict.UNCLEAR
    assert unclear.speedup == pytest.approx(0.002 / 0.0015)


def test_rows_are_grouped_in_order_with_the_baseline_first() -> None:
    records = [
        make_record("inductor", model="b"),
        make_record("inductor", model="a"),
        make_record("eager", model="b"),
        make_record("eager", model="a"),
    ]
    found = [(row.record.case.model, row.mode) for row in compare.rows(records, "eager")]
    assert found == [("b", "eager"), ("b", "inductor"), ("a", "eager"), ("a", "inductor")]


def test_names_that_differ_in_case_stay_apart() -> None:
    records = [make_record("eager", model="A"), make_record("eager", model="a")]
    assert len({row.group for row in compare.rows(records, "eager")}) == 2


def test_baseline_without_options_is_the_baseline() -> None:
    with_options = make_record(case=make_case("eager", options={"x": 1}))
    rows = compare.rows([with_options, make_record("eager", 0.001)], "eager")
    assert [row.mode for row in rows] == ["eager", "eager{x=1}"]
    assert rows[0].is_baseline


# ---- break-even -----------------------------------------------------------------------------


def test_break_even_counts_the_calls_that_pay_for_the_compile() -> None:
    base = make_record("eager", 0.002, compile=CompileCost(cold_s=0.5))
    record = make_record("inductor", 0.001, compile=CompileCost(cold_s=10.5))
    assert compare.break_even(record, base) == pytest.approx(10_000.0)
    assert compare.break_even(record, make_record("eager", 0.002)) == pytest.approx(10_500.0)


def test_break_even_of_a_slower_mode_is_never() -> None:
    record = make_record("inductor", 0.003, compile=CompileCost(cold_s=10.0))
    assert compare.break_even(record, make_record("eager", 0.002)) == "never"
    assert compared(record).break_even == "never"


def test_break_even_of_the_same_speed_is_unclear_in_a_row() -> None:
    row = compared(make_record("inductor", 0.00199, compile=CompileCost(cold_s=10.0)))
    assert row.break_even == "unclear"


def test_break_even_is_absent_where_it_means_nothing() -> None:
    base = make_record("eager", 0.002)
    assert compare.break_even(base, base) is None
    assert compare.break_even(base, None) is None
    assert compare.break_even(make_record("inductor", 0.001), base) is None
    failed = make_failed("inductor", compile=CompileCost(cold_s=1.0))
    assert compare.break_even(failed, base) is None


def test_compile_cheaper_than_the_baselines_pays_at_once() -> None:
    base = make_record("eager", 0.002, compile=CompileCost(cold_s=5.0))
    record = make_record("inductor", 0.001, compile=CompileCost(cold_s=1.0))
    assert compare.break_even(record, base) == 0.0


# ---- below the table --------------------------------------------------------------------------


def test_mean_is_over_the_cases_that_are_ok_in_both() -> None:
    """Case 80: failures are counted, never as 0 and never as 1."""
    records = []
    for number in range(10):
        model = f"m{number}"
        records.append(make_record("eager", 0.003, model))
        good = make_record("inductor", 0.002, model)
        records.append(good if number < 5 else make_failed("inductor", model=model))
    (mean,) = compare.summary(compare.rows(records, "eager")).means
    assert mean.value == pytest.approx(1.5)
    assert (mean.n, mean.m) == (5, 10)


def test_figures_without_a_logarithm_never_enter_a_mean_and_a_huge_one_is_visible() -> None:
    records = []
    for number, median_s in enumerate((0.001, 0.000002, 0.0, math.nan, -1.0, math.inf)):
        records.append(make_record("eager", 0.002, f"m{number}"))
        records.append(make_record("inductor", median_s, f"m{number}"))
    (mean,) = compare.summary(compare.rows(records, "eager")).means
    assert (mean.n, mean.m) == (2, 6)
    assert mean.value == pytest.approx(math.sqrt(2.0 * 1000.0))
    assert mean.high == pytest.approx(1000.0)


def test_a_mode_that_was_skipped_everywhere_has_no_mean() -> None:
    rows = compare.rows([make_record("eager"), make_skipped()], "eager")
    assert compare.summary(rows).means == ()


def test_counts_add_up() -> None:
    records = [
        make_record("eager"),
        make_failed("a"),
        make_failed("b", "oom"),
        make_failed("c", "not_run"),
        make_skipped(),
    ]
    summary = compare.summary(compare.rows(records, "eager"))
    assert summary.total == sum(summary.counts.values()) == 5
    assert summary.counts == {"ok": 1, "failed": 1, "oom": 1, "not_run": 1, "skipped": 1}


def test_cases_of_the_plan_without_a_record_are_rows() -> None:
    cases = [make_case(mode) for mode in ("eager", "inductor", "npugraph_ex")]
    plan = make_plan(*cases, skipped={cases[2].key: "no NPU"}, notes=["aclgraph means x"])
    view = compare.view([make_record("inductor")], baseline="eager", plan=plan)
    assert [row.mode for row in view.rows] == ["eager", "inductor", "npugraph_ex"]
    assert [row.status for row in view.rows] == ["not_run", "ok", "skipped"]
    assert view.summary.total == len(plan.cases)
    assert view.notes == ("aclgraph means x",)


def test_best_is_the_quickest_that_counts() -> None:
    records = [make_record("eager", 0.002), make_record("a", 0.0015), make_record("b", 0.0012)]
    (best,) = compare.summary(compare.rows(records, "eager")).best
    assert (best.row.mode, best.candidates) == ("b", 3)
    failed = compare.summary(compare.rows([make_failed("eager")], "eager"))
    assert failed.best == ()


def test_differences_between_rows_of_a_group_are_listed() -> None:
    """Case 83: what differs beside the mode is said; what only one row knows does not differ."""
    base = make_record(
        "eager",
        environment={"torch": "2.13", "cpu": {"model": "A"}, "load_average": 1, "only": 1},
        settings=Settings(threads=1),
        model_sources={"m.py": "a" * 64},
    )
    other = msgspec.structs.replace(
        make_record("inductor"),
        environment={"torch": "2.12", "cpu": {"model": "A"}, "load_average": 9, "x": None},
        settings=Settings(threads=2),
        model_sources={"m.py": "b" * 64},
    )
    found = compare.summary(compare.rows([base, other], "eager")).differences
    assert {d.name: d.values for d in found} == {
        "torch": (("eager", "2.13"), ("inductor", "2.12")),
        "settings.threads": (("eager", "1"), ("inductor", "2")),
        "model source m.py": (("eager", "a" * 12), ("inductor", "b" * 12)),
    }


def test_nothing_is_a_view_too() -> None:
    view = compare.view([], baseline="eager")
    assert view.rows == ()
    assert view.summary.total == 0
