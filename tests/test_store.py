"""The results folder: durable, strict, readable when damaged, found by name.

Covers cases 67 (two writers, read-only, full disk), 68 (NaN and Infinity), 62 (one second, many
runs), 64 (names), 52 (a half-written line), 71 (UTF-8 whatever the locale), 40 (clock order).
"""

from __future__ import annotations

import errno
import json
import math
import os
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchbench import durable, salvage, store
from benchbench.errors import StoreError
from benchbench.records import (
    SCHEMA_VERSION,
    AccuracyResult,
    Case,
    CompileCost,
    Latency,
    Plan,
    Record,
    Samples,
    Target,
)

DATA = Path(__file__).parent / "data"
RUN_ID = "20260801T120000Z_abc1234_0001"


def make_case(mode: str = "eager", model: str = "mlp[tiny]") -> Case:
    group = f"{model}/forward/1/float32/cpu"
    return Case(
        key=f"{group}/{mode}",
        group=group,
        model=model,
        model_target=Target(path="models.mlp.build"),
        mode=mode,
        mode_target=Target(path=f"modes.{mode}"),
        device="cpu",
        workload="forward",
        dtype="float32",
        batch_size=1,
    )


def make_record(mode: str = "eager", **changes: Any) -> Record:
    case = make_case(mode, changes.pop("model", "mlp[tiny]"))
    values: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "run_id": RUN_ID,
        "case_key": case.key,
        "started_at": "2026-08-01T12:00:00Z",
        "case": case,
        "status": "ok",
        "latency": Latency(median_s=0.002, mean_s=0.002, min_s=0.001, max_s=0.003, n_samples=3),
    }
    return Record(**{**values, **changes})


def make_plan(run_id: str = RUN_ID) -> Plan:
    return Plan(run_id=run_id, cases=[make_case()])


def strict(line: bytes) -> dict[str, Any]:
    """Parse JSON as a browser does: NaN and Infinity are errors."""

    def refuse(token: str) -> None:
        raise AssertionError(f"{token} is not JSON")

    parsed: dict[str, Any] = json.loads(line.decode("utf-8"), parse_constant=refuse)
    return parsed


def some_samples(k: int = 1) -> list[Samples]:
    return [
        Samples(phase="warmup", calls_per_sample=1, duration_ns=[9, 8]),
        Samples(phase="sample", calls_per_sample=k, duration_ns=[2_000_000, 2_000_001, 2_000_002]),
    ]


# ---- writing ------------------------------------------------------------------------------


def test_each_line_is_on_disk_as_soon_as_append_returns(tmp_path: Path) -> None:
    writer = store.RunWriter.create(tmp_path / "results", make_plan())
    for count, mode in enumerate(("eager", "inductor"), start=1):
        writer.append(make_record(mode), some_samples())
        lines = (writer.run_dir / "records.jsonl").read_bytes().splitlines()
        assert [strict(line)["case"]["mode"] for line in lines][-1] == mode
        assert len(lines) == count
        assert len(store.load_run(writer.run_dir).samples) == count  # before finish, too


def test_run_that_exists_is_never_touched(tmp_path: Path) -> None:
    """Case 62: many runs in one second get one folder each."""
    writers = [store.RunWriter.create(tmp_path, make_plan()) for _ in range(8)]
    assert writers[0].run_id == RUN_ID
    assert len({writer.run_id for writer in writers}) == 8
    for writer in writers:
        assert writer.run_id.startswith(RUN_ID[:-4])
        writer.append(make_record())
        run = store.load_run(writer.run_dir)
        assert run.run_id == writer.run_id
        assert run.plan is not None
        assert run.plan.run_id == writer.run_id
        assert [record.run_id for record in run.records] == [writer.run_id]


