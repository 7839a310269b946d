"""Why torchair cannot convert an op, in the words of the vendor's guide. Pure; no torch.

torchair derives the IR type of a custom op from its name and binds tensors to the IR's inputs and
the other arguments to its attributes, all by position. It compares numbers only: arguments in
another order are bound to the wrong inputs without a word, so the order is compared here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchbench.coverage.found import Reason
from benchbench.npusim.ir_definitions import IrDefinition

_BUILTIN_WORDS = ("prim", "aten")
BUILTIN_NAMESPACES = frozenset({"aten", "prim", "prims"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """What matters of an op's schema."""

    name: str
    """``namespace.op.overload``."""
    tensors: tuple[str, ...]
    """Arguments that torchair takes for tensors: ``Tensor``, ``Tensor?``, ``Tensor[]``."""
    others: tuple[tuple[str, str], ...]
    """Name and type of the other arguments."""
    outputs: int
    mutated: tuple[str, ...] = ()
    """Tensor arguments that the op writes to."""

    @property
    def scalars(self) -> list[str]:
        """Return the arguments of type ``Scalar``."""
        return [name for name, kind in self.others if kind == "Scalar"]


def ir_name(op: str) -> str:
    """Return the IR type that torchair derives: ``ns.my_op.default`` -> ``MyOp``."""
    words = op.split(".")[1].split("_")
    if words[-1] == "functional":
        words = words[:-1]
    return "".join(word.capitalize() for word in words)


def auto_reasons(
    signature: Signature, definition: IrDefinition | None, known: Iterable[str] = ()
) -> list[Reason]:
    """Return everything that is in the way of a generated converter; none when it works.

    ``definition`` is the IR of the derived name, ``known`` the IR types there are.
    """
    if signature.name.split(".")[0] in BUILTIN_NAMESPACES:
        return [_no_converter(signature.name)]
    found = [*_name_reasons(signature.name), *_scalar_reasons(signature)]
    if definition is None:
        found.append(_no_ir(signature.name, known))
    else:
        found += [*_number_reasons(signature, definition), *_order_reasons(signature, definition)]
    return found


def _no_converter(op: str) -> Reason:
    return Reason(
        cause="no converter",
        text="PyTorch built-in ops do not support auto-generated converters, and none is there",
        advice=f"a decomposition, or a converter: {skeleton_command(op)}",
    )


def _name_reasons(op: str) -> Iterator[Reason]:
    word = next((word for word in _BUILTIN_WORDS if word in op), None)
    if word is not None:
        yield Reason(
            cause="substring",
            text=f'the name contains "{word}", so torchair takes the op for a PyTorch built-in',
            advice=f"rename the op or its namespace, or write a converter: {skeleton_command(op)}",
        )


def _scalar_reasons(signature: Signature) -> Iterator[Reason]:
    for name in signature.scalars:
        yield Reason(
            cause="Scalar",
            text=f"Scalar argument {name}: no converter is generated for a schema with a Scalar",
            advice=(
                f"write float {name} (or int) in the schema, or a converter:"
                f" {skeleton_command(signature.name)}"
            ),
        )


def _no_ir(op: str, known: Iterable[str]) -> Reason:
    wanted = ir_name(op)
    folded = {_fold(name): name for name in known}
    near = folded.get(_fold(wanted))
    packet = op.split(".")[1]
    if near is not None:
        return Reason(
            cause="name",
            text=f"the name does not map: {packet} -> {wanted}, but the IR is called {near}",
            advice=(
                f"name the torch op so that it becomes {near}, or write a converter:"
                f" {skeleton_command(op)}"
            ),
        )
    return Reason(
        cause="no IR",
        text=f"no IR: {packet} -> {wanted}, and no Ascend IR of that name is registered",
        advice=(
            f"register the IR {wanted} (tell coverage of it with --op-proto FILE),"
            f" or write a converter of existing IR: {skeleton_command(op)}"
        ),
    )


