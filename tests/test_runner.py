"""The loop over cases: rows, their order on disk, interrupts, a full disk, resuming.

Covers cases 49, 52, 55, 58, 62, 64, 65 and the full disk of 67, with a worker without torch.
"""

from __future__ import annotations

import functools
import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from parent_side import HERE, SETTINGS, case, gone

from benchbench.assemble import exit_code, rerun_command, unmeasured
from benchbench.errors import StoreError
from benchbench.process import Launcher
from benchbench.progress import Progress
from benchbench.records import Case, ComparisonPolicy, Limits, Plan, Record, Status, TimingPolicy
from benchbench.runner import RunResult, run_plan
from benchbench.store import RunWriter, load_run

RUN_ID = "20260101T000000Z_nogit_0000"
MAKE = functools.partial(Launcher, entry="fake_worker", preload=())


def plan(*cases: Case, **options: Any) -> Plan:
    given = {
        "accuracy": False,
        "settings": SETTINGS,
        "limits": Limits(sample_s=20),
        "comparison": ComparisonPolicy(name="quick", looks=()),
        **options,
    }
    return Plan(run_id=RUN_ID, cases=list(cases), **given)


def run(wanted: Plan, folder: Path, resume: str | None = None) -> RunResult:
    return run_plan(
        wanted,
        results_dir=folder,
        progress=Progress(quiet=True),
        resume=resume,
        make_launcher=MAKE,
    )


def test_every_case_is_a_row_and_a_bad_one_hurts_no_other(tmp_path: Path) -> None:
    cases = [
        case("first"),
        case("dead", does="signal", signal=9),
        case("left", does="exit", code=0),
        case("wrong", failure={"phase": "check", "kind": "WrongOutput", "reason": "differs"}),
        case("full", failure={"phase": "load", "kind": "x", "reason": "y"}, status="oom"),
        case("absent"),
        case("last"),
    ]
    result = run(plan(*cases, skipped={cases[5].key: "no such device"}), tmp_path)
    statuses = [record.status for record in result.records]
    assert statuses == ["ok", "crashed", "crashed", "failed", "oom", "skipped", "ok"]
    assert result.exit_code == 1
    stored = load_run(result.run_dir)
    assert stored.damage == []
    assert stored.records == result.records
    assert sorted(p.name for p in result.run_dir.iterdir()) == [
        "logs",
        "plan.json",
        "records.jsonl",
        "samples.parquet",
    ]


def test_a_good_row_carries_its_numbers(tmp_path: Path) -> None:
    record = run(plan(case(ns=2_000_000)), tmp_path).records[0]
    assert record.latency is not None
    assert record.latency.median_s == pytest.approx(0.0020005)
    assert record.throughput is not None
    assert record.throughput.value == pytest.approx(1 / 0.0020005)
    assert record.compile is None
    assert record.environment == {"worker": "measure", "start": "forked"}
    assert record.policy == TimingPolicy()
    assert record.settings == SETTINGS


def test_a_failed_row_says_what_to_do_next(tmp_path: Path) -> None:
    wanted = plan(
        case("llama", "inductor", does="signal", signal=11),
        overrides=["model=[llama,bert]", "mode=[eager,inductor]", "batch_size=[1,8]"],
    )
    result = run(wanted, tmp_path)
    failure = result.records[0].failure
    assert failure is not None
    assert failure.log is not None
    assert (result.run_dir / failure.log).is_file()
    assert not Path(failure.log).is_absolute()
    assert failure.rerun == (
        "python -m benchbench model=llama mode=inductor batch_size=1 baseline=null"
    )
    assert result.records[0].environment["packages"]


class Watcher(Progress):
    """Counts the lines on disk when each case begins."""

    def __init__(self, folder: Path) -> None:
        super().__init__(quiet=True)
        self._folder = folder
        self.lines: list[int] = []

    def case(self, index: int, count: int, case: Case) -> None:
        files = list(self._folder.glob("*/records.jsonl"))
        self.lines.append(len(files[0].read_bytes().splitlines()) if files else 0)


def test_each_case_is_on_disk_before_the_next_begins(tmp_path: Path) -> None:
    watcher = Watcher(tmp_path)
    wanted = plan(case("a"), case("b", does="exit", code=1), case("c"))
    run_plan(wanted, results_dir=tmp_path, progress=watcher, make_launcher=MAKE)
    assert watcher.lines == [0, 1, 2]


