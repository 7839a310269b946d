"""Starts one worker process per job, waits for it without using a core, and always gets rid of it.

The parent sleeps in ``select`` until one of four things happens: the worker rings the phase pipe,
the worker ends, the user interrupts, or the limit of the phase is up. Phases themselves are read
from the file that the worker appends to before it enters each, which survives any death.

A worker is forked from a server that has torch imported where its device allows that, else started
fresh by a server that has nothing imported, else (no Unix sockets, or a server that died) directly.
All three run the same ``main`` with the same environment.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

import msgspec

from benchbench import devices
from benchbench.early import EarlyServer, worker_environment
from benchbench.ending import JobEnd, signal_name
from benchbench.environment import job_variables
from benchbench.forkserver import (
    PHASE_FD,
    PRELOAD,
    SIGKILL,
    kill_group,
    model_modules,
    sweep,
)
from benchbench.interrupts import Interrupts
from benchbench.records import PHASES, Job, Limits, Outcome, Phase

OnPhase: TypeAlias = Callable[[Phase, float, float], "float | None"]
"""Called with phase, seconds in it and its limit, when it is entered and again after as many
seconds as it returned; ``None`` means not again in this phase."""

DUMP_GRACE_S = 0.5
"""Time for faulthandler to write the stacks before the process is asked to end."""
TERM_GRACE_S = 2.0
KILL_GRACE_S = 10.0
"""A process that survives SIGKILL this long hangs in the kernel and cannot be waited for."""
MIN_SHARE_WINDOW_S = 0.05
"""Below this the wake-ups at both ends are all there is to see of our CPU share."""
MAX_OUTCOME_BYTES = 256 * 2**20

_SERVERS_POSSIBLE = hasattr(socket, "send_fds") and hasattr(os, "fork")


class ServerGoneError(Exception):
    """The server died, or would not fork; its worker, if any, is dead too."""

    def __init__(self, reason: str, *, forks: bool) -> None:
        super().__init__(reason)
        self.forks = forks
        """Whether it was a server that forks workers, not one that only starts them."""


class Worker(Protocol):
    """A started worker process, however it was started."""

    pid: int | None
    returncode: int | None

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when there is news of the process."""

    def ended(self) -> bool:
        """Take in the news; return whether the process has ended (and set ``returncode``)."""


