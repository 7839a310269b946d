"""Names as users type them and as they are stored.

What is stored is canonical; what is accepted is wide. Every alias is here, so that one mode has
one name in tables, histories and pages whatever was typed.
"""

from __future__ import annotations

from collections.abc import Callable

GROUPS = ("model", "mode", "device", "suite")
"""What is selected by name: one folder of YAML files each."""

MODE_ALIASES = {
    "aclgraph": "npugraph_ex",
    "acl-graph": "npugraph_ex",
    "npugraph": "npugraph_ex",
    "ge": "max-autotune",
    "graph-engine": "max-autotune",
    "max-autotune": "max-autotune",
    "default": "inductor",
    "cudagraph": "cudagraphs",
    "cuda-graphs": "cudagraphs",
}
# torch's `reduce-overhead` means device graphs: CUDA graphs on a GPU; on an NPU it is TorchAir's
# older name of what npugraph_ex does now. Hence it is the one alias that depends on the device.
REDUCE_OVERHEAD = "reduce-overhead"
REDUCE_OVERHEAD_ON = {"npu": "npugraph_ex", "npu-sim": "npugraph_ex"}

DEVICE_ALIASES = {"gpu": "cuda", "ascend": "npu"}

DTYPES = ("float32", "float16", "bfloat16", "float64")
DTYPE_ALIASES = {
    "fp32": "float32",
    "float": "float32",
    "fp16": "float16",
    "half": "float16",
    "bf16": "bfloat16",
    "fp64": "float64",
    "double": "float64",
}

WORKLOADS = ("forward", "prefill", "decode")


def fold(word: str) -> str:
    """Return ``word`` as aliases are compared: no case, ``-`` for ``_`` and blanks."""
    return word.strip().casefold().replace("_", "-").replace(" ", "-")


def canonical_mode(word: str, known: set[str], device_kind: Callable[[], str]) -> str:
    """Return the stored name for a typed mode; an unknown word comes back as it is.

    A name that is in ``known`` letter by letter is never an alias, so a user's own mode may be
    called ``ge``. ``device_kind`` is asked only for the one alias that depends on the device.
    """
    if word in known:
        return word
    folded = fold(word)
    if folded == REDUCE_OVERHEAD:
        return REDUCE_OVERHEAD_ON.get(device_kind(), "cudagraphs")
    if folded in MODE_ALIASES:
        return MODE_ALIASES[folded]
    same = [name for name in known if fold(name).replace("-", "") == folded.replace("-", "")]
    return same[0] if len(same) == 1 else word


def canonical(group: str, word: str, known: set[str]) -> str:
    """Return the stored name for a typed model, device or suite."""
    if word in known:
        return word
    folded = fold(word)
    if group == "device" and folded in DEVICE_ALIASES:
        return DEVICE_ALIASES[folded]
    same = [name for name in known if fold(name) == folded]
    return same[0] if len(same) == 1 else word


def canonical_dtype(word: str) -> str:
    """Return torch's name of a dtype; an unknown word comes back as it is."""
    folded = word.strip().casefold().removeprefix("torch.")
    return DTYPE_ALIASES.get(folded, folded if folded in DTYPES else word)