def test_samples_survive_with_and_without_the_merge(tmp_path: Path) -> None:
    writer = store.RunWriter.create(tmp_path, make_plan())
    again = Samples(phase="sample", calls_per_sample=4, duration_ns=[2**40, 5], round=1)
    writer.append(make_record("eager"), [*some_samples(), again])
    writer.append(make_record("inductor"), some_samples(k=7))
    before, damage = store.load_samples(writer.run_dir)
    assert damage == []
    writer.finish()
    writer.finish()
    after, damage = store.load_samples(writer.run_dir)
    assert damage == []
    assert before == after
    assert after[make_case("eager").key][-1] == again
    assert not (writer.run_dir / "samples").exists()

    from pyarrow import parquet

    table = parquet.read_table(writer.run_dir / "samples.parquet")
    assert table.column_names == [
        "case_key",
        "round",
        "phase",
        "index",
        "duration_ns",
        "calls_per_sample",
    ]
    assert str(table.schema.field("duration_ns").type) == "int64"
    assert table.column("index").to_pylist() == [0, 1, 0, 1, 2, 0, 1, 0, 1, 0, 1, 2]


def test_an_interrupt_still_merges(tmp_path: Path) -> None:
    writer = store.RunWriter.create(tmp_path, make_plan())

    def interrupted() -> None:
        with writer:
            writer.append(make_record(), some_samples())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert (writer.run_dir / "samples.parquet").exists()


def test_killed_between_merge_and_clean_up_counts_no_sample_twice(tmp_path: Path) -> None:
    writer = store.RunWriter.create(tmp_path, make_plan())
    writer.append(make_record(), some_samples())
    part = next((writer.run_dir / "samples").glob("*.json"))
    content = part.read_bytes()
    writer.finish()
    part.parent.mkdir()
    part.write_bytes(content)
    found, _ = store.load_samples(writer.run_dir)
    assert found == {make_case().key: some_samples()}


def test_damaged_samples_are_named_and_kept(tmp_path: Path) -> None:
    writer = store.RunWriter.create(tmp_path, make_plan())
    writer.append(make_record("eager"), some_samples())
    writer.append(make_record("inductor"), some_samples())
    torn = writer.run_dir / "samples" / "0001.json"
    torn.write_bytes(torn.read_bytes()[:30])
    writer.finish()
    run = store.load_run(writer.run_dir)
    assert list(run.samples) == [make_case("eager").key]
    assert len(run.records) == 2
    assert any("samples/0001.json" in line for line in run.damage)
    assert torn.exists()
    (writer.run_dir / "samples.parquet").write_bytes(b"PAR1 nonsense")
    assert any("samples.parquet" in line for line in store.load_run(writer.run_dir).damage)


def test_statistics_come_from_the_samples(tmp_path: Path) -> None:
    writer = store.RunWriter.create(tmp_path, make_plan())
    writer.append(make_record(), some_samples(k=2))
    (record,) = store.load_run(writer.run_dir).records
    assert record.latency is not None
    assert record.latency.median_s == pytest.approx(1_000_000.5e-9)
    (stored,) = store.load_run(writer.run_dir, recompute=False).records
    assert stored == make_record()


def test_strict_json_whatever_the_record_holds(tmp_path: Path) -> None:
    """Case 68: NaN, infinities and odd objects never reach the file, and cost no row."""
    writer = store.RunWriter.create(tmp_path, make_plan())
    odd = make_record(
        latency=Latency(
            median_s=1.0, mean_s=1.0, min_s=1.0, max_s=1.0, n_samples=1, noise=math.nan
        ),
        accuracy=AccuracyResult(verdict="fail", max_abs=math.inf, max_rel=math.nan),
        phase_s={"load": math.nan, "compile": 2.0},
        environment={"x": -math.inf, "list": [1.0, math.nan], "none": None, "path": Path("/a")},
        notes=["bad name \udcff"],
    )
    stored = writer.append(odd)
    (line,) = (writer.run_dir / "records.jsonl").read_bytes().splitlines()
    parsed = strict(line)
    assert parsed["accuracy"] == {"verdict": "fail"}
    assert parsed["phase_s"] == {"compile": 2.0}
    assert parsed["environment"] == {"list": [1.0, "nan"], "none": None, "path": "/a"}
    assert "latency.noise was not a finite number" in parsed["notes"]
    run = store.load_run(writer.run_dir)
    assert run.damage == []
    assert run.records == [stored]


