"""Each use of the simulated NPU runs in a process of its own, which activates it before torch."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from probe_process import probe_command, probe_environment

Probe = Callable[..., dict[str, Any]]


# In a process of its own: the tests' process hides torch_npu from itself.
_BUILD = """
from benchbench import npusim
reason = npusim.unavailable()
print(reason or "")
if not reason:
    npusim.build()
"""


@pytest.fixture(scope="session")
def built() -> None:
    """Skip where the simulated NPU cannot be; otherwise have it built."""
    done = subprocess.run(
        [sys.executable, "-c", _BUILD], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    if done.stdout.strip():
        pytest.skip(done.stdout.strip())


@pytest.fixture(scope="session")
def probe(built: None, tmp_path_factory: pytest.TempPathFactory) -> Probe:
    """Return a function that runs a probe and returns its result."""

    def run(name: str, **config: Any) -> dict[str, Any]:
        folder = tmp_path_factory.mktemp(name)
        out = folder / "result.json"
        done = subprocess.run(
            probe_command(name, out, config),
            cwd=folder,
            env=probe_environment(),
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        result: dict[str, Any] = json.loads(out.read_text())
        return result

    return run