def _number_reasons(signature: Signature, ir: IrDefinition) -> Iterator[Reason]:
    names = [name for name, _ in ir.inputs]
    given = signature.tensors
    if len(given) != len(names):
        yield _differs(
            signature,
            "number",
            f"inputs differ in number: torch has {_listed(given)}, {ir.type} has {_listed(names)}",
        )
    attributes = [name for name, _ in ir.attributes]
    others = [name for name, _ in signature.others]
    if len(others) > len(attributes):
        yield _differs(
            signature,
            "number",
            f"arguments differ in number: torch has {_listed(others)} beside the tensors,"
            f" {ir.type} has the attributes {_listed(attributes)}",
        )
    outputs = [name for name, _ in ir.outputs]
    if signature.outputs + len(signature.mutated) != len(outputs):
        yield _differs(
            signature,
            "number",
            f"outputs differ in number: torch has {signature.outputs}"
            + (f" and changes {_listed(signature.mutated)}" if signature.mutated else "")
            + f", {ir.type} has {_listed(outputs)}",
        )
    in_place = [name for name in outputs if name in names]
    if signature.mutated and len(signature.mutated) != len(in_place):
        yield _differs(
            signature,
            "number",
            f"in-place inputs differ in number: torch changes {_listed(signature.mutated)},"
            f" {ir.type} changes {_listed(in_place)}",
        )


def _order_reasons(signature: Signature, ir: IrDefinition) -> Iterator[Reason]:
    others = [name for name, _ in signature.others]
    for what, given, wanted in (
        ("inputs", signature.tensors, [name for name, _ in ir.inputs]),
        ("attributes", others, [name for name, _ in ir.attributes][: len(others)]),
    ):
        if list(given) != wanted and sorted(map(_fold, given)) == sorted(map(_fold, wanted)):
            yield _differs(
                signature,
                "order",
                f"{what} differ in order: torch has {_listed(given)}, {ir.type} has"
                f" {_listed(wanted)}; torchair binds them by position and says nothing",
            )


def _differs(signature: Signature, cause: str, text: str) -> Reason:
    return Reason(
        cause="order" if cause == "order" else "number",
        text=text,
        advice=(
            "adjust the torch schema to the IR, or write a converter:"
            f" {skeleton_command(signature.name)}"
        ),
    )


def stub(op: str, where: str | None, decomposable: bool) -> Reason:
    """Return the reason for a converter that only raises."""
    place = f" ({where})" if where else ""
    return Reason(
        cause="only raises",
        text=f"only raises: the op is registered{place}, but its converter is not implemented",
        advice=_decompose_or_write(op, decomposable),
    )


def partial(op: str, condition: str, decomposable: bool) -> Reason:
    """Return the reason for a converter that refuses these arguments."""
    return Reason(
        cause="partial",
        text=f"the converter refuses these arguments: {condition}",
        advice=f"call it otherwise, or {_decompose_or_write(op, decomposable)}",
    )


def failed(op: str, error: str) -> Reason:
    """Return the reason for a converter that broke."""
    return Reason(
        cause="converter failed",
        text=f"the converter failed: {error}",
        advice="if the converter is yours, mend it; else call the op otherwise, or "
        f"write one: {skeleton_command(op)}",
    )


def without_converter(op: str, decomposable: bool) -> Reason:
    """Return the reason for a built-in op that torchair has nothing for."""
    reason = _no_converter(op)
    return Reason(
        cause=reason.cause, text=reason.text, advice=_decompose_or_write(op, decomposable)
    )


def missing_meta(op: str, how_known: str) -> Reason:
    """Return the reason for an op whose output shapes nobody can know while tracing."""
    return Reason(
        cause="Meta",
        text=f"missing Meta: every graph mode needs it ({how_known})",
        advice=f'@torch.library.register_fake("{"::".join(op.split(".")[:2])}") returning empty'
        " tensors of the right shape and dtype",
    )


def on_packet(op: str) -> Reason:
    """Return the reason for a converter that torchair never looks at."""
    packet = op.rpartition(".")[0]
    return Reason(
        cause="packet",
        text=f"a converter is registered on the packet torch.ops.{packet} instead of"
        f" torch.ops.{op}, where it is never used",
        advice=f"@register_fx_node_ge_converter(torch.ops.{op})",
    )


def _decompose_or_write(op: str, decomposable: bool) -> str:
    ways = []
    if decomposable:
        name = ".".join(op.split(".")[:2])
        ways.append(f"decompose it: 'mode.max-autotune.options.decompositions=[{name}]'")
    ways.append(f"write a converter: {skeleton_command(op)}")
    return "; or ".join(ways)


def skeleton_command(op: str) -> str:
    """Return the command that writes a converter to start from."""
    return f"python -m benchbench coverage --skeleton {op}"


def _listed(names: Sequence[str]) -> str:
    return f"({', '.join(names)})" if names else "none"


def _fold(name: str) -> str:
    return re.sub(r"[^0-9a-z]", "", name.casefold())


def merge(reasons: Iterable[Reason]) -> list[Reason]:
    """Return each reason once, in order."""
    unique: Mapping[str, Reason] = {reason.text: reason for reason in reasons}
    return list(unique.values())
