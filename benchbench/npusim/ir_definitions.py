"""Operator definitions in the grammar of CANN's ``REG_OP``.

The same text occurs in three places: the docstrings of the ops that the torch_npu wheel generated
from CANN's headers, the ``op_proto.h`` of a custom-op project, and the C++ that torchair generates
for an op that it calls back. So one reader serves all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_RAW_OPS = Path("dynamo", "torchair", "_ge_concrete_graph", "auto_generated_ge_raw_ops.py")
_BLOCK = re.compile(r"REG_OP\((\w+)\)(.*?)(?=REG_OP\(|OP_END_FACTORY_REG|\"\"\"|\Z)", re.DOTALL)
_CLAUSE = re.compile(
    r"\.((?:OPTIONAL_|DYNAMIC_|REQUIRED_)?(?:INPUT|OUTPUT|ATTR))\(\s*(\w+)\s*(?:,\s*(\w+))?"
)
_KINDS = {
    "INPUT": "required",
    "OPTIONAL_INPUT": "optional",
    "DYNAMIC_INPUT": "dynamic",
    "OUTPUT": "required",
    "DYNAMIC_OUTPUT": "dynamic",
}
# Attribute types as GE names them in a registered definition.
_TYPES = {
    "Int": "VT_INT",
    "Float": "VT_FLOAT",
    "Bool": "VT_BOOL",
    "String": "VT_STRING",
    "Type": "VT_DATA_TYPE",
    "ListInt": "VT_LIST_INT",
    "ListFloat": "VT_LIST_FLOAT",
    "ListBool": "VT_LIST_BOOL",
    "ListString": "VT_LIST_STRING",
    "ListType": "VT_LIST_DATA_TYPE",
    "ListListInt": "VT_LIST_LIST_INT",
    "ListListFloat": "VT_LIST_LIST_FLOAT",
}


@dataclass(frozen=True, slots=True)
class IrDefinition:
    """One operator; each item is a name with its kind (``required``, ...) or attribute type."""

    type: str
    inputs: tuple[tuple[str, str], ...] = ()
    outputs: tuple[tuple[str, str], ...] = ()
    attributes: tuple[tuple[str, str], ...] = ()

    def line(self) -> str:
        """Return the form that the C++ side reads (see ge_ir.cpp)."""
        columns = (self.inputs, self.outputs, self.attributes)
        texts = [",".join(f"{name}:{kind}" for name, kind in column) for column in columns]
        return "|".join([self.type, *texts])


def parse(text: str) -> dict[str, IrDefinition]:
    """Return the operators that a text with ``REG_OP`` blocks defines, by type."""
    return {type_: _definition(type_, body) for type_, body in _BLOCK.findall(text)}


def _definition(type_: str, body: str) -> IrDefinition:
    inputs: list[tuple[str, str]] = []
    outputs: list[tuple[str, str]] = []
    attributes: list[tuple[str, str]] = []
    for clause, name, word in _CLAUSE.findall(body):
        if clause.endswith("ATTR"):
            attributes.append((name, _TYPES.get(word, f"VT_{word.upper()}")))
        elif clause in _KINDS:
            (inputs if clause.endswith("INPUT") else outputs).append((name, _KINDS[clause]))
    return IrDefinition(type_, tuple(inputs), tuple(outputs), tuple(attributes))


def of_wheel(package: Path) -> dict[str, IrDefinition]:
    """Return the built-in operators that the torch_npu package in this folder describes."""
    return parse((package / _RAW_OPS).read_text(encoding="utf-8"))
