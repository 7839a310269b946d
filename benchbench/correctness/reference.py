"""The file with eager's side of the comparison: plain tensors and containers, nothing to execute.

Written once per group by the ``reference`` job, read by each ``measure`` job through a memory map,
so that a leaf is in memory only while it is compared.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from benchbench.correctness.leaves import Leaf
from benchbench.correctness.recorder import Call, Changes, Trace

# History of the file format; a file lives as long as one run, so only the last is read.
#   1  first version
FORMAT = 1


class UnreadableReference(Exception):
    """The reference file is missing, damaged, or of another version; the message says which."""


@dataclass(slots=True)
class Golden:
    """Tensors of a higher-precision copy, by leaf path; empty with a reason when there is none."""

    calls: dict[int, dict[str, torch.Tensor]] = field(default_factory=dict)
    state: dict[str, torch.Tensor] = field(default_factory=dict)
    missing: str | None = None
    """Why there is no higher-precision reference."""


@dataclass(slots=True)
class Reference:
    """Eager's trace, and what is known about it."""

    trace: Trace
    golden: Golden
    not_repeatable: str | None = None
    """Where eager differs from itself."""

    @property
    def random(self) -> bool:
        """Whether eager drew random numbers in any call."""
        return any(call.random for call in self.trace.calls.values())


def save(reference: Reference, path: Path) -> None:
    """Write the file; a reader sees the whole of it or none of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        torch.save(_pack(reference), temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def load(path: Path) -> Reference:
    """Return the reference with its tensors memory-mapped.

    Raises ``UnreadableReference`` with the reason. Nothing stored in the file is executed.
    """
    if not path.is_file():
        raise UnreadableReference(f"there is no reference file {path.name}")
    try:
        data = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
    except (OSError, RuntimeError, ValueError, EOFError, pickle.UnpicklingError) as error:
        raise UnreadableReference(
            f"the reference file {path.name} cannot be read ({type(error).__name__})"
        ) from error
    found = data.get("format") if isinstance(data, Mapping) else None
    if found != FORMAT:
        raise UnreadableReference(
            f"the reference file {path.name} has format {found!r}, this version reads {FORMAT}"
        )
    try:
        return _unpack(data)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UnreadableReference(
            f"the reference file {path.name} is damaged ({type(error).__name__}: {error})"
        ) from error


def _pack(reference: Reference) -> dict[str, Any]:
    trace, golden = reference.trace, reference.golden
    return {
        "format": FORMAT,
        "seed": trace.seed,
        "weights": trace.weights,
        "not_repeatable": reference.not_repeatable,
        "calls": {
            i: {
                "inputs_digest": call.inputs_digest,
                "random": call.random,
                "outputs": _pack_leaves(call.outputs),
                "inputs": _pack_changes(call.inputs),
            }
            for i, call in trace.calls.items()
        },
        "state": _pack_changes(trace.state),
        "golden": {"calls": golden.calls, "state": golden.state, "missing": golden.missing},
    }


def _pack_changes(changes: Changes) -> dict[str, Any]:
    kept = {path: leaf for path, leaf in changes.after.items() if path in changes.changed}
    return {"changed": sorted(changes.changed), "after": _pack_leaves(kept)}


def _pack_leaves(leaves: dict[str, Leaf]) -> list[list[Any]]:
    return [[leaf.path, leaf.kind, leaf.type, leaf.tensor, leaf.text] for leaf in leaves.values()]


def _unpack(data: Mapping[str, Any]) -> Reference:
    calls = {
        int(i): Call(
            inputs_digest=call["inputs_digest"],
            outputs=_unpack_leaves(call["outputs"]),
            inputs=_unpack_changes(call["inputs"]),
            random=bool(call["random"]),
        )
        for i, call in data["calls"].items()
    }
    golden = data["golden"]
    return Reference(
        trace=Trace(data["seed"], data["weights"], calls, _unpack_changes(data["state"])),
        golden=Golden(dict(golden["calls"]), dict(golden["state"]), golden["missing"]),
        not_repeatable=data["not_repeatable"],
    )


def _unpack_changes(data: Mapping[str, Any]) -> Changes:
    return Changes(changed=set(data["changed"]), after=_unpack_leaves(data["after"]))


def _unpack_leaves(rows: list[list[Any]]) -> dict[str, Leaf]:
    return {row[0]: Leaf(*row) for row in rows}
