"""The worker, from a job file to an outcome file, in real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from worker_side import QUICK, Bench, make_job

from benchbench.ending import judge
from benchbench.process import Launcher
from benchbench.records import PHASES, Failure, Limits, Measurement, Outcome, Settings


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    with Launcher() as made:
        yield made


@pytest.fixture
def bench(launcher: Launcher, tmp_path: Path) -> Bench:
    return Bench(launcher, tmp_path)


def failure(bench: Bench, model: str, **more: object) -> tuple[str, Failure]:
    end = bench.run(make_job(model, **more))
    assert end.outcome is not None, bench.log()
    assert end.outcome.failure is not None
    assert end.returncode == 0
    return end.outcome.status, end.outcome.failure


def sample_medians_ms(measured: Measurement) -> float:
    (taken,) = [one for one in measured.samples if one.phase == "sample"]
    middle = sorted(taken.duration_ns)[len(taken.duration_ns) // 2]
    return middle / taken.calls_per_sample / 1e6


def test_a_case_is_measured_in_the_order_of_its_phases(bench: Bench) -> None:
    end = bench.run(make_job("good"))
    assert end.outcome is not None
    measured = end.outcome.measurement
    assert measured is not None
    assert list(measured.phase_s) == list(PHASES)
    assert measured.phase_cpu_s.keys() == measured.phase_s.keys()
    assert (measured.items, measured.item) == (3, "tokens")
    assert [one.phase for one in measured.samples][-1] == "sample"
    assert measured.samples[-1].calls_per_sample > 1  # far shorter than 200 microseconds
    assert all(type(value) is int for value in measured.samples[-1].duration_ns)
    assert measured.graph is not None
    assert measured.graph.effective == "eager"
    assert measured.memory is not None
    assert measured.memory.weights_bytes == 16
    assert measured.clock_read_s
    assert measured.overhead_s
    assert "worker_models.py" in measured.model_sources
    assert measured.weights_hash


def test_phases_are_in_the_file_before_they_are_entered(bench: Bench) -> None:
    """Case 49: a worker that is killed leaves its phase behind."""
    end = bench.run(make_job("killed"))
    assert end.outcome is None
    assert end.phase == "compile"
    assert judge(end).status == "crashed"
    lines = Path(f"{bench.outcome_path}.phases").read_text().splitlines()
    entered = [json.loads(line)["phase"] for line in lines]
    assert list(dict.fromkeys(entered)) == ["load", "inputs", "converters", "compile"]


def test_the_first_call_is_the_compile_phase_and_in_no_sample(bench: Bench) -> None:
    measured = bench.measure("first_call_sleeps")
    assert measured.phase_s["compile"] >= 0.2
    longest = max(max(one.duration_ns) for one in measured.samples)
    assert longest < 0.2e9


@pytest.mark.parametrize(
    ("model", "phase", "kind", "reason"),
    [
        ("exits_while_built", "load", "SystemExit", "model called sys.exit(0)"),
        ("exits_in_forward", "compile", "SystemExit", "model called sys.exit(3)"),
        (
            "raises_keyboard_interrupt",
            "compile",
            "KeyboardInterrupt",
            "model raised KeyboardInterrupt",
        ),
        ("unprintable_error", "compile", "UnprintableError", "str() failed"),
    ],
)
def test_whatever_a_model_raises_is_one_line(
    bench: Bench, model: str, phase: str, kind: str, reason: str
) -> None:
    """Case 58: ``sys.exit(0)`` in a model is a failed row, not the end of the run."""
    status, found = failure(bench, model)
    assert (status, found.phase, found.kind) == ("failed", phase, kind)
    assert reason in found.reason
    assert "worker_models.py" in found.reason
    assert "Traceback" in bench.log()


def test_a_message_of_megabytes_is_cut_and_its_place_kept(bench: Bench) -> None:
    status, found = failure(bench, "long_error")
    assert status == "failed"
    assert found.reason.startswith("first / line")
    assert len(found.reason) <= 300
    assert "\n" not in found.reason
    assert "worker_models.py" in found.reason


@pytest.mark.parametrize("model", ["memory_error", "too_large"])
def test_out_of_memory_is_a_status_of_its_own(bench: Bench, model: str) -> None:
    status, found = failure(bench, model)
    assert (status, found.phase) == ("oom", "compile")
    assert found.hint


def test_a_failure_keeps_what_was_known(bench: Bench) -> None:
    end = bench.run(make_job("exits_in_forward"))
    assert end.outcome is not None
    assert end.outcome.partial is not None
    assert end.outcome.partial.weights_hash
    assert end.outcome.partial.phase_s.keys() == {"load", "inputs", "converters", "compile"}
    assert end.outcome.environment["torch"]


def test_what_a_model_prints_is_never_taken_for_the_result(bench: Bench) -> None:
    """Case 53: binary garbage, a line like our own result, bytes in another encoding."""
    measured = bench.measure("prints_garbage")
    assert measured.samples
    assert bytes(range(256)) in bench.log_path.read_bytes()


def test_a_crash_in_the_warm_up_leaves_the_stack_in_the_log(bench: Bench) -> None:
    """Case 52: killed by SIGSEGV, with its phase."""
    end = bench.run(make_job("segfault_in_warmup"))
    judged = judge(end)
    assert judged.failure is not None
    assert (judged.status, judged.failure.kind) == ("crashed", "SIGSEGV")
    assert end.phase == "warmup"
    assert "in forward" in bench.log()


def test_a_crash_at_exit_keeps_the_result(bench: Bench) -> None:
    """Case 52: the outcome is on disk before exit handlers run, and they do run."""
    judged = judge(bench.run(make_job("kills_itself_at_exit")))
    assert judged.status == "ok"
    assert judged.caveats == ["CRASHED_AT_EXIT"]


def test_leaving_without_a_word_is_no_success(bench: Bench) -> None:
    assert judge(bench.run(make_job("leaves_without_a_word"))).status == "crashed"


def test_a_hang_leaves_its_stack(bench: Bench) -> None:
    """Case 25: SIGUSR1 dumps the stacks; the limit of the phase ends it."""
    end = bench.run(make_job("hangs", limits=Limits(compile_s=1.0)))
    assert (judge(end).status, end.phase) == ("timeout", "compile")
    assert "worker_models.py" in bench.log()


def test_late_settling_does_not_move_the_median(bench: Bench) -> None:
    """Case 37: slow first calls are warm-up."""
    measured = bench.measure(
        "settles_late", policy=msgspec.structs.replace(QUICK, max_time_s=0.6, min_time_s=0.3)
    )
    assert sample_medians_ms(measured) < 10


def test_a_slow_model_is_not_called_a_thousand_times(bench: Bench) -> None:
    """Case 37: the time is a budget for slow models too; a few samples are taken all the same."""
    measured = bench.measure("slow")
    assert sum(len(one.duration_ns) for one in measured.samples) <= 12
    assert len(measured.samples[-1].duration_ns) == 3
    assert measured.stop_reason == "max_time"


def test_one_enormous_sample_is_kept_and_does_not_count(bench: Bench) -> None:
    """Case 44."""
    policy = msgspec.structs.replace(QUICK, min_samples=90, max_time_s=3.0)
    measured = bench.measure("one_enormous_sample", policy=policy)
    everything = [value for one in measured.samples for value in one.duration_ns]
    assert max(everything) >= 0.4e9
    assert sample_medians_ms(measured) < 20


def test_growing_memory_is_flagged(bench: Bench) -> None:
    """Case 50: about 2 MiB per call, tied to the number of calls."""
    measured = bench.measure("grows")
    assert "MEMORY_GROWS" in measured.caveats
    assert measured.memory is not None
    assert measured.memory.growth_bytes_per_call == pytest.approx(2 << 20, rel=0.25)
    assert any("MiB per call" in note and "sampled calls" in note for note in measured.notes)


def test_garbage_in_cycles_is_collected_between_samples(bench: Bench) -> None:
    """The collector is off while samples are taken, but not for good."""
    measured = bench.measure("makes_cycles")
    assert "MEMORY_GROWS" not in measured.caveats


def test_a_model_that_remembers_results_is_flagged(bench: Bench) -> None:
    """Case 35: known inputs 20 times quicker than new ones."""
    assert "MEMOISED" in bench.measure("memoises").caveats


def test_alternating_inputs_defeat_a_memory_of_the_last_one(bench: Bench) -> None:
    """Case 35: a model that remembers its last input works in every timed call."""
    measured = bench.measure("memoises_last")
    assert "MEMOISED" not in measured.caveats
    assert sample_medians_ms(measured) >= 5


def test_lazy_outputs_are_read_inside_the_span(bench: Bench) -> None:
    """Case 38: work that is put off until the output is read belongs to the call."""
    measured = bench.measure("lazy")
    assert sample_medians_ms(measured) >= 10
    assert any("lazy" in note for note in measured.notes)


def test_a_model_with_room_for_few_calls_is_reset_in_between(bench: Bench) -> None:
    measured = bench.measure("decoder")
    assert all(one.calls_per_sample <= 6 for one in measured.samples)
    assert sum(len(one.duration_ns) for one in measured.samples) > 6


@pytest.mark.parametrize("grad_mode", ["no_grad", "inference_mode"])
def test_modes_start_from_the_same_fresh_state(bench: Bench, grad_mode: str) -> None:
    """Case 29: a buffer that counts calls agrees, as no object is shared; nothing recompiles."""
    end = bench.checked("counting", mode="aot_eager", settings=Settings(grad_mode=grad_mode))
    assert end.outcome is not None
    assert end.outcome.measurement is not None, end.outcome.failure
    assert end.outcome.measurement.accuracy is not None
    assert end.outcome.measurement.accuracy.verdict == "pass"
    assert end.outcome.measurement.accuracy.compared_calls == 4
    assert end.outcome.measurement.graph is not None
    assert end.outcome.measurement.graph.recompiles == []


def test_wrong_outputs_fail_in_the_check_and_are_not_timed(bench: Bench) -> None:
    """Case 26: right in the first call, wrong in the second."""
    end = bench.checked("good", mode="aot_eager", stand_in="wrong_backend")
    assert end.outcome is not None
    assert end.outcome.failure is not None
    assert (end.outcome.failure.phase, end.outcome.failure.kind) == ("check", "WrongOutput")
    partial = end.outcome.partial
    assert partial is not None
    assert partial.accuracy is not None
    assert partial.accuracy.verdict == "fail"
    assert partial.samples == []
    assert partial.graph is not None
    assert partial.graph.graphs == 1


def test_a_backend_that_fails_is_named_by_its_own_error(bench: Bench) -> None:
    """The wrapper that torch puts around it says nothing."""
    status, found = failure(bench, "good", mode="aot_eager", stand_in="failing_backend")
    assert (status, found.phase, found.kind) == ("failed", "compile", "NotImplementedError")
    assert "torch.ops.aten.add.Tensor" in found.reason


def test_the_backend_s_memory_is_in_the_compile_peak_alone(bench: Bench) -> None:
    """Case 47: 200 MiB while compiling, given back afterwards."""
    measured = bench.measure("good", mode="aot_eager", stand_in="hungry_backend")
    assert measured.memory is not None
    assert measured.memory.compile_peak_bytes is not None
    assert measured.memory.steady_peak_bytes is not None
    assert measured.memory.compile_peak_bytes >= 200 << 20
    assert measured.memory.steady_peak_bytes < 100 << 20


def test_every_mode_holds_one_copy_of_the_weights(bench: Bench) -> None:
    """Case 46."""
    weights = 64 << 20
    for mode in ("eager", "aot_eager"):
        end = bench.checked("heavy", mode=mode)
        assert end.outcome is not None
        measured = end.outcome.measurement
        assert measured is not None
        assert measured.memory is not None
        assert measured.memory.weights_bytes == weights
        assert measured.memory.steady_peak_bytes is not None
        assert 0.9 * weights < measured.memory.steady_peak_bytes < 1.9 * weights


@pytest.mark.parametrize(
    ("fullgraph", "kind"), [(True, "FailOnRecompileLimitHit"), (False, "Fallback")]
)
def test_a_recompile_per_call_is_no_timing(bench: Bench, fullgraph: bool, kind: str) -> None:
    """Case 14: eight recompiles, then eager; the row fails and names the reason."""
    end = bench.run(make_job("steps", mode="aot_eager", options={"fullgraph": fullgraph}))
    assert end.outcome is not None
    found = end.outcome.failure
    assert found is not None
    assert found.kind == kind
    assert found.phase in {"warmup", "sample"}
    assert end.outcome.partial is not None
    assert end.outcome.partial.graph is not None
    assert any("step" in text for text in end.outcome.partial.graph.recompiles)
    assert "step" in found.reason
    assert "recompile" in found.reason


def test_the_warm_compile_job_stops_after_compiling(bench: Bench) -> None:
    measured = bench.measure("good", kind="warm_compile", mode="aot_eager")
    assert "compile" in measured.phase_s
    assert "sample" not in measured.phase_s
    assert measured.samples == []


def test_thread_counts_are_recorded_apart(bench: Bench) -> None:
    """Case 41: intra-op threads and compile workers are two things."""
    measured = bench.measure("good", settings=Settings(threads=1, compile_threads=2))
    assert measured.environment["threads"] == {"intra_op": 1, "inter_op": 1, "compile": 2}


@pytest.mark.slow
def test_cold_and_warm_are_proved_by_the_cache_counters(bench: Bench, tmp_path: Path) -> None:
    """Case 43: a cold compile in an empty folder, a warm one in another process."""
    cache = tmp_path / "cache"
    cache.mkdir()
    environment = {"TORCHINDUCTOR_VEC_ISA_OK": "1"}  # the probes alone take seconds
    settings = Settings(environment=environment)
    arguments = {"mode": "inductor", "cache_dir": str(cache), "settings": settings}
    cold = bench.measure("good", **arguments)
    assert cold.cache == "cold"
    assert "WARM_CACHE" not in cold.caveats
    assert {"dynamo", "inductor"} <= cold.compile_stages_s.keys()
    warm = bench.measure("good", kind="warm_compile", **arguments)
    assert warm.cache == "warm"
    assert warm.phase_s["compile"] < cold.phase_s["compile"]
    again = bench.measure("good", **arguments)
    assert "WARM_CACHE" in again.caveats


def test_by_hand_it_gives_itself_the_environment_of_a_run(tmp_path: Path) -> None:
    """``python -m benchbench.worker JOB OUTCOME`` measures as a run does."""
    job, outcome = tmp_path / "job.json", tmp_path / "outcome.json"
    job.write_bytes(msgspec.json.encode(make_job("leaves_a_thread_behind")))
    variables = {k: v for k, v in os.environ.items() if k not in {"OMP_NUM_THREADS"}}
    variables |= {"OMP_WAIT_POLICY": "ACTIVE", "MY_SECRET": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "benchbench.worker", str(job), str(outcome)],
        env=variables,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    read = msgspec.json.decode(outcome.read_bytes(), type=Outcome)
    assert read.measurement is not None, read.failure
    stored = read.measurement.environment["variables"]
    assert stored["OMP_NUM_THREADS"] == "1"
    assert stored["MALLOC_TRIM_THRESHOLD_"] == "4294967296"
    assert "SETTING_SPOILS" in read.measurement.caveats
    assert any("OMP_WAIT_POLICY" in note for note in read.measurement.notes)
    assert b"MY_SECRET" not in outcome.read_bytes()


@pytest.mark.parametrize("arguments", [[], ["absent.json", "outcome.json"]])
def test_wrong_use_by_hand_says_so(tmp_path: Path, arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchbench.worker", *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "usage" in done.stderr or "cannot read the job" in done.stderr


def test_every_op_that_keeps_a_model_out_of_the_graph_is_named(bench: Bench) -> None:
    """Case 1: ops made by ``torch.library.custom_op`` without a Meta function, each with calls."""
    _, found = failure(bench, "without_metas", mode="aot_eager")
    assert (found.phase, found.kind) == ("compile", "NotInGraph")
    assert "bbtest.gap_a.default (2 calls), bbtest.gap_b.default (1 call)" in found.reason
