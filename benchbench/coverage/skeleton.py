"""A converter file to start from, made of an op's schema and an IR definition.

``source`` is pure; the schema comes from a worker, because only that may import torch.
"""

from __future__ import annotations

import difflib
import keyword
from collections.abc import Mapping, Sequence

import msgspec

from benchbench.coverage.reasons import ir_name
from benchbench.npusim.ir_definitions import IrDefinition

_ATTRIBUTES = {
    "VT_INT": "Int",
    "VT_FLOAT": "Float",
    "VT_BOOL": "Bool",
    "VT_STRING": "Str",
    "VT_DATA_TYPE": "DataType",
    "VT_LIST_INT": "ListInt",
    "VT_LIST_FLOAT": "ListFloat",
    "VT_LIST_BOOL": "ListBool",
    "VT_LIST_DATA_TYPE": "ListDataType",
    "VT_LIST_STRING": "ListStr",
    "VT_LIST_LIST_INT": "ListListInt",
    "VT_LIST_LIST_FLOAT": "ListListFloat",
}


class Argument(msgspec.Struct, frozen=True, kw_only=True):
    """One argument of an op."""

    name: str
    type: str
    default: str | None = None
    """Python source of the default; absent when there is none."""
    keyword_only: bool = False
    written: bool = False


class Schema(msgspec.Struct, frozen=True, kw_only=True):
    """An op's schema, without torch."""

    op: str
    """``namespace.op.overload``."""
    text: str
    arguments: list[Argument]
    outputs: int


def nearest(op: str, definitions: Mapping[str, IrDefinition]) -> list[IrDefinition]:
    """Return the IR definitions whose names come nearest to an op's, the best first."""
    wanted = ir_name(op)
    if wanted in definitions:
        return [definitions[wanted]]
    folded = {name.casefold(): name for name in definitions}
    near = difflib.get_close_matches(wanted.casefold(), folded, n=4, cutoff=0.75)
    return [definitions[folded[name]] for name in near]


def source(schema: Schema, candidates: Sequence[IrDefinition]) -> str:
    """Return the text of a converter file for an op; it loads, and raises until it is filled in.

    With a candidate of the very same inputs and attributes the body is complete.
    """
    ir = candidates[0] if candidates else None
    lines = [
        f'"""{schema.op} as Ascend IR{f": {ir.type}" if ir else ""}.',
        "",
        f"{schema.text}",
        *(_described(candidate) for candidate in candidates[:4]),
        '"""',
        "",
        "from benchbench.converter_kit import Converters",
        "",
        f'OPS = ("{schema.op}",)',
        'KIND = "converter"',
        "",
        "converter = Converters()",
        "register = converter.register",
        "",
        "",
        f'@converter("{schema.op}")',
        f"def convert({_parameters(schema)}):",
        *(f"    {line}".rstrip() for line in _body(schema, ir)),
        "",
    ]
    return "\n".join(lines)


def _described(ir: IrDefinition) -> str:
    def listed(items: tuple[tuple[str, str], ...]) -> str:
        return ", ".join(f"{name}: {kind}" for name, kind in items) or "none"

    attributes = listed(ir.attributes)
    return f"{ir.type}({listed(ir.inputs)}) -> ({listed(ir.outputs)}), attributes {attributes}"


def _parameters(schema: Schema) -> str:
    positional = [_parameter(a) for a in schema.arguments if not a.keyword_only]
    named = [_parameter(a) for a in schema.arguments if a.keyword_only]
    return ", ".join([*positional, *(["*"] if named else []), *named, "meta_outputs=None"])


def _parameter(argument: Argument) -> str:
    name = _name(argument.name)
    return name if argument.default is None else f"{name}={argument.default}"


def _name(name: str) -> str:
    return f"{name}_" if keyword.iskeyword(name) else name


def _body(schema: Schema, ir: IrDefinition | None) -> list[str]:
    if ir is None:
        return [
            "# No IR has a name like this op's. Build it of others, for example",
            "# from benchbench.converter_kit import ge; return ge.Mul(x, ge.Sigmoid(x))",
            f'raise NotImplementedError("{schema.op}: not written yet")',
        ]
    names = {argument.name: argument for argument in schema.arguments}
    missing: list[str] = []
    inputs = [f'"{name}": {_value(name, names, missing)}' for name, _ in ir.inputs]
    attributes = []
    for name, kind in ir.attributes:
        if name in names:
            made = _ATTRIBUTES.get(kind, kind.removeprefix("VT_"))
            attributes.append(f'"{name}": attr.{made}({_name(name)})')
    outputs = [f'("{name}", 1)' if kind == "dynamic" else f'"{name}"' for name, kind in ir.outputs]
    left = [
        name
        for name in names
        if name not in {n for n, _ in ir.inputs} and name not in {n for n, _ in ir.attributes}
    ]
    lines = ["from torchair.ge import attr, custom_op", ""]
    if missing or left:
        lines += [
            f"# To decide: inputs of {ir.type} without an argument of that name:"
            f" {', '.join(missing) or 'none'};",
            f"# arguments without a place in {ir.type}: {', '.join(left) or 'none'}.",
            "# An argument that becomes an input: torchair.ge.Const(value, dtype=...).",
            f'raise NotImplementedError("{schema.op}: not written yet")',
        ]
    lines += [
        "out = custom_op(",
        f'    "{ir.type}",',
        f"    inputs={{{', '.join(inputs)}}},",
        f"    outputs=[{', '.join(outputs)}],",
        f"    attrs={{{', '.join(attributes)}}},",
        ")",
    ]
    return [*lines, f"return {_returned(schema, ir)}"]


def _value(name: str, names: Mapping[str, Argument], missing: list[str]) -> str:
    if name in names:
        return _name(name)
    missing.append(name)
    return "None"


def _returned(schema: Schema, ir: IrDefinition) -> str:
    """Return what to return: an in-place op does not return what it changes."""
    written = {argument.name for argument in schema.arguments if argument.written}
    kept = [i for i, (name, _) in enumerate(ir.outputs) if name not in written]
    if len(ir.outputs) == 1:
        return "out" if kept else "()"
    if len(kept) == len(ir.outputs):
        return "out"
    picked = ", ".join(f"out[{index}]" for index in kept)
    return picked if len(kept) == 1 else f"({picked})"
