"""Figures as text, and what a column shows when there is no figure.

Covers cases 44 (no percentile of a few samples), 68 (no nan, no None), 20 (what really ran).
"""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from some_records import make_failed, make_latency, make_record, many_sided

from benchbench import compare
from benchbench import format as text
from benchbench.records import (
    AccuracyResult,
    CompileCost,
    Failure,
    GraphEvidence,
    Memory,
    Paired,
    PairedProcess,
    Record,
)
from benchbench.verdicts import Verdict


def cell(key: str, record: Record, base: Record | None = None) -> str:
    rows = compare.rows([base or make_record("eager"), record], "eager")
    (column,) = [column for column in text.COLUMNS if column.key == key]
    return column.cell(rows[-1])


@pytest.mark.parametrize(
    ("value", "digits", "expected"),
    [
        (0.0, 3, "0 s"),
        (5e-10, 3, "0.500 ns"),
        (4.2e-8, 3, "42.0 ns"),
        (12.34e-6, 3, "12.3 µs"),
        (999.96e-6, 3, "1.00 ms"),
        (999.96e-6, 4, "1.000 ms"),
        (999.6e-6, 4, "999.6 µs"),
        (9.996e-3, 3, "10.0 ms"),
        (0.0021234, 4, "2.123 ms"),
        (1.0, 3, "1.00 s"),
        (75.26, 3, "75.3 s"),
        (4321.0, 3, "4,320 s"),
    ],
)
def test_seconds(value: float, digits: int, expected: str) -> None:
    assert text.seconds(value, digits) == expected


@given(st.floats(1e-9, 1e6), st.integers(3, 4))
def test_seconds_keep_the_value_to_the_digits_shown(value: float, digits: int) -> None:
    number, unit = text.seconds(value, digits).split(" ")
    scale = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}[unit]
    shown = float(number.replace(",", ""))
    assert shown * scale == pytest.approx(value, rel=0.51 * 10 ** (1 - digits))
    assert unit == "s" or shown < 1000


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.50 KiB"),
        (350 * 2**20, "350 MiB"),
        (2**31, "2.00 GiB"),
    ],
)
def test_bytes(value: int, expected: str) -> None:
    assert text.byte_size(value) == expected


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [
        (1.32, "1.32x faster"),
        (1 / 1.1, "1.10x slower"),
        (12.345, "12.3x faster"),
        (1000.0, "1,000x faster"),
    ],
)
def test_times(ratio: float, expected: str) -> None:
    assert text.times(ratio) == expected


def test_digits_follow_the_interval() -> None:
    sharp = make_latency(0.0012345, ci_low_s=0.001234, ci_high_s=0.001235)
    blunt = make_latency(0.0012345, ci_low_s=0.0011, ci_high_s=0.0014)
    assert cell("latency", make_record("x", latency=sharp)).startswith("1.234 ms ±0.0")
    assert cell("latency", make_record("x", latency=blunt)) == "1.23 ms ±13% n=1"


def test_single_samples_pretend_nothing() -> None:
    """Case 44: no interval, no percentile."""
    one = make_latency(0.002, n_samples=1, ci_low_s=None, ci_high_s=None, p90_s=None, noise=None)
    record = make_record("x", latency=one)
    assert cell("latency", record) == "2.00 ms n=1"
    assert cell("p90", record) == "n<50"
    assert cell("noise", record) == "unknown"
    batched = make_latency(0.002, iterations_per_sample=8, p90_s=None)
    assert cell("p90", make_record("x", latency=batched)) == "batched"


def test_what_really_ran_is_beside_the_mode() -> None:
    """Case 20: the row's label is not what ran, so both are shown."""
    ran = GraphEvidence(effective="eager (size not captured)", fallbacks=["size not captured"])
    record = make_record("npugraph_ex", graph=ran)
    assert cell("mode", record) == "npugraph_ex (eager (size not captured))"
    assert cell("speedup", record) == "not comparable"
    assert (
        cell("mode", make_record("inductor", graph=GraphEvidence(effective="inductor")))
        == "inductor"
    )


@pytest.mark.parametrize(
    "status", ["failed", "skipped", "oom", "timeout", "crashed", "interrupted", "not_run"]
)
def test_a_row_without_figures_has_a_word_in_every_cell(status: str) -> None:
    record = make_failed("x", status)
    for column in text.COLUMNS:
        shown = cell(column.key, record)
        assert shown.strip()
        assert "nan" not in shown.lower().split()
        assert "None" not in shown
    assert cell("latency", record) == status.replace("_", " ")


