"""A machine that has torch_npu and no CANN: everything on the processor works all the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

MODEL = """
import importlib.util
import torch

def build():
    if importlib.util.find_spec("torch_npu") is not None:  # as transformers does
        import torch_npu
    return torch.nn.Linear(4, 4), (torch.randn(1, 4),)
"""


@pytest.mark.parametrize("start", ["forkserver", "fresh"])
def test_models_on_the_processor_never_see_it(tmp_path: Path, start: str) -> None:
    package = tmp_path / "site" / "torch_npu"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('libhccl.so: cannot open')")
    (tmp_path / "model.py").write_text(MODEL)
    words = ["mode=eager", "baseline=null", f"settings.start={start}", "results_dir=results"]
    done = subprocess.run(
        [sys.executable, "-m", "benchbench", "model=model.py", "measure.max_time_s=0.4", *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
