"""From what was seen of an op while lowering to how it is converted, or why it is not.

Worker only: asks torch for schemas and torchair for its registry.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from benchbench import converters
from benchbench.converters import Registered
from benchbench.coverage import reasons
from benchbench.coverage.found import Form, How, Op, Reason
from benchbench.coverage.lowering import Seen, Trouble, form_of, op_name
from benchbench.npusim import ir_definitions, wheel
from benchbench.npusim.ir_definitions import IrDefinition

_MOST_FORMS = 6
_TENSORS = ("Tensor", "Optional[Tensor]", "List[Tensor]")
_CALLBACK_NEEDS = {
    "cpp": "automatic callback to the eager kernel: the first compile needs g++ and CANN's headers",
    "python": "automatic callback to the eager kernel: needs CANN's Python package ge.custom_op",
}


class Judge:
    """Knows what was registered for this model and which Meta functions were missing."""

    def __init__(
        self,
        registered: Iterable[Registered],
        missing_metas: Mapping[str, str],
        *,
        op_proto: str | None = None,
        approximate: bool = False,
    ) -> None:
        self._registered = {item.op: item for item in registered}
        self._missing_metas = missing_metas
        self._op_proto = op_proto
        self._approximate = approximate
        self._known: dict[str, IrDefinition] | None = None

    def op(self, name: str, target: Any, seen: Seen) -> Op:
        """Return the row of an op that was met while lowering."""
        how, detail, found, notes = self._how(name, target, seen)
        if name in self._missing_metas:
            found = [reasons.missing_meta(name, self._missing_metas[name]), *found]
        if found and _has_no_npu_kernel(target):
            notes = [*notes, "it has no kernel for NPUs either, so eager cannot run it there"]
        if found and has_converter_on_packet(target):
            found.append(reasons.on_packet(name))
        if found and how != "none":
            # Not what torchair says that it does, but what comes of it.
            how = "partial" if how == "partial" else "none"
        return Op(
            op=name,
            calls=seen.calls,
            how=how,
            detail=detail,
            forms=_forms(seen),
            ir=dict(seen.ir.most_common()),
            reasons=reasons.merge(found),
            notes=notes,
        )

    def decomposed(self, graphs: Iterable[Any]) -> list[Op]:
        """Return the ops of graphs that have not been taken apart, for which we did it."""
        seen: dict[str, Seen] = {}
        for gm in graphs:
            for node in gm.graph.nodes:
                name = op_name(node.target) if node.op == "call_function" else ""
                item = self._registered.get(name)
                if item is not None and item.kind == "decomposition":
                    entry = seen.setdefault(name, Seen())
                    entry.calls += 1
                    entry.forms[form_of(node)] += 1
        return [
            Op(
                op=name,
                calls=entry.calls,
                how="decomposition",
                detail=self._registered[name].how(),
                forms=_forms(entry),
            )
            for name, entry in seen.items()
        ]

    # ---- one op --------------------------------------------------------------------------------

    def _how(
        self, name: str, target: Any, seen: Seen
    ) -> tuple[How, str | None, list[Reason], list[str]]:
        if seen.troubles and self._approximate and name.split(".")[1].endswith("_for_cpu"):
            return "cpu only", "an NPU has another op in its place", [], []
        if seen.troubles:
            return self._without(name, target, seen)
        if name in self._registered:
            return "ours", self._registered[name].how(), [], []
        if not isinstance(target, torch._ops.OpOverload):
            return "built-in", None, [], []
        state = converters.status(name)
        if state == "callback":
            return "callback", _callback_needs(target), [], self._callback_notes(name)
        if seen.generated:
            return self._generated(name, target)
        notes = ["torchair's converter refuses other arguments"] if state == "partial" else []
        if seen.zero_elements == seen.calls:
            notes = ["its outputs have no elements, so it is left out"]
        return "built-in", None, [], notes

    def _without(
        self, name: str, target: Any, seen: Seen
    ) -> tuple[How, str | None, list[Reason], list[str]]:
        first = seen.troubles[0]
        failing = f"{len(seen.troubles)} of {seen.calls} calls" if seen.calls > 1 else None
        notes = [failing] if failing and len(seen.troubles) < seen.calls else []
        if not isinstance(target, torch._ops.OpOverload):
            return "none", first.where, [reasons.failed(name, f"{first.kind}: {first.text}")], notes
        decomposable = _is_decomposable(target)
        if not seen.had_converter:
            return "none", None, self._no_converter(name, target, first, decomposable), notes
        if first.only_raises:
            return "none", first.where, [reasons.stub(name, first.where, decomposable)], notes
        if first.condition or first.kind == "NotImplementedError":
            text = f"if {first.condition}" if first.condition else first.text
            return "partial", first.where, [reasons.partial(name, text, decomposable)], notes
        return "partial", first.where, [reasons.failed(name, f"{first.kind}: {first.text}")], notes

    def _no_converter(
        self, name: str, target: Any, first: Trouble, decomposable: bool
    ) -> list[Reason]:
        if name.split(".")[0] in reasons.BUILTIN_NAMESPACES:
            return [reasons.without_converter(name, decomposable)]
        definition = registered_ir(reasons.ir_name(name))
        found = reasons.auto_reasons(signature_of(target), definition, self.known_ir())
        return found or [reasons.failed(name, f"{first.kind}: {first.text}")]

    def _generated(self, name: str, target: Any) -> tuple[How, str | None, list[Reason], list[str]]:
        ir = reasons.ir_name(name)
        definition = registered_ir(ir)
        found = reasons.auto_reasons(signature_of(target), definition) if definition else []
        return "auto", f"{name.split('.')[1]} -> {ir}", found, []

    def _callback_notes(self, name: str) -> list[str]:
        if reasons.ir_name(name) not in self.known_ir():
            return []
        return [
            f"the IR {reasons.ir_name(name)} is there, but torchair looks for it before the Graph"
            " Engine has started, so the first graph of a process calls back"
        ]

    def known_ir(self) -> dict[str, IrDefinition]:
        """Return the IR that the wheel and the user's file describe."""
        if self._known is None:
            package = wheel.package_folder()
            self._known = ir_definitions.of_wheel(package) if package else {}
            if self._op_proto:
                self._known |= ir_definitions.parse(self._op_proto)
        return self._known