def test_a_bare_ok_row_has_a_word_in_every_cell() -> None:
    record = make_record("x", None, accuracy=None)
    for column in text.COLUMNS:
        assert cell(column.key, record).strip()
    assert cell("latency", record) == "missing"
    assert cell("accuracy", record) == "not checked"
    assert cell("memory", record) == "not counted"


def test_wrong_outputs_are_a_failed_row_that_says_so() -> None:
    record = make_failed(
        "x",
        failure=Failure(phase="check", kind="WrongOutput", reason="call 2: out differs"),
        accuracy=AccuracyResult(verdict="fail", reason="call 2: out differs"),
    )
    assert cell("status", record) == "failed: check"
    assert cell("accuracy", record) == "fail"
    assert cell("speedup", record) == "failed"
    assert cell("reason", record) == "call 2: out differs"


def test_compile_cost_has_its_word() -> None:
    assert cell("compile", make_record("x")) == "none"
    warm = CompileCost(cold_s=75.26, warm_s=1.2)
    assert cell("compile", make_record("x", compile=warm)) == "75.3 s/1.20 s"
    uncached = CompileCost(cold_s=3.0, warm_word="not cached")
    assert cell("compile", make_record("x", compile=uncached)) == "3.00 s/not cached"
    assert (
        cell("compile", make_record("x", compile=CompileCost(cold_s=3.0))) == "3.00 s/not measured"
    )


def test_break_even_words() -> None:
    slow = make_record("x", 0.004, compile=CompileCost(cold_s=1.0))
    assert cell("break_even", slow) == "never"
    quick = make_record("x", 0.001, compile=CompileCost(cold_s=1.0))
    assert cell("break_even", quick) == "1,000 calls"
    assert cell("break_even", make_record("x", 0.001)) == "unknown"


def test_caveats_have_marks_and_a_legend_each() -> None:
    record = make_record("x", caveats=["NOISY", "ONE_PROCESS", "WRITTEN_LATER"])
    assert cell("caveats", record) == "~1?"
    view = compare.view([make_record("eager"), record], baseline="eager")
    legend = text.legend(view)
    assert [line[0] for line in legend] == ["~", "1", "?"]
    assert "WRITTEN_LATER" in legend[-1]


def test_clean_leaves_one_visible_line() -> None:
    assert text.clean("x\ny\t\x1b[31m\u202e\u2028\udcff\0") == (
        "x\\ny\\t\\x1b[31m\\u202e\\u2028\\udcff\\x00"
    )
    family = "👨\u200d👩\u200d👧 e\u0301 模型"
    assert text.clean(family) == family


@given(st.text(), st.integers(4, 40))
def test_cut_fits(name: str, width: int) -> None:
    assert text.width_of(text.cut(text.clean(name), width)) <= width


def test_counts_text_adds_up() -> None:
    view = compare.view(many_sided(), baseline="eager")
    assert text.counts_text(view.summary) == "8 rows: 4 ok, 1 failed, 1 timeout, 2 skipped"
    assert text.counts_text(compare.summary([])) == "0 rows"


def test_best_of_rows_that_are_the_same_is_said_so() -> None:
    base = make_record("eager", 0.002)
    values = (0.005, 0.004, 0.006, 0.005, 0.005)
    processes = [PairedProcess(round=i, log_ratio=value) for i, value in enumerate(values)]
    paired = Paired(baseline_key=base.case_key, design="duet", processes=processes)
    view = compare.view([base, make_record("inductor", 0.00199, paired=paired)], baseline="eager")
    assert text.speedup_text(view.rows[1]) == "same [1.00, 1.01]"
    assert text.best_text(view.summary.best[0], "eager").endswith(
        "inductor, but the same as eager within 2%"
    )


def test_words_stand_where_a_mean_has_no_value() -> None:
    mean = compare.MeanSpeedup(mode="x", value=None, n=0, m=3)
    assert text.mean_text(mean, "eager") == "x: no mean (0 of 3 cases ok in both)"
    one = dataclasses.replace(mean, value=2.0, n=1, m=3, low=2.0, high=2.0)
    assert "1 of 3 cases" in text.mean_text(one, "eager")


