"""What holds for every test: one thread, no hub, no torch_npu by surprise, locks of its own."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# Before anything imports torch: an installed torch_npu without CANN would break that import.
os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
if "torch_npu" not in sys.modules:
    sys.modules["torch_npu"] = None  # type: ignore[assignment]  # hidden from transformers


@pytest.fixture(autouse=True)
def _loggers_stay_on() -> Iterator[None]:
    """Hydra's set-up silences the loggers that are there; other tests listen to torch's."""
    level = logging.root.level
    yield
    logging.root.setLevel(level)
    for logger in logging.root.manager.loggerDict.values():
        if isinstance(logger, logging.Logger):
            logger.disabled = False


@pytest.fixture(autouse=True)
def _own_locks(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that run at the same time do not wait for one another's device."""
    folder: Path = tmp_path_factory.getbasetemp() / "locks"
    monkeypatch.setenv("BENCHBENCH_LOCK_DIR", str(folder))
