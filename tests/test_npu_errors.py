"""Error texts of torch_npu and the Graph Engine, as sentences."""

from __future__ import annotations

import pytest

from benchbench.npu_errors import explain
from benchbench.reasons import error_reason

_RUNTIME = (
    "capture_begin:../torch_npu/csrc/core/npu/NPUGraph.cpp:318 NPU function error: "
    "c10_npu::acl::AclmdlRICaptureBegin(capture_stream_, capture_mode), error code is {code}\n"
    "[ERROR] 2026-12-01-06:51:45 (PID:7655, Device:0, RankID:-1) ERR00100 PTA call acl api failed\n"
    "[Error]: Stream resources are insufficient.\n        Check whether ..."
)


@pytest.mark.parametrize(
    ("text", "sentence", "hint"),
    [
        (_RUNTIME.format(code=207008), "ran out of streams (error code 207008)", "graphs"),
        (_RUNTIME.format(code=107030), "waits for the device", ".item()"),
        (_RUNTIME.format(code=507015), "failed on an AI core", "ASCEND_LAUNCH_BLOCKING=1"),
        (
            "EZ3003: No supported Ops kernel and engine are found for [SoftmaxV2], optype",
            "no kernel for SoftmaxV2 here (EZ3003)",
            "dtype",
        ),
        ("E19025: Check output size failed", "E19025): Check output size failed", "log"),
        ("Cannot run aclop operators during NPU graph capture.", "old (aclop) kernel", "eager"),
    ],
)
def test_known_errors_say_what_to_do(text: str, sentence: str, hint: str) -> None:
    found = explain(text)
    assert found is not None
    assert sentence in found[0]
    assert hint in str(found[1])


@pytest.mark.parametrize(
    "text",
    [
        "mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)",
        "CUDA error: an illegal memory access was encountered",
        _RUNTIME.format(code=999999),
        "EARLY 2024: exit",
    ],
)
def test_other_errors_keep_their_words(text: str) -> None:
    assert explain(text) is None


def test_simulated_errors_say_so() -> None:
    text = _RUNTIME.format(code=207008) + "\n[npusim] injected fault: streams"
    assert str(explain(text)).count("simulated, injected fault") == 1


def test_only_runtime_errors_are_read() -> None:
    """A model's own ValueError that quotes a code is its own."""
    message = _RUNTIME.format(code=207008)
    assert "ran out of streams" in error_reason(RuntimeError(message))[1]
    assert "ran out of streams" not in error_reason(ValueError(message))[1]