def test_a_required_figure_that_is_no_number_takes_its_object_with_it(tmp_path: Path) -> None:
    writer = store.RunWriter.create(tmp_path, make_plan())
    broken = Latency(median_s=math.nan, mean_s=1.0, min_s=1.0, max_s=1.0, n_samples=1)
    stored = writer.append(make_record(latency=broken, compile=CompileCost(cold_s=2.0)))
    assert stored.latency is None
    assert stored.compile == CompileCost(cold_s=2.0)
    assert any("latency" in note for note in stored.notes)
    assert store.load_run(writer.run_dir).damage == []


WRITER = """
import sys
sys.path[:0] = {path!r}
from pathlib import Path
from benchbench import durable
for i in range(200):
    durable.append_line(Path(sys.argv[1]), sys.argv[2].encode() * 20_000 + b"\\n")
"""


def test_two_writers_at_once_never_mix(tmp_path: Path) -> None:
    """Case 67: 400 whole lines from two processes."""
    history = tmp_path / "history.jsonl"
    code = WRITER.format(path=sys.path)
    writers = [
        subprocess.Popen([sys.executable, "-c", code, str(history), letter]) for letter in "ab"
    ]
    assert [writer.wait(120) for writer in writers] == [0, 0]
    lines = history.read_bytes().splitlines()
    assert len(lines) == 400
    assert {(len(set(line)), len(line)) for line in lines} == {(1, 20_000)}


FULL = """
import resource, signal, sys
sys.path[:0] = {path!r}
from pathlib import Path
from benchbench import durable
from benchbench.errors import StoreError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
for i in range(9):
    try:
        durable.append_line(Path(sys.argv[1]), b"x" * 20_000 + b"\\n")
    except StoreError as error:
        print(i, error)
        break
"""


@pytest.mark.skipif(os.name != "posix", reason="needs a file size limit")
def test_full_disk_leaves_whole_lines(tmp_path: Path) -> None:
    """Case 67: what was written of a line that did not fit is taken back."""
    history = tmp_path / "history.jsonl"
    code = FULL.format(path=sys.path)
    done = subprocess.run(
        [sys.executable, "-c", code, str(history)], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("2 cannot write")
    assert str(history) in done.stdout
    assert "results_dir=DIR" in done.stdout
    assert history.read_bytes() == (b"x" * 20_000 + b"\n") * 2


def test_full_disk_in_the_middle_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = store.RunWriter.create(tmp_path, make_plan())
    writer.append(make_record("eager"), some_samples())
    before = (writer.run_dir / "records.jsonl").read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match=r"No space left.*Free some space.*intact"):
        writer.append(make_record("inductor"))
    with pytest.raises(StoreError, match="No space left"):
        writer.append(make_record("inductor"), some_samples())
    assert (writer.run_dir / "records.jsonl").read_bytes() == before
    assert sorted(p.name for p in (writer.run_dir / "samples").iterdir()) == ["0000.json"]


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anything")
def test_read_only_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(StoreError, match="Choose a folder that you may write"):
        store.RunWriter.create(tmp_path / "results", make_plan())


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_read_only_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    history = tmp_path / "history.jsonl"
    history.write_bytes(b"{}\n")
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(StoreError, match=r"cannot write .*history.jsonl: .* you may write"):
        durable.append_line(history, b"{}\n")
    assert history.read_bytes() == b"{}\n"


def test_results_dir_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("mine")
    with pytest.raises(StoreError, match="A file is in the way"):
        store.RunWriter.create(tmp_path / "results", make_plan())
    assert (tmp_path / "results").read_text() == "mine"


def test_append_after_a_torn_line_keeps_both_apart(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    _, line = store.encode_record(make_record())
    path.write_bytes(line[:40])
    durable.append_line(path, line)
    run = store.load_run(path)
    assert len(run.records) == 1
    assert run.damage[0].startswith("records.jsonl:1: not JSON")


def test_a_table_is_replaced_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = store.RunWriter.create(tmp_path, make_plan())
    writer.write_text("table.md", "| 模型 \udcff |\n")
    assert (writer.run_dir / "table.md").read_bytes() == "| 模型 \\udcff |\n".encode()

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError):
        writer.write_text("table.md", "new")
    assert (writer.run_dir / "table.md").read_bytes().startswith(b"| ")
    assert not list(writer.run_dir.glob(".table*"))