def _forms(seen: Seen) -> list[Form]:
    return [
        Form(inputs=list(form), calls=calls) for form, calls in seen.forms.most_common(_MOST_FORMS)
    ]


def signature_of(target: Any) -> reasons.Signature:
    """Return what torchair reads of an op's schema."""
    arguments = target._schema.arguments
    tensors = [arg for arg in arguments if str(arg.type) in _TENSORS]
    others = [arg for arg in arguments if str(arg.type) not in _TENSORS]
    return reasons.Signature(
        name=str(target),
        tensors=tuple(arg.name for arg in tensors),
        others=tuple((arg.name, _type_name(arg)) for arg in others),
        outputs=len(target._schema.returns),
        mutated=tuple(arg.name for arg in tensors if arg.alias_info and arg.alias_info.is_write),
    )


def _type_name(argument: Any) -> str:
    return "Scalar" if isinstance(argument.type, torch._C.NumberType) else str(argument.type)


def registered_ir(name: str) -> IrDefinition | None:
    """Return the IR of this name that the Graph Engine knows."""
    from torchair.core import _torchair

    ask = getattr(_torchair, "get_registered_ir_def", None)
    if ask is None:
        return None
    status, inputs, outputs, attributes = ask(name)
    if status != "SUCCESS":
        return None
    return IrDefinition(
        type=name,
        inputs=tuple((str(a), str(b)) for a, b in inputs),
        outputs=tuple((str(a), str(b)) for a, b in outputs),
        attributes=tuple((str(a), str(b)) for a, b in attributes),
    )


def has_converter_on_packet(target: Any) -> bool:
    """Say whether a converter was registered where torchair never looks."""
    packet = getattr(target, "_overloadpacket", None)
    return "_ge_converter" in getattr(packet, "__dict__", {})


def _callback_needs(target: Any) -> str:
    from torchair._ge_concrete_graph import custom_op_codegen_common as common

    return _CALLBACK_NEEDS.get(str(common.determine_callback_path(target)), _CALLBACK_NEEDS["cpp"])


def _has_no_npu_kernel(target: Any) -> bool:
    if not isinstance(target, torch._ops.OpOverload):
        return False
    if target.namespace in reasons.BUILTIN_NAMESPACES:
        return False
    name = f"{target.namespace}::{str(target).partition('.')[2].removesuffix('.default')}"
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    keys = ("PrivateUse1", "CompositeExplicitAutograd", "CompositeImplicitAutograd")
    return not any(has(name, key) for key in keys)


def _is_decomposable(target: Any) -> bool:
    from torch._decomp import decomposition_table

    return target in decomposition_table
