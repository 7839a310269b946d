"""The process that starts workers begins to import torch while the command line is still read.

Composing the configuration takes half a second and importing torch another; on two cores they may
as well happen at the same time. What the run will ask for is guessed: the processor, with the
default settings. A wrong guess costs nothing but that process, which is ended.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from benchbench.devices.cpu import Cpu
from benchbench.forkserver import TOKEN

# Words that make the guess wrong, or after which nothing is measured at all.
_OTHERWISE = ("-", "device", "settings", "hydra", "+", "~")
_MOST_PRINTED_BYTES = 1 << 20
# An accelerator that device=auto would take.
_ACCELERATORS = ("/dev/davinci_manager", "/dev/nvidiactl")


def worker_environment(token: str, variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a worker: this process's, with what torch reads on import."""
    return {
        **os.environ,
        **variables,
        "PYTHONUTF8": "1",  # names of files are read alike in every locale
        "PYTHONIOENCODING": "utf-8:backslashreplace",  # a model's print must not fail
        "PYTHONUNBUFFERED": "1",  # what was printed before a crash is in the log
        "PYTHONFAULTHANDLER": "1",
        TOKEN: token,
    }


class EarlyServer:
    """A ``benchbench.forkserver`` that has begun to import torch; ended on leaving if not taken."""

    def __init__(self) -> None:
        self.token = uuid.uuid4().hex
        variables = Cpu().worker_environment(1) | {"PYTHONHASHSEED": "0"}
        self._environment = worker_environment(self.token, variables)
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed on leaving)
        self._channel, theirs = socket.socketpair()
        command = [sys.executable, "-m", "benchbench.forkserver", str(theirs.fileno()), "torch"]
        with theirs:
            self._process = subprocess.Popen(
                command,
                env=self._environment,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._errors,
                stderr=self._errors,
                start_new_session=True,
            )
        self._taken = False

    def __enter__(self) -> EarlyServer:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._taken:
            self._process.kill()
            self._process.wait()
            self._channel.close()
        self._errors.close()

    def take(
        self, environment: Mapping[str, str]
    ) -> tuple[subprocess.Popen[bytes], socket.socket] | None:
        """Hand over the process and its socket, once, to who needs just this environment."""
        if (
            self._taken
            or dict(environment) != self._environment
            or self._process.poll() is not None
        ):
            return None
        self._taken = True
        return self._process, self._channel

    def printed(self) -> bytes:
        """Return what the process has printed: nothing, as long as all is well."""
        return os.pread(self._errors.fileno(), _MOST_PRINTED_BYTES, 0)


def begin(words: Sequence[str]) -> EarlyServer | None:
    """Start the process for a command line that will most likely measure on the processor."""
    if sys.platform != "linux" or any(word.startswith(_OTHERWISE) for word in words):
        return None
    if any(Path(name).exists() for name in _ACCELERATORS):
        return None
    return EarlyServer()