@pytest.mark.parametrize(
    "key",
    ["hf/llama-2-7b", "型" * 120, "..", "/tmp/x", "trailing ", "a:b", "", ".", "a\0b", "x" * 300],
)
def test_log_names_are_safe_and_bounded(tmp_path: Path, key: str) -> None:
    """Case 64: whatever the name, the log lies in the run's own folder."""
    writer = store.RunWriter.create(tmp_path, make_plan())
    path = writer.log_path(key)
    assert path.parent == writer.run_dir / "logs"
    assert len(path.name.encode()) <= 110
    path.write_text("log")
    assert path.resolve().parent == (writer.run_dir / "logs").resolve()


def test_log_names_of_different_cases_differ(tmp_path: Path) -> None:
    writer = store.RunWriter.create(tmp_path, make_plan())
    keys = ["a/b", "a_b", "a:b", "型" * 120, "型" * 121, "a|b", " a_b"]
    assert len({writer.log_path(key) for key in keys}) == len(keys)


# ---- reading what is damaged ---------------------------------------------------------------


def line_of(record: Record, **changes: Any) -> bytes:
    raw = json.loads(msgspec.json.encode(record))
    for dotted, value in changes.items():
        *parents, last = dotted.split("__")
        target = raw
        for key in parents:
            target = target[key]
        target[last] = value
    return json.dumps(raw).encode()


def read(tmp_path: Path, *lines: bytes, end: bytes = b"\n") -> store.Run:
    path = tmp_path / "records.jsonl"
    path.write_bytes(b"\n".join(lines) + end)
    return store.load_run(path)


GOOD = line_of(make_record("eager"))
OTHER = line_of(make_record("inductor"))


@pytest.mark.parametrize(
    ("line", "kept", "named"),
    [
        (b"", 0, "blank line"),
        (b"   \r", 0, "blank line"),
        (OTHER[:50], 0, "not JSON"),
        (b"\0" * 512, 0, "NUL bytes"),
        (b"[1, 2]", 0, "not a record but [1, 2]"),
        (b"null", 0, "not a record but None"),
        (b"\xff" + OTHER, 1, "not UTF-8"),
        (b"log: " + OTHER.replace(b"0.002", b"NaN"), 1, "not JSON"),
        (OTHER + b"}", 1, "1 stray characters"),
        (OTHER.replace(b"mlp", b"m\xffp", 1), 1, "not UTF-8"),
        (OTHER[:50] + GOOD, 1, "not JSON"),
        (OTHER.replace(b'"status": "ok"', b'"status": "flaky"'), 0, "status"),
        (b'{"schema_version": 1}', 0, "missing required field"),
    ],
)
def test_damage_is_named_and_the_rest_is_read(
    tmp_path: Path, line: bytes, kept: int, named: str
) -> None:
    run = read(tmp_path, GOOD, line, GOOD)
    assert len(run.records) == 2 + kept
    assert run.damage
    assert all(text.startswith("records.jsonl:2: ") for text in run.damage)
    assert any(named in text for text in run.damage)


def test_two_records_glued_in_one_line_are_both_read(tmp_path: Path) -> None:
    run = read(tmp_path, GOOD + OTHER)
    assert [record.case.mode for record in run.records] == ["eager", "inductor"]


def test_torn_last_line(tmp_path: Path) -> None:
    run = read(tmp_path, GOOD, OTHER[:-20], end=b"")
    assert len(run.records) == 1
    assert run.damage[0].startswith("records.jsonl:2: torn last line: not JSON")
    whole = read(tmp_path, GOOD, OTHER, end=b"")
    assert len(whole.records) == 2
    assert "is complete" in whole.damage[0]


def test_clean_file_has_no_damage(tmp_path: Path) -> None:
    assert read(tmp_path, GOOD, OTHER).damage == []