def test_columns_are_one_list_with_unique_names() -> None:
    keys = [column.key for column in text.COLUMNS]
    names = [raw.name for column in text.COLUMNS for raw in column.raw]
    assert len(set(keys)) == len(keys)
    assert len(set(names)) == len(names)
    assert math.isfinite(sum(column.drop for column in text.COLUMNS))


def paired_row(log_ratios: list[float], median_s: float = 0.002) -> compare.Row:
    base = make_record("eager", 0.002)
    processes = [PairedProcess(round=i, log_ratio=value) for i, value in enumerate(log_ratios)]
    paired = Paired(baseline_key=base.case_key, design="duet", processes=processes)
    return compare.rows([base, make_record("inductor", median_s, paired=paired)], "eager")[1]


def test_a_paired_verdict_says_what_it_could_have_seen_and_what_speaks_against_it() -> None:
    """Same: how small a difference would have shown; and the rows' own latencies disagree."""
    row = paired_row([0.001, -0.002, 0.003, 0.0, -0.001], median_s=0.0018)
    found = text.doubts(row)
    assert row.verdict is Verdict.SAME
    assert "or more would have shown" in found
    assert "own latencies give 1.11x" in found


def test_an_unclear_verdict_says_what_to_type_next() -> None:
    assert "comparison.policy=thorough" in text.doubts(paired_row([0.1, -0.2, 0.3, 0.0, -0.1]))
    one_a_side = compare.rows([make_record(), make_record("inductor", 0.00199)], "eager")[1]
    assert one_a_side.verdict is Verdict.UNCLEAR
    assert "comparison.policy=standard" in text.doubts(one_a_side)


def test_a_clear_speedup_has_nothing_to_add() -> None:
    assert text.doubts(paired_row([0.3, 0.31, 0.29, 0.3, 0.3], median_s=0.00148)) == "none"


def test_nan_at_the_same_places_is_said_beside_a_pass() -> None:
    """Case 32: a pass with a note."""
    accuracy = AccuracyResult(verdict="pass", notes=["call 0: out: NaN at the same 3 positions"])
    (row,) = compare.rows([make_record(accuracy=accuracy)], "eager")
    assert "NaN at the same 3 positions" in text.doubts(row)


def test_what_failed_in_its_first_call_is_not_said_to_have_run() -> None:
    """Case 19: nothing ran in eager where the capture raised."""
    failed = make_failed("npugraph_ex", graph=GraphEvidence(effective="eager (0 graphs)"))
    (row,) = compare.rows([failed], "eager")
    (mode,) = [column for column in text.columns() if column.key == "mode"]
    assert mode.cell(row) == "npugraph_ex"


@pytest.mark.parametrize(("n", "says"), [(1, "1 sample is too few"), (3, "3 samples are too few")])
def test_a_row_of_few_samples_says_so(n: int, says: str) -> None:
    """Cases 37 and 44: a model of seconds per call, or one reading."""
    few = make_latency(3.0, n_samples=n, ci_low_s=None, ci_high_s=None)
    (row,) = compare.rows([make_record(latency=few)], "eager")
    assert says in text.doubts(row)


def test_an_enormous_sample_is_visible() -> None:
    """Case 44: one second once, beside a median of 2 ms."""
    spike = make_latency(0.002, max_s=1.0, mean_s=0.052, n_outliers=1, n_samples=20)
    (row,) = compare.rows([make_record(latency=spike)], "eager")
    assert text.doubts(row) == "1 outlier in 20 samples, the longest 1.00 s"
    hiccup = make_latency(0.00002, max_s=0.001, mean_s=0.000022, n_outliers=57, n_samples=550)
    (row,) = compare.rows([make_record(latency=hiccup)], "eager")
    assert text.doubts(row) == "none"


def test_growing_memory_and_a_large_compile_peak_are_figures() -> None:
    """Cases 47 and 50: the steady peak is in the table, these two are below it."""
    grows = Memory(steady_peak_bytes=2**30, growth_bytes_per_call=2 * 2**20)
    tuned = Memory(steady_peak_bytes=40 * 2**20, compile_peak_bytes=541 * 2**20)
    rows = compare.rows(
        [
            make_record(memory=grows, caveats=["MEMORY_GROWS"]),
            make_record("inductor", 0.001, memory=tuned),
        ],
        "eager",
    )
    assert "grows by 2.00 MiB per call" in text.doubts(rows[0])
    assert text.doubts(rows[1]) == "compiling took 541 MiB at its peak"
