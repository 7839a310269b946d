"""A worker without torch for the tests of the parent: it does what its case's options say."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from benchbench.records import (
    AccuracyResult,
    Failure,
    GraphEvidence,
    Job,
    Measurement,
    Outcome,
    Samples,
)

PHASES = ["load", "inputs", "converters", "compile", "check", "warmup", "sample", "finish"]


def main(argv: list[str]) -> int:
    job = msgspec.json.decode(Path(argv[0]).read_bytes(), type=Job)
    outcome_path = Path(argv[1])
    behaviour = dict(job.case.model_options)
    if job.kind != behaviour.get("only", job.kind):
        behaviour.pop("does")
    if job.kind == "reference" and job.reference_path:
        Path(job.reference_path).write_bytes(b"reference")
    for phase in PHASES:
        enter(outcome_path, phase)
        if behaviour.get("at", "sample") == phase:
            act(behaviour, outcome_path)
    failure = behaviour.get("failure")
    if failure:
        outcome = Outcome(status=behaviour.get("status", "failed"), failure=Failure(**failure))
    else:
        outcome = Outcome(measurement=measurement(job, behaviour))
    write(outcome_path, msgspec.json.encode(outcome))
    if behaviour.get("after") == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    return int(behaviour.get("exit", 0))


def enter(outcome_path: Path, phase: str) -> None:
    line = msgspec.json.encode({"phase": phase, "time_ns": time.monotonic_ns()}) + b"\n"
    with outcome_path.with_name(outcome_path.name + ".phases").open("ab") as file:
        file.write(line)
    fd = os.environ.get("BENCHBENCH_PHASE_FD")
    if fd:
        os.write(int(fd), line)


def act(behaviour: dict, outcome_path: Path) -> None:
    print(f"pid {os.getpid()} of {os.getppid()}")
    for name in behaviour.get("show", []):
        print(f"{name}={os.environ.get(name)}")
    if does := behaviour.get("does"):
        ACTIONS[does](behaviour, outcome_path)


def send_signal(behaviour: dict, outcome_path: Path) -> None:
    os.kill(os.getpid(), behaviour["signal"])


def leave(behaviour: dict, outcome_path: Path) -> None:
    os._exit(behaviour["code"])


def sleep(behaviour: dict, outcome_path: Path) -> None:
    time.sleep(behaviour["seconds"])


def hang(behaviour: dict, outcome_path: Path) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, lambda *_: print("stack asked for", flush=True))
    print("hanging", flush=True)
    while True:
        time.sleep(60)


def leave_children(behaviour: dict, outcome_path: Path) -> None:
    subprocess.Popen(["sleep", "7261"])
    subprocess.Popen(["sleep", "7262"], start_new_session=True)


def leave_garbage(behaviour: dict, outcome_path: Path) -> None:
    outcome_path.write_bytes(b'{"measurement": {"phase_s": {"load": 1.0}, "sam')
    os._exit(0)


def make_noise(behaviour: dict, outcome_path: Path) -> None:
    os.write(1, bytes(range(256)))
    print('{"status": "ok", "measurement": {"phase_s": {}}}')
    os.write(2, "模型".encode("gbk"))
    for _ in range(int(behaviour["megabytes"])):
        print("x" * 2**20)


def kill_server(behaviour: dict, outcome_path: Path) -> None:
    # Only while there is one: the last way of starting has the test itself as its parent.
    if b"benchbench.forkserver" in Path(f"/proc/{os.getppid()}/cmdline").read_bytes():
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)


ACTIONS = {
    "signal": send_signal,
    "exit": leave,
    "sleep": sleep,
    "hang": hang,
    "children": leave_children,
    "garbage": leave_garbage,
    "noise": make_noise,
    "kill server": kill_server,
}


def measurement(job: Job, behaviour: dict) -> Measurement:
    ns = int(behaviour.get("ns", 1_000_000))
    return Measurement(
        phase_s={"compile": float(behaviour.get("compile_s", 0.5))},
        samples=[Samples(phase="sample", calls_per_sample=1, duration_ns=[ns, ns + 1000] * 15)],
        items=float(job.case.batch_size),
        stop_reason="precise",
        graph=GraphEvidence(
            effective=job.case.mode, compile_events=0 if job.case.mode == "eager" else 1
        ),
        cache=behaviour.get("cache", "none"),
        accuracy=AccuracyResult(verdict="pass" if job.reference_path else "off"),
        model_sources=behaviour.get("sources", {}),
        environment={"worker": job.kind},
    )


def write(path: Path, content: bytes) -> None:
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_bytes(content)
    temporary.replace(path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