@pytest.mark.parametrize("token", [b"NaN", b"Infinity", b"-Infinity", b"-nan", b"inf", b"1e999"])
def test_old_rows_with_bare_tokens(tmp_path: Path, token: bytes) -> None:
    """Case 68: a bad figure is missing, the row is there, the word NaN in a text is left alone."""
    record = make_record(
        compile=CompileCost(cold_s=7.5, warm_s=1.0), notes=["saw NaN, inf and 1e999"]
    )
    line = msgspec.json.encode(record).replace(b"7.5", token)
    run = read(tmp_path, GOOD, line)
    assert run.records[1] == msgspec.structs.replace(record, compile=CompileCost(warm_s=1.0))
    assert len(run.damage) == 1
    assert run.damage[0].startswith("records.jsonl:2: compile.cold_s: ")
    assert run.damage[0].endswith("is not a number: read as missing")


@pytest.mark.parametrize("value", ["N/A", None, "", True, [1.0]])
def test_old_rows_with_other_non_numbers(tmp_path: Path, value: object) -> None:
    run = read(tmp_path, line_of(make_record(), latency__p90_s=value))
    assert run.records == [make_record()]
    assert run.damage[0].startswith("records.jsonl:1: latency.p90_s: ")


def test_a_row_without_its_median_is_still_a_row(tmp_path: Path) -> None:
    run = read(tmp_path, line_of(make_record(), latency__median_s="N/A"))
    assert run.records == [make_record(latency=None)]
    assert len(run.damage) == 2


def test_odd_entry_of_a_plain_dict_costs_that_entry(tmp_path: Path) -> None:
    record = make_record(phase_s={"load": 1.0, "compile": 2.0, "check": 3.0})
    run = read(tmp_path, line_of(record, phase_s__compile="N/A"))
    assert run.records[0].phase_s == {"load": 1.0, "check": 3.0}
    assert "phase_s.compile" in run.damage[0]


def test_fields_that_are_not_vital_read_as_unknown(tmp_path: Path) -> None:
    line = line_of(make_record(), run_id=None, started_at=7, case__model_target={})
    run = read(tmp_path, line)
    (record,) = run.records
    assert (record.run_id, record.started_at) == ("unknown", "unknown")
    assert record.case.model_target.path == "unknown"
    assert record.latency == make_record().latency
    assert any("`run_id`" in text for text in run.damage)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_reading_never_raises_and_never_is_silent(data: st.DataObject) -> None:
    """Whatever a line holds, it gives a record, or its damage is named."""
    line = bytearray((DATA / "run_v1" / "records.jsonl").read_bytes().splitlines()[1])
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(line)))
        end = data.draw(st.integers(start, min(len(line), start + 12)))
        line[start:end] = data.draw(
            st.sampled_from(
                [b"", b"NaN", b"null", b"}", b'"', b"{", b"\xff", b"-1e999", b"[", b":"]
            )
        )
    found = salvage.read_line(bytes(line))
    assert found.records or found.damage
    for record in found.records:
        strict(store.encode_record(record)[1])


def test_null_in_the_environment_is_a_value(tmp_path: Path) -> None:
    record = make_record(environment={"cann": None})
    run = read(tmp_path, line_of(record))
    assert run.records[0].environment == {"cann": None}
    assert run.damage == []


def test_newer_schema_is_read_and_named(tmp_path: Path) -> None:
    line = line_of(make_record(), schema_version=SCHEMA_VERSION + 1, brand_new={"a": 1})
    run = read(tmp_path, line)
    assert len(run.records) == 1
    assert "is newer than this program's" in run.damage[0]


def test_missing_version_is_named(tmp_path: Path) -> None:
    run = read(tmp_path, line_of(make_record(), schema_version="one"))
    assert len(run.records) == 1
    assert "schema_version" in run.damage[0]


def test_upgrades_run_one_after_another() -> None:
    """The mechanism, with two made-up versions before today's."""

    def to_0(raw: dict[str, Any]) -> dict[str, Any]:
        return {**raw, "status": raw.pop("state")}

    old = json.loads(GOOD)
    old["state"] = old.pop("status")
    old["schema_version"] = 1
    damage: list[str] = []
    record = salvage.to_record(old, damage, upgrades={1: to_0})
    assert record is not None
    assert record.status == "ok"
    assert damage == []