def test_groups_are_spread_over_devices_and_stay_on_one(tmp_path: Path) -> None:
    """Never two cases on one device at a time; a group's cases all on the same one."""
    names = ["a", "b", "c", "d"]
    cases = [case(name, mode) for name in names for mode in ("eager", "inductor")]
    result = run(plan(*cases, device_ids=[2, 5]), tmp_path)
    assert [record.case_key for record in result.records] == [one.key for one in cases]
    used: dict[str, set[int]] = {}
    for record in result.records:
        used.setdefault(record.case.group, set()).add(record.case.device_index)
    assert all(len(devices) == 1 for devices in used.values())
    assert set.union(*used.values()) == {2, 5}
    assert len(load_run(result.run_dir).records) == len(cases)


def test_names_of_cases_are_never_paths(tmp_path: Path) -> None:
    """Case 64: slashes, dots, very long and Chinese names."""
    names = ["hf/llama-2-7b", "..", "/tmp/x", "模" * 120, "end ", "a:b", "x" * 400]
    result = run(plan(*map(case, names)), tmp_path / "results")
    assert [record.status for record in result.records] == ["ok"] * len(names)
    assert len(list((result.run_dir / "logs").glob("*.log"))) == len(names)
    assert [p.name for p in tmp_path.iterdir()] == ["results"]


# ---- references, warm compile -----------------------------------------------------------------


def jobs_of(result: RunResult) -> list[str]:
    files = (result.run_dir / "logs").glob("*.job.json")
    return sorted(msgspec.json.decode(file.read_bytes())["kind"] for file in files)


def test_a_group_has_one_reference_for_all_its_candidates(tmp_path: Path) -> None:
    wanted = plan(case("a"), case("a", "inductor"), case("a", "other"), accuracy=True)
    assert jobs_of(run(wanted, tmp_path)) == ["measure"] * 3 + ["reference"]


@pytest.mark.parametrize(
    "options",
    [{"accuracy": False}, {"skipped": {case("a", "inductor").key: "absent"}, "accuracy": True}],
)
def test_no_reference_is_made_for_nothing(tmp_path: Path, options: dict[str, Any]) -> None:
    result = run(plan(case("a"), case("a", "inductor"), **options), tmp_path)
    assert "reference" not in jobs_of(result)


def test_a_reference_that_fails_costs_the_verdict_only(tmp_path: Path) -> None:
    wanted = plan(case("a", "inductor", does="exit", code=0, only="reference"), accuracy=True)
    record = run(wanted, tmp_path).records[0]
    assert record.status == "ok"
    assert record.accuracy is not None
    assert record.accuracy.verdict == "not_comparable"
    assert "exited with code 0 without a result" in (record.accuracy.reason or "")


def test_compiling_is_charged_without_the_call(tmp_path: Path) -> None:
    wanted = plan(
        case("a", ns=4_000_000),
        case("a", "inductor", ns=2_000_000, cache="cold", compile_s=0.5),
        accuracy=True,
    )
    record = run(wanted, tmp_path).records[1]
    assert record.compile is not None
    assert record.compile.cold_s == pytest.approx(0.5 - 0.0020005)
    assert record.compile.warm_s is not None
    assert isinstance(record.break_even_calls, float)
    assert 200 < record.break_even_calls < 300


@pytest.mark.parametrize(
    ("options", "policy", "word"),
    [
        ({"cache": "bypassed"}, TimingPolicy(), "not cached"),
        ({"cache": "none"}, TimingPolicy(), "not cached"),
        ({"cache": "cold"}, TimingPolicy(warm_compile=False), "skipped"),
        ({"cache": "cold", "only": "warm_compile", "at": "load", "does": "exit", "code": 2},
         TimingPolicy(), "failed"),
    ],
)  # fmt: skip
def test_no_warm_figure_is_a_word(
    tmp_path: Path, options: dict[str, Any], policy: TimingPolicy, word: str
) -> None:
    record = run(plan(case("a", "inductor", **options), policy=policy), tmp_path).records[0]
    assert record.status == "ok"
    assert record.compile is not None
    assert record.compile.warm_s is None
    assert record.compile.warm_word == word


# ---- interrupts -------------------------------------------------------------------------------