class Launcher:
    """Runs jobs one after another; closing it leaves no process behind.

    ``entry`` is the module whose ``main([job file, outcome file])`` is the worker; ``preload``
    the modules that the forking server imports beside the model's. Without ``compiles`` it leaves
    out torch's compiler, whose import takes longer than that of torch itself.
    """

    def __init__(
        self,
        *,
        stop: Interrupts | None = None,
        entry: str = "benchbench.worker",
        preload: tuple[str, ...] | None = None,
        compiles: bool = True,
        early: EarlyServer | None = None,
    ) -> None:
        self._stop = stop
        self._entry = entry
        if preload is None:
            preload = (*(PRELOAD if compiles else PRELOAD[:1]), "benchbench.jobs")
        self._preload = preload
        self._token = early.token if early else uuid.uuid4().hex
        self._early = early
        self._server: _Server | None = None
        self._fork_works = _SERVERS_POSSIBLE
        self._server_works = _SERVERS_POSSIBLE

    def __enter__(self) -> Launcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the server and whatever inherited this launcher's mark."""
        self._close_server()
        sweep(self._token)

    def run_job(self, job: Job, *, outcome_path: Path, log_path: Path, on_phase: OnPhase) -> JobEnd:
        """Run one job in a process of its own; return how it ended.

        Beside the log a job file is left with which the job can be run again by hand; the log
        begins with the command. Raises ``OSError`` only when one of the files cannot be written.
        """
        started = time.monotonic()
        job_path = outcome_path.with_suffix(".job.json")
        job_path.write_bytes(_job_file(job))
        _leave_way_back(job, self._entry, log_path)
        request = _Request(
            argv=[self._entry, str(job_path), str(outcome_path)],
            environment=_own_variables(job),
            log_path=log_path,
        )
        notes: list[str] = []
        while True:
            outcome_path.unlink(missing_ok=True)
            phases = _Phases(outcome_path, job.limits)
            phases.path.unlink(missing_ok=True)
            try:
                worker, how = self._start_and_watch(job, request, phases, on_phase)
                break
            except ServerGoneError as error:
                notes.append(f"started again in another way: {error}")
                if error.forks:
                    self._fork_works = False
                else:
                    self._server_works = False
        outcome, damaged = _read_outcome(outcome_path)
        phases.take_in()
        return JobEnd(
            outcome=outcome,
            damaged=damaged,
            phase=phases.phase,
            returncode=worker.returncode,
            timeout_s=phases.exceeded_s,
            interrupted=self._stop.signum if self._stop and phases.interrupted else None,
            duration_s=time.monotonic() - started,
            started=how,
            parent_cpu_share=phases.parent_cpu_share,
            notes=notes,
        )

    def _start_and_watch(
        self, job: Job, request: _Request, phases: _Phases, on_phase: OnPhase
    ) -> tuple[Worker, str]:
        with _Doorbell() as door:
            worker, how = self._start(job, request, door.ringer)
            door.hand_over()
            try:
                self._watch(worker, phases, door.bell, on_phase)
            finally:  # also when a second Ctrl-C comes in the middle of it
                self._kill_rest(worker)
        return worker, how

    def _start(self, job: Job, request: _Request, ringer: int | None) -> tuple[Worker, str]:
        environment = self._environment(job)
        if not self._server_works or ringer is None:
            return _Direct(request, environment, ringer), "fresh"
        fork = self._fork_works and _may_fork(job)
        modules = self._imports(job) if fork else ()
        if self._server is not None and not self._server.fits(environment, modules):
            self._close_server()
        if self._server is None:
            errors = request.log_path.with_name("forkserver.log")
            early = self._early if fork else None
            self._server = _Server(environment, modules, errors, early)
        worker = _Served(self._server, request, ringer, fork=fork)
        return worker, "forked" if fork else "fresh"

    def _imports(self, job: Job) -> tuple[str, ...]:
        return (*self._preload, *model_modules(job.case.model_target), self._entry)

    def _close_server(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    def _environment(self, job: Job) -> dict[str, str]:
        """Return the variables that must be set before torch is imported."""
        variables = job_variables(msgspec.structs.replace(job, cache_dir=None))
        return worker_environment(self._token, variables)

    def _watch(self, worker: Worker, phases: _Phases, bell: int | None, on_phase: OnPhase) -> None:
        """Sleep until the worker has ended; end it when the limit is up or the user says so."""
        with selectors.DefaultSelector() as selector:
            selector.register(worker, selectors.EVENT_READ)
            if bell is not None:
                selector.register(bell, selectors.EVENT_READ)
            if self._stop is not None:
                selector.register(self._stop, selectors.EVENT_READ)
            tick = _Ticker(phases, on_phase)
            while True:
                # Without a bell the file has to be looked at now and then.
                events = selector.select(min(tick.wait_s(), 1.0 if bell is None else 1e9))
                ready = [key.fileobj for key, _ in events]
                if bell is not None and bell in ready and not os.read(bell, 65536):
                    selector.unregister(bell)
                tick.run()
                if worker in ready and worker.ended():
                    return
                if self._stop is not None and self._stop.signum is not None:
                    phases.interrupted = True
                    _end(worker, dump=False)
                    return
                if phases.left_s() <= 0:
                    phases.exceeded_s = phases.limit_s()
                    _end(worker, dump=True)
                    return

    def _kill_rest(self, worker: Worker) -> None:
        """Kill what is left of a worker and of everything it has started."""
        if worker.pid is not None:
            kill_group(worker.pid, SIGKILL)
        keep = frozenset({self._server.pid} if self._server is not None else ())
        sweep(self._token, keep)
        if worker.returncode is None and self._server is not None:
            # It has not told us the end of this worker: it must not take another one.
            self._close_server()


@dataclass(frozen=True, slots=True)
class _Request:
    argv: list[str]
    environment: dict[str, str]
    log_path: Path


class _Phases:
    """Which phase a worker is in, how long it may stay, and our own CPU time meanwhile.

    The time in a phase adds up over repeated visits, so that no worker can stay longer in all
    than the sum of its limits by going back and forth.
    """

    def __init__(self, outcome_path: Path, limits: Limits) -> None:
        self.path = outcome_path.with_name(outcome_path.name + ".phases")
        self.phase: Phase = "load"
        self.exceeded_s: float | None = None
        self.interrupted = False
        self.parent_cpu_share: float | None = None
        self._limits = limits
        self._spent: dict[Phase, float] = {}
        self._entered = time.monotonic()
        self._cpu = time.process_time()
        self._offset = 0

    def take_in(self) -> bool:
        """Read the phases entered since the last call; return whether there were any."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return False
        lines, end, _ = data.rpartition(b"\n")
        self._offset += len(lines) + len(end)
        names = [name for name in map(_phase_name, lines.splitlines()) if name is not None]
        for name in names:
            self._enter(name)
        return bool(names)

    def elapsed_s(self) -> float:
        """Return the seconds spent in this phase so far."""
        return self._spent.get(self.phase, 0.0) + time.monotonic() - self._entered

    def limit_s(self) -> float:
        """Return the limit of this phase in seconds."""
        return self._limits.of(self.phase)

    def left_s(self) -> float:
        """Return the seconds until the limit of this phase is up."""
        return self.limit_s() - self.elapsed_s()

    def _enter(self, phase: Phase) -> None:
        now, cpu = time.monotonic(), time.process_time()
        if self.phase == "sample" and now - self._entered >= MIN_SHARE_WINDOW_S:
            self.parent_cpu_share = (cpu - self._cpu) / (now - self._entered)
        self._spent[self.phase] = self._spent.get(self.phase, 0.0) + now - self._entered
        self.phase, self._entered, self._cpu = phase, now, cpu


class _Ticker:
    """Calls ``on_phase`` when a phase begins and when it wanted to be called again."""

    def __init__(self, phases: _Phases, on_phase: OnPhase) -> None:
        self._phases = phases
        self._on_phase = on_phase
        self._due = time.monotonic()

    def wait_s(self) -> float:
        """Return how long to sleep at most."""
        return max(0.0, min(self._phases.left_s(), self._due - time.monotonic()))

    def run(self) -> None:
        phases = self._phases
        if phases.take_in() or time.monotonic() >= self._due:
            again = self._on_phase(phases.phase, phases.elapsed_s(), phases.limit_s())
            self._due = time.monotonic() + (float("inf") if again is None else again)


class _Server:
    """A process of ``benchbench.forkserver`` for one environment and one set of imports."""

    def __init__(
        self,
        environment: dict[str, str],
        modules: tuple[str, ...],
        errors: Path,
        early: EarlyServer | None = None,
    ) -> None:
        self._identity = (environment, modules)
        self._cwd = os.getcwd()
        self._errors = errors
        self._rest = b""
        self._later: tuple[str, ...] = ()
        """Modules that a server which was started early has still to import."""
        self._early = early
        if early is not None and (taken := early.take(environment)):
            self._process, self.channel = taken
            self.pid = self._process.pid
            self._later = modules
            return
        self._early = None
        self.channel, theirs = socket.socketpair()
        command = [sys.executable, "-m", "benchbench.forkserver", str(theirs.fileno()), *modules]
        with theirs, errors.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                env=environment,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C in the terminal is for the parent alone
            )
        self.pid = self._process.pid

    def fits(self, environment: dict[str, str], modules: tuple[str, ...]) -> bool:
        """Say whether this server can start a worker of that environment and those imports."""
        return self._identity == (environment, modules) and self._process.poll() is None

    def send(self, request: _Request, ringer: int, *, fork: bool) -> None:
        """Ask for a worker. Raises ``ServerGoneError``."""
        command = [sys.executable, "-m", *request.argv]
        message = {
            "argv": request.argv,
            "exec": None if fork else command,
            "environment": request.environment,
            "cwd": self._cwd,
            "log": str(request.log_path.absolute()),
            "import": self._later,
        }
        self._later = ()
        try:
            socket.send_fds(self.channel, [json.dumps(message).encode() + b"\n"], [ringer])
        except OSError as error:
            raise self.gone() from error

    def messages(self) -> Iterator[dict[str, int]]:
        """Yield what has arrived. Raises ``ServerGoneError`` when the server has ended."""
        try:
            data = self.channel.recv(65536)
        except ConnectionError:
            data = b""
        if not data:
            raise self.gone()
        *lines, self._rest = (self._rest + data).split(b"\n")
        yield from map(json.loads, lines)

    def gone(self) -> ServerGoneError:
        """Return the error that says how the server ended."""
        try:
            code = self._process.wait(timeout=TERM_GRACE_S)
        except subprocess.TimeoutExpired:
            how = "closed its socket"
        else:
            how = f"was killed by {signal_name(-code)}" if code < 0 else f"exited with code {code}"
        reason = f"the server that starts workers {how} (see forkserver.log)"
        return ServerGoneError(reason, forks=bool(self._identity[1]))

    def close(self) -> None:
        """End the server; it takes a running worker with it."""
        self.channel.close()
        try:
            self._process.wait(timeout=TERM_GRACE_S)
        except subprocess.TimeoutExpired:  # still importing
            self._process.kill()
            self._process.wait()
        with contextlib.suppress(OSError):
            if self._early is not None:
                self._errors.write_bytes(self._early.printed())
            if self._errors.stat().st_size == 0:
                self._errors.unlink()


class _Served:
    """A worker that a server has started."""

    def __init__(self, server: _Server, request: _Request, ringer: int, *, fork: bool) -> None:
        self.pid: int | None = None
        self.returncode: int | None = None
        self._server = server
        server.send(request, ringer, fork=fork)

    def fileno(self) -> int:
        return self._server.channel.fileno()

    def ended(self) -> bool:
        try:
            for message in self._server.messages():
                self.pid = message.get("pid", self.pid)
                if "status" in message:
                    self.returncode = os.waitstatus_to_exitcode(message["status"])
        except ServerGoneError:
            if self.pid is not None:
                kill_group(self.pid, SIGKILL)
            raise
        return self.returncode is not None


class _Direct:
    """A worker that this process has started itself."""

    def __init__(self, request: _Request, environment: dict[str, str], ringer: int | None) -> None:
        environment = {**environment, **request.environment}
        if ringer is not None:
            environment[PHASE_FD] = str(ringer)
        with request.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *request.argv],
                env=environment,
                pass_fds=[] if ringer is None else [ringer],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.pid: int | None = self._process.pid
        self.returncode: int | None = None
        self._sentinel, writer = socket.socketpair()
        threading.Thread(target=self._wait, args=(writer,), daemon=True).start()

    def fileno(self) -> int:
        return self._sentinel.fileno()

    def ended(self) -> bool:
        self.returncode = self._process.wait()
        self._sentinel.close()
        return True

    def _wait(self, writer: socket.socket) -> None:
        # A blocked thread costs nothing, and works where there are no process descriptors.
        with writer:
            self._process.wait()


class _Doorbell:
    """A pipe on which a worker says that it has entered a phase (none on Windows)."""

    def __init__(self) -> None:
        self.bell: int | None = None
        self.ringer: int | None = None
        if os.name == "posix":
            self.bell, self.ringer = os.pipe()

    def __enter__(self) -> _Doorbell:
        return self

    def __exit__(self, *_: object) -> None:
        self.hand_over()
        if self.bell is not None:
            os.close(self.bell)

    def hand_over(self) -> None:
        """Close our copy of the worker's end."""
        if self.ringer is not None:
            os.close(self.ringer)
            self.ringer = None


def _end(worker: Worker, *, dump: bool) -> None:
    """End a worker: stacks into its log, a polite request, then SIGKILL for its whole group.

    Ascend's graph engine replaces the handler of SIGTERM, so only SIGKILL can be relied on.
    """
    if worker.pid is None:  # its server is still importing and goes away as a whole
        return
    if dump and hasattr(signal, "SIGUSR1"):
        os.kill(worker.pid, signal.SIGUSR1)
        if _ends_within(worker, DUMP_GRACE_S):
            return
    for number, grace_s in ((signal.SIGTERM, TERM_GRACE_S), (SIGKILL, KILL_GRACE_S)):
        kill_group(worker.pid, number)
        if _ends_within(worker, grace_s):
            return


def _ends_within(worker: Worker, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        selector.register(worker, selectors.EVENT_READ)
        while (left := deadline - time.monotonic()) > 0:
            if selector.select(left) and worker.ended():
                return True
    return False


def _may_fork(job: Job) -> bool:
    start = job.settings.start
    return start == "forkserver" or (
        start == "auto" and devices.device(job.case.device, job.case.device_index).forkable
    )


def _job_file(job: Job) -> bytes:
    """Return the content of a job file, paths in UTF-8 even in an ASCII locale."""
    search_paths = [os.fsencode(path).decode("utf-8", "replace") for path in job.search_paths]
    job = msgspec.structs.replace(job, search_paths=search_paths)
    return msgspec.json.format(msgspec.json.encode(job)) + b"\n"


def _leave_way_back(job: Job, entry: str, log_path: Path) -> None:
    """Write the job without the files that are gone after the run, and the command to run it."""
    job = msgspec.structs.replace(job, cache_dir=None, reference_path=None)
    job_path = log_path.with_suffix(".job.json")
    job_path.write_bytes(_job_file(job))
    command = ["python", "-m", entry, str(job_path), "outcome.json"]
    log_path.write_bytes(f"$ {shlex.join(command)}\n".encode("utf-8", "backslashreplace"))


def _own_variables(job: Job) -> dict[str, str]:
    """Return the variables that differ from job to job; all of them are read when used."""
    shared = job_variables(msgspec.structs.replace(job, cache_dir=None))
    return {name: value for name, value in job_variables(job).items() if name not in shared}


def _read_outcome(path: Path) -> tuple[Outcome | None, bool]:
    """Return the outcome, and whether there was one that could not be read."""
    try:
        if path.stat().st_size > MAX_OUTCOME_BYTES:
            return None, True
        outcome = msgspec.json.decode(path.read_bytes(), type=Outcome)
    except FileNotFoundError:
        return None, False
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None, True
    if outcome.measurement is None and outcome.failure is None:
        return None, True
    return outcome, False


def _phase_name(line: bytes) -> Phase | None:
    try:
        name = msgspec.json.decode(line, type=_PhaseLine).phase
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return name if name in PHASES else None


class _PhaseLine(msgspec.Struct):
    phase: Phase