def test_stored_file_of_version_1_is_read_for_ever() -> None:
    run = store.load_run(DATA / "run_v1")
    assert run.damage == []
    assert [record.status for record in run.records] == ["ok", "ok", "skipped", "failed"]
    assert run.plan is not None
    assert [case.mode for case in run.plan.cases] == [r.case.mode for r in run.records]
    eager, inductor, skipped, failed = run.records
    assert eager.latency is not None
    assert inductor.latency is not None
    assert eager.latency.median_s == pytest.approx(0.002)
    assert inductor.compile == CompileCost(cold_s=4.5, warm_s=1.25, stages={"backend": 3.0})
    assert skipped.failure is not None
    assert "torch_npu" in skipped.failure.reason
    assert failed.failure is not None
    assert (failed.failure.phase, failed.accuracy is not None) == ("check", True)
    assert len(run.samples) == 2


def test_damaged_plan_is_named(tmp_path: Path) -> None:
    writer = store.RunWriter.create(tmp_path, make_plan())
    writer.append(make_record())
    (writer.run_dir / "plan.json").write_bytes(b'{"run_id": 7')
    run = store.load_run(writer.run_dir)
    assert run.plan is None
    assert run.run_id == RUN_ID
    assert run.damage[0].startswith("plan.json: not readable")


def test_no_run_at_all(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no run in"):
        store.load_run(tmp_path)


# ---- finding ------------------------------------------------------------------------------

RUNS = [
    "20260101T000000Z_aaaaaaa_0001",
    "20260102T000000Z_bbbbbbb_0001",
    "20260102T000000Z_bbbbbbb_0002",
]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    for run_id in RUNS:
        store.RunWriter.create(tmp_path, make_plan(run_id)).append(make_record())
    (tmp_path / "baselines.json").write_text("{}")
    (tmp_path / "other-folder").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("latest", 2),
        ("previous", 1),
        (RUNS[0], 0),
        ("20260101", 0),
        ("20260102T000000Z_bbbbbbb_0002", 2),
    ],
)
def test_find_run(results: Path, name: str, expected: int) -> None:
    assert store.find_run(results, name) == results / RUNS[expected]


def test_find_run_by_folder(results: Path) -> None:
    assert store.find_run("elsewhere", str(results / RUNS[1])) == results / RUNS[1]


def test_order_is_that_of_run_ids_and_not_of_file_times(results: Path) -> None:
    """Case 40: a clock that steps back, or a copy of the folder, flips nothing."""
    os.utime(results / RUNS[0])
    assert store.find_run(results, "latest") == results / RUNS[2]


def test_ambiguous_and_unknown_names_say_what_is_there(results: Path) -> None:
    with pytest.raises(StoreError, match="begins 2 runs"):
        store.find_run(results, "20260102")
    with pytest.raises(StoreError, match="did you mean 'latest'"):
        store.find_run(results, "lates")
    with pytest.raises(
        StoreError, match=r"(?s)no run '2027'.*newest: 20260102T000000Z_bbbbbbb_0002"
    ):
        store.find_run(results, "2027")
    with pytest.raises(StoreError, match="no run ''"):
        store.find_run(results, "")


def test_latest_of_nothing(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no run in"):
        store.find_run(tmp_path / "absent", "latest")


def test_run_from_the_future_is_warned_about(results: Path) -> None:
    now = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
    assert store.load_run(results / RUNS[0], now=now).warnings == []
    (warning,) = store.load_run(results / RUNS[2], now=now).warnings
    assert "dated in the future" in warning


# ---- documentation --------------------------------------------------------------------------


def test_every_field_is_documented() -> None:
    text = (Path(__file__).parents[1] / "docs" / "results-format.md").read_text(encoding="utf-8")
    fields = [*Record.__struct_fields__, *Latency.__struct_fields__]
    assert [name for name in fields if f"`{name}`" not in text] == []
