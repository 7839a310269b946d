"""Each use of the simulated NPU runs in a process of its own, which activates it before torch."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from probe_process import probe_command, probe_environment

from benchbench import npusim

Probe = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def built() -> Path:
    """Skip where the simulated NPU cannot be; otherwise have it built."""
    reason = npusim.unavailable()
    if reason:
        pytest.skip(reason)
    return npusim.build()


@pytest.fixture(scope="session")
def probe(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Probe:
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
