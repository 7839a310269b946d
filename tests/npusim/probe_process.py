"""How a probe is started: a process of its own."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any


def probe_command(name: str, out: Path, config: dict[str, Any]) -> list[str]:
    """Return the command that runs one function of probes.py and writes what it returns."""
    probes = Path(__file__).resolve().with_name("probes.py")
    return [sys.executable, str(probes), name, str(out), json.dumps(config)]


def probe_environment() -> dict[str, str]:
    """Return the environment of a probe: one thread, as all tests."""
    # The tests' own process keeps torch_npu out; here it is what is wanted.
    inherited = {k: v for k, v in os.environ.items() if k != "TORCH_DEVICE_BACKEND_AUTOLOAD"}
    return {**inherited, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
