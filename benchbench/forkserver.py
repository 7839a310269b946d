"""The process that starts workers: forked with torch already imported, or fresh by exec.

``python -m benchbench.forkserver FD MODULE...`` imports the modules, then serves requests on the
Unix socket ``FD``, one worker at a time, and tells the exact exit status of each. Why not the
standard library's fork server: it pickles, imports the caller's main module once more, reports a
signal only as an exit code of its own helper, and there is one per process where we need one per
environment (variables such as ``OMP_NUM_THREADS`` are read while torch is imported).

A fork is sound only while nothing has started threads that hold locks: this process imports and
does nothing else, no tensor operation, no thread count, no device call. It owns its workers: when
the socket closes, because the run has ended or was killed, it kills what it started and ends.

Protocol, one JSON object per line: to each request ``{argv, exec, environment, cwd, log, import}``
(with the phase pipe as a passed descriptor) the answers ``{"pid": n}`` and, when the worker has
ended, ``{"status": n}`` as ``os.waitpid`` returns it. ``import`` names modules to import first.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchbench.records import Target

TOKEN = "BENCHBENCH_LAUNCHER"
"""Variable that every process of one launcher inherits; ``sweep`` finds strays by its value."""

PHASE_FD = "BENCHBENCH_PHASE_FD"

PRELOAD = ("torch", "torch._dynamo", "torch._inductor.compile_fx")
"""Imported before a worker is forked. A fresh worker imports the same before its first phase of
note, so that the compile phase of both starts from the same imports."""

SIGKILL = getattr(signal, "SIGKILL", signal.SIGTERM)  # Windows knows only one way to kill
_PR_SET_PDEATHSIG = 1


def main(argv: list[str]) -> int:
    """Serve until the socket closes. In a forked worker: return the worker's exit status."""
    channel = socket.socket(fileno=int(argv[0]))
    if argv[1:]:  # what is forked runs on the processor
        hide_torch_npu()
    import_modules(argv[1:])
    _watch_children()
    server = os.getpid()
    while received := _receive(channel):
        request, phase_fd = received
        import_modules(request["import"])
        if threading.active_count() > 1:
            # They would be missing after the fork, but the locks they hold would not.
            sys.exit(f"imports started threads: {[t.name for t in threading.enumerate()]}")
        pid = os.fork()
        if pid == 0:
            channel.close()
            return _become_worker(request, phase_fd, server)
        os.close(phase_fd)
        _send(channel, pid=pid)
        if not _supervise(channel, pid):
            break
    return 0


def hide_torch_npu() -> None:
    """Let this process believe that torch_npu is not installed, unless it is imported already.

    Libraries such as transformers import it wherever it is installed, and on a machine without
    CANN that import fails. What runs on the processor has no use for it.
    """
    sys.modules.setdefault("torch_npu", None)  # type: ignore[arg-type]


def import_modules(names: Iterable[str]) -> None:
    """Import what is there of ``names``.

    What cannot be imported fails again where it is used, in its own phase and with its own record.
    """
    for name in names:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def model_modules(target: Target) -> tuple[str, ...]:
    """Return the modules that one of our own models imports, transformers' among them.

    They are imported before a worker is forked, and in a fresh one before it takes the base of
    its memory. A user's file may do anything when it is imported, so it is left to its worker.
    """
    package, _, family = target.path.rpartition(".")[0].rpartition(".")
    if package != "benchbench.models":
        return ()
    own = f"{package}.{family}"
    if target.options.get("source", "own") == "own":
        return (own,)
    # Our families have the names that transformers gives them.
    return (own, f"transformers.models.{family}.modeling_{family}")


def prepare_imports() -> None:
    """Bring this worker to the same state, forked or fresh: imports done, caches its own.

    All caches of torch read ``TORCHINDUCTOR_CACHE_DIR`` when they are used, except inductor's
    precompiled headers, whose folder is fixed on import and shared by the whole machine. Left
    there, the first case of a machine would pay for the headers and the others would not.
    """
    for name in PRELOAD:
        importlib.import_module(name)
    codecache: Any = sys.modules.get("torch._inductor.codecache")
    folder = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    if folder and hasattr(codecache, "_HEADER_DIR"):
        codecache._HEADER_DIR = os.path.join(folder, "precompiled_headers")
        codecache._HEADER_LOCK_DIR = os.path.join(folder, "precompiled_headers", "locks")


def sweep(token: str, keep: frozenset[int] = frozenset()) -> list[int]:
    """Kill every process that inherited ``token``, except ``keep`` and this one; return them.

    Finds also what has left its worker's process group. Where there is no ``/proc`` the kill of
    the group has to do.
    """
    mark = f"{TOKEN}={token}".encode()
    killed: list[int] = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        pid = int(entry.parent.name)
        if pid in keep or pid == os.getpid():
            continue
        try:
            if mark in entry.read_bytes().split(b"\0"):
                os.kill(pid, SIGKILL)
                killed.append(pid)
        except OSError:  # another user's process, or it has just ended
            continue
    return killed


def kill_group(pid: int, number: int) -> None:
    """Send a signal to the process group led by ``pid``; to ``pid`` while it has no group yet."""
    for send in (getattr(os, "killpg", os.kill), os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            send(pid, number)
            return


def _watch_children() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, lambda *_: None)


def _supervise(channel: socket.socket, pid: int) -> bool:
    """Wait for the worker, say how it ended; return whether the run is still there."""
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    alive = True
    with selectors.DefaultSelector() as selector, reader, writer:
        selector.register(channel, selectors.EVENT_READ)
        selector.register(reader, selectors.EVENT_READ)
        ended, status = os.waitpid(pid, os.WNOHANG)
        while alive and not ended:
            for key, _ in selector.select():
                if key.fileobj is reader:
                    reader.recv(4096)
                else:  # nothing is sent while a worker runs: this is the end of the run
                    alive = False
            ended, status = os.waitpid(pid, os.WNOHANG)
        signal.set_wakeup_fd(-1)
    kill_group(pid, SIGKILL)  # also what it has started and left behind
    if alive:
        _send(channel, status=status)
    else:
        sweep(os.environ.get(TOKEN, ""))
    return alive


def _die_with_server(server: int) -> None:
    """Have the kernel kill this worker should the server end first (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, SIGKILL)
        if os.getppid() != server:
            os._exit(1)


def _become_worker(request: dict[str, Any], phase_fd: int, server: int) -> int:
    os.setsid()
    _die_with_server(server)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.chdir(request["cwd"])
    os.set_inheritable(phase_fd, True)
    os.environ.update(request["environment"])
    os.environ[PHASE_FD] = str(phase_fd)
    if command := request["exec"]:
        os.execv(command[0], command)
    module, *arguments = request["argv"]
    status = importlib.import_module(module).main(arguments)
    return int(status or 0)


def _send(channel: socket.socket, **message: int) -> None:
    channel.sendall(json.dumps(message).encode() + b"\n")


def _receive(channel: socket.socket) -> tuple[dict[str, Any], int] | None:
    """Return the next request and its descriptor; ``None`` when the run has ended."""
    data, descriptors = b"", []
    while not data.endswith(b"\n"):
        part, passed, _, _ = socket.recv_fds(channel, 65536, 1)
        if not part:
            return None
        data += part
        descriptors += passed
    return json.loads(data), descriptors[0]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
