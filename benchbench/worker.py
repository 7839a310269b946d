"""The child process of one job: ``python -m benchbench.worker JOB.json OUTCOME.json``.

Anyone can run it by hand, also under a debugger. What the model prints goes to stdout and stderr
as they are; the result travels in OUTCOME.json alone, which is there as a whole or not at all.

This module holds the only broad ``except`` of the product: whatever a model raises becomes a
failure with a phase, a kind and one line, and its traceback goes to stderr, which is the log. The
process then ends as every Python process does, exit handlers included, so that a crash at exit is
seen by the parent; the outcome is on disk by then.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys
import traceback
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import msgspec

from benchbench import devices, environment
from benchbench.failures import causes, explain, with_recompiles
from benchbench.forkserver import PHASE_FD, hide_torch_npu
from benchbench.phases import Phases
from benchbench.records import Job, Outcome

if TYPE_CHECKING:
    from benchbench.devices import Device

_READY = "BENCHBENCH_WORKER_READY"
"""Set once the process has the environment that its job asks for."""


def main(argv: list[str]) -> int:
    """Run the job in file ``argv[0]`` and write its outcome to file ``argv[1]``.

    Returns the exit code: 0 when an outcome was written, whatever it says; 2 for wrong use.
    """
    if len(argv) != 2:
        sys.stderr.write("usage: python -m benchbench.worker JOB.json OUTCOME.json\n")
        return 2
    try:
        job = msgspec.json.decode(Path(argv[0]).read_bytes(), type=Job)
    except (OSError, msgspec.MsgspecError) as error:
        sys.stderr.write(f"cannot read the job {argv[0]}: {error}\n")
        return 2
    set_environment(job, argv)
    descriptor = os.environ.get(PHASE_FD)
    run_job(job, Path(argv[1]), int(descriptor) if descriptor else None)
    return 0


def set_environment(job: Job, argv: list[str]) -> None:
    """Give this process the environment that a run would have given it.

    A run starts its workers with it, so this matters only by hand: libraries read their variables
    while they are loaded and the C library reads its own before Python starts, so the process
    starts itself once more. Not under a debugger, which would lose it.
    """
    wanted = environment.job_variables(job)
    missing = {name: value for name, value in wanted.items() if os.environ.get(name) != value}
    if not missing:
        return
    os.environ.update(missing)
    by_hand = PHASE_FD not in os.environ and _READY not in os.environ
    if by_hand and sys.gettrace() is None and "torch" not in sys.modules:
        os.environ[_READY] = "1"
        os.execv(sys.executable, [sys.executable, "-m", "benchbench.worker", *argv])


def run_job(job: Job, outcome_path: Path, phase_fd: int | None) -> None:
    """Run ``job`` in this process and write its outcome; never raises because of the model."""
    interrupts = _Interrupts()
    dump_stacks_on_signal()
    phases = Phases(outcome_path, phase_fd)
    device = devices.device(job.case.device, job.case.device_index)
    outcome = _outcome(job, device, phases, interrupts)
    write_outcome(outcome, outcome_path)


def _outcome(job: Job, device: Device, phases: Phases, interrupts: _Interrupts) -> Outcome:
    findings = None
    try:
        # Imports torch, so not before the environment is set and the phase "load" is announced.
        with phases.enter("load"):
            if job.case.device == "cpu":
                hide_torch_npu()
            from benchbench import jobs
            from benchbench.findings import Findings
        findings = Findings(phases)
        jobs.run(job, device, findings)
        return Outcome(
            measurement=findings.measurement(),
            environment=findings.environment,
            report=findings.report,
        )
    except BaseException as error:  # noqa: BLE001 (the one place, see above)
        traceback.print_exc()
        status, failure = explain(
            error,
            phases.current,
            out_of_memory=_is_out_of_memory(error, device),
            signalled=interrupts.signalled,
        )
        if findings and findings.look:
            # The evidence up to here often says why; that it cannot be had must not hide the error.
            try:
                findings.graph = findings.look()
                failure = with_recompiles(failure, findings.graph)
            except BaseException:  # noqa: BLE001
                traceback.print_exc()
        known = findings.environment if findings else {}
        partial = findings.measurement() if findings else None
        report = findings.report if findings else None
        return Outcome(
            failure=failure, status=status, environment=known, partial=partial, report=report
        )
    finally:
        dump_stacks_on_signal()  # libraries replace signal handlers


def write_outcome(outcome: Outcome, path: Path) -> None:
    """Write the outcome so that a reader sees all of it or nothing, also after a power cut."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    with part.open("wb") as file:
        file.write(msgspec.json.encode(outcome))
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    with contextlib.suppress(OSError):  # folders cannot be opened on Windows
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def dump_stacks_on_signal() -> None:
    """Write all Python stacks to stderr on a crash and on SIGUSR1, which the parent sends."""
    faulthandler.enable(file=2, all_threads=True)
    if hasattr(faulthandler, "register"):
        faulthandler.register(signal.SIGUSR1, file=2, all_threads=True, chain=False)


def _is_out_of_memory(error: BaseException, device: Device) -> bool:
    if "torch" not in sys.modules:
        return isinstance(error, MemoryError)
    return any(isinstance(c, MemoryError) or device.is_out_of_memory(c) for c in causes(error))


class _Interrupts:
    """Tells a Ctrl-C of the user from a KeyboardInterrupt that a model raises."""

    def __init__(self) -> None:
        self.signalled = False
        signal.signal(signal.SIGINT, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.signalled = True
        raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