def drive(wanted: Plan, folder: Path, *more: str) -> subprocess.Popen[bytes]:
    file = folder / "wanted.json"
    file.write_bytes(msgspec.json.encode(wanted))
    path = os.pathsep.join([str(HERE), str(HERE.parent)])
    return subprocess.Popen(
        [sys.executable, str(HERE / "drive_run.py"), str(folder / "results"), str(file), *more],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def five_cases() -> Plan:
    return plan(case("one"), case("two"), case("three", does="hang"), case("four"), case("five"))


def wait_for(folder: Path, pattern: str, text: bytes) -> None:
    deadline = time.monotonic() + 30
    while not any(text in file.read_bytes() for file in folder.glob(pattern)):
        assert time.monotonic() < deadline, f"no {text!r} in {pattern}"
        time.sleep(0.02)


def stored(folder: Path) -> list[Record]:
    (run_dir,) = (folder / "results").iterdir()
    run = load_run(run_dir)
    assert run.damage == []
    assert not (run_dir / "tmp").exists()
    return run.records


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_keeps_what_is_done(tmp_path: Path, number: int, code: int) -> None:
    """Case 55: two rows kept, one interrupted, two not run; the report is still made."""
    driver = drive(five_cases(), tmp_path)
    wait_for(tmp_path, "results/*/logs/three*.log", b"hanging")
    driver.send_signal(number)
    out, _ = driver.communicate(timeout=30)
    assert driver.returncode == code
    assert out == b"report\n"
    records = stored(tmp_path)
    assert [record.status for record in records] == [
        "ok",
        "ok",
        "interrupted",
        "not_run",
        "not_run",
    ]
    assert records[2].failure is not None
    assert records[2].failure.reason.endswith("in phase sample")
    assert records[3].failure is not None
    assert records[3].failure.rerun is not None
    assert gone("fake_worker", str(tmp_path))


def test_a_second_interrupt_quits_at_once(tmp_path: Path) -> None:
    driver = drive(five_cases(), tmp_path)
    wait_for(tmp_path, "results/*/logs/three*.log", b"hanging")
    driver.send_signal(signal.SIGINT)
    time.sleep(0.3)  # the worker ignores SIGTERM, so its two seconds of grace are running
    started = time.monotonic()
    driver.send_signal(signal.SIGINT)
    out, _ = driver.communicate(timeout=30)
    assert driver.returncode == 130
    assert out == b""
    assert time.monotonic() - started < 1.7
    assert [record.status for record in stored(tmp_path)] == ["ok", "ok"]
    assert gone("fake_worker", str(tmp_path))


# ---- disks ------------------------------------------------------------------------------------


def test_a_full_disk_is_one_clear_error(tmp_path: Path) -> None:
    """Case 67: the rows before it are intact."""
    wanted = plan(*(case(f"case {number}") for number in range(30)))
    driver = drive(wanted, tmp_path, "24000")
    _, err = driver.communicate(timeout=60)
    assert driver.returncode == 2
    lines = [line for line in err.decode().splitlines() if not line.startswith("[")]
    assert lines[0].startswith("error: cannot write")
    assert "Traceback" not in err.decode()
    kept = stored(tmp_path)
    assert 0 < len(kept) < 30
    assert {record.status for record in kept} == {"ok"}


def test_a_results_folder_that_cannot_be_made_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("a file")
    with pytest.raises(StoreError, match="cannot create"):
        run(plan(case()), tmp_path / "results")


def test_a_failing_write_ends_the_run_and_its_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise StoreError("cannot write: no space left")

    monkeypatch.setattr(RunWriter, "append", refuse)
    with pytest.raises(StoreError, match="no space left"):
        run(plan(case("a"), case("b")), tmp_path)
    assert not list(tmp_path.glob("*/tmp"))
    assert gone("fake_worker", str(tmp_path))


def test_runs_of_the_same_second_have_folders_of_their_own(tmp_path: Path) -> None:
    """Case 62: eight at once."""
    made: list[RunResult] = []
    threads = [
        threading.Thread(target=lambda: made.append(run(plan(case("a")), tmp_path)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({result.run_dir for result in made}) == 8
    for result in made:
        assert [record.status for record in result.records] == ["ok"]
        assert {record.run_id for record in result.records} == {result.run_dir.name}


# ---- resuming ---------------------------------------------------------------------------------


def sources_of(file: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest()}


@pytest.fixture
def model_file(tmp_path: Path) -> Path:
    file = tmp_path / "models" / "mine.py"
    file.parent.mkdir()
    file.write_text("SCALE = 1\n")
    return file


def resumable(model_file: Path, **options: Any) -> Plan:
    good = case("good", sources=sources_of(model_file))
    bad = case("bad", does="exit", code=1, sources=sources_of(model_file))
    return plan(good, bad, search_paths=[str(model_file.parent)], **options)


def test_resuming_runs_only_what_failed(tmp_path: Path, model_file: Path) -> None:
    """Case 65: a failed try is no result; a good row says where it comes from."""
    first = run(resumable(model_file), tmp_path / "results")
    second = run(resumable(model_file), tmp_path / "results", resume="latest")
    good, bad = second.records
    assert (good.from_run, bad.from_run) == (first.run_dir.name, None)
    assert good.latency == first.records[0].latency
    assert "RESUMED" in good.caveats
    assert bad.status == "crashed"
    third = run(resumable(model_file), tmp_path / "results", resume=second.run_dir.name)
    assert third.records[0].from_run == first.run_dir.name
    assert third.records[0].caveats.count("RESUMED") == 1
    assert load_run(third.run_dir).samples.keys() == load_run(first.run_dir).samples.keys()


def test_resuming_sees_changed_sources(tmp_path: Path, model_file: Path) -> None:
    before = resumable(model_file)
    run(before, tmp_path / "results")
    model_file.write_text("SCALE = 2\n")
    second = run(before, tmp_path / "results", resume="latest")
    assert second.records[0].from_run is None


@pytest.mark.parametrize(
    "change",
    [
        {"policy": TimingPolicy(min_samples=30)},
        {"settings": msgspec.structs.replace(SETTINGS, threads=2)},
    ],
)
def test_resuming_sees_changed_settings(
    tmp_path: Path, model_file: Path, change: dict[str, Any]
) -> None:
    run(resumable(model_file), tmp_path / "results")
    second = run(resumable(model_file, **change), tmp_path / "results", resume="latest")
    assert second.records[0].from_run is None


def test_resuming_what_is_not_there_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="nosuch"):
        run(plan(case()), tmp_path, resume="nosuch")
    assert list(tmp_path.iterdir()) == []


# ---- pure parts -------------------------------------------------------------------------------


def rows(*statuses: Status) -> list[Record]:
    return [unmeasured(plan(), case(), status, "why") for status in statuses]


@pytest.mark.parametrize(
    ("statuses", "interrupted", "code"),
    [
        (["ok"], None, 0),
        (["ok", "skipped"], None, 0),
        (["skipped"], None, 4),
        ([], None, 4),
        (["ok", "failed"], None, 1),
        (["skipped", "crashed"], None, 1),
        (["ok", "timeout"], None, 1),
        (["ok", "oom"], None, 1),
        (["ok", "interrupted", "not_run"], signal.SIGINT, 130),
        (["ok", "not_run"], signal.SIGTERM, 143),
        (["ok"], signal.SIGINT, 130),
    ],
)
def test_exit_codes(statuses: list[Status], interrupted: int | None, code: int) -> None:
    assert exit_code(rows(*statuses), interrupted) == code


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ([], "model=llama mode=inductor baseline=null"),
        (
            ["device=cpu", "size=full"],
            "device=cpu size=full model=llama mode=inductor baseline=null",
        ),
        (["mode=inductor", "resume=latest"], "model=llama mode=inductor baseline=null"),
        (
            ["mode.inductor.options.x=1", "mode.eager.y=2", "model.bert.size=full"],
            "mode.inductor.options.x=1 model=llama mode=inductor baseline=null",
        ),
        (
            ["model.llama._target_=my file.py:build"],
            "'model.llama._target_=my file.py:build' mode=inductor baseline=null",
        ),
        (
            ["seq_len=[64,128]", "dtype=[float16,float32]"],
            "model=llama mode=inductor seq_len=128 dtype=float32 baseline=null",
        ),
    ],
)
def test_the_command_that_measures_one_case_again(overrides: list[str], words: str) -> None:
    asked = msgspec.structs.replace(case("llama", "inductor"), seq_len=128)
    assert rerun_command(plan(overrides=overrides), asked) == f"python -m benchbench {words}"
