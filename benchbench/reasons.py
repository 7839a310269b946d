"""Torch's many-line messages as one line that a table has room for. Pure text, no torch."""

from __future__ import annotations

import re

from benchbench import npu_errors

MAX_REASON = 300

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_NO_SCHEMA = "infer_schema(func): "
_SIGNATURE = " Got func with signature "


def one_line(text: str, limit: int = MAX_REASON) -> str:
    """Return the text in one line of at most ``limit`` characters."""
    flat = " ".join(_ADDRESS.sub("", text).split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def break_reason(text: str) -> str:
    """Return torch's many-line message as one line: what, and the object that it is about."""
    first = text.strip().split("\n", 1)[0].strip()
    context = re.search(r"Developer debug context: *(.+)", text)
    about = context[1].strip() if context else ""
    node = re.search(r"failed to run FX node with fake tensors: call_\w+ ([\w.]+)\(", text)
    if node and not about:
        about = node[1]
    if not first:
        return one_line(text)
    if first.startswith("generic_jump"):
        return "data-dependent branch"
    if about and about not in first:
        first = f"{first}: {about}"
    elif not context and len(first) < 20:
        return one_line(text)
    return one_line(first)


def recompile_reason(text: str) -> str:
    """Return the guard that failed, without torch's source quotation and hints."""
    line = text.strip().split("\n", 1)[0]
    line = re.sub(r"^\s*(-\s*)?\d+/\d+:\s*", "", line)
    return one_line(re.split(r"\s{2,}#|\(HINT:", line)[0]) or one_line(text)


def _with_ops(reason: str, message: str) -> str:
    """Return the reason with the ops that only later lines of the message name."""
    ops = dict.fromkeys(re.findall(r"Error in op: ([\w.]+)", message))
    missing = [op for op in ops if op not in reason]
    return one_line(f"{', '.join(missing)}: {reason}") if missing else reason


def _undeclared(message: str) -> str:
    """Return why a custom op has no schema, without torch's list of all types that would do."""
    said, _, signature = message.removeprefix(_NO_SCHEMA).partition(_SIGNATURE)
    said = re.split(r"\s*The valid types are", said)[0].rstrip(".")
    return f"a custom op cannot be declared: {said}, in {signature.removesuffix(')')}"


def error_reason(error: BaseException) -> tuple[str, str, str | None]:
    """Return kind, one-line reason and hint of an exception that came out of compiling or running.

    The wrapper that torch puts around a backend's exception is opened, since its text says nothing.
    """
    inner = error
    while isinstance(getattr(inner, "inner_exception", None), BaseException):
        inner = inner.inner_exception  # type: ignore[attr-defined]
    kind = type(inner).__name__
    if str(inner).startswith(_NO_SCHEMA):
        hint = "torch.library takes tensors, numbers, strings and lists of them"
        return kind, one_line(_undeclared(str(inner))), hint
    text = _with_ops(break_reason(str(inner)) or kind, str(inner))
    if kind == "FailOnRecompileLimitHit":
        return kind, "recompile limit reached under fullgraph", "fix what the reasons name"
    if kind == "Unsupported":
        return kind, text, "all breaks are in the record; fullgraph=false counts them instead"
    if "incorrect fake" in str(inner) or "meta) kernel" in str(inner):
        return kind, text, "the op's Meta function promises another shape, stride or dtype"
    if "ge_converter" in str(inner) or "AscendIR" in str(inner):
        return kind, text, "the op needs a converter: python -m benchbench coverage"
    npu = npu_errors.explain(str(inner)) if isinstance(inner, RuntimeError) else None
    if npu is not None:
        return kind, one_line(npu[0]), npu[1]
    return kind, text, None
