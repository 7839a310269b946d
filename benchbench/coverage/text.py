"""A coverage report for the terminal, Markdown and JSON. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec
from tabulate import tabulate

from benchbench.coverage.found import Coverage, Op
from benchbench.format import byte_size, clean, seconds

_ROUTES = {
    "simulated": "real torch_npu and torchair, simulated NPU",
    "device": "real torch_npu, torchair and NPU",
    "approximate": "approximate (CPU dispatch: torchair without torch_npu)",
}
_MOST_IR = 12
_FORM_WIDTH = 60


def render(found: Sequence[Coverage]) -> str:
    """Return the report for a terminal."""
    return "\n".join(line for one in found for line in _section(one, "simple"))


def markdown(found: Sequence[Coverage]) -> str:
    """Return the report as Markdown."""
    return "\n".join(line for one in found for line in _section(one, "pipe")) + "\n"


def as_json(found: Sequence[Coverage]) -> bytes:
    """Return the report as JSON: a list with an entry per model, workload, shape and dtype."""
    entries = [
        {
            **msgspec.to_builtins(one),
            "status": one.status,
            "label": one.label,
            "npugraph_ex": one.npugraph_ex,
            "gaps": [op.op for op in one.gaps],
        }
        for one in found
    ]
    return msgspec.json.format(msgspec.json.encode(entries), indent=2) + b"\n"


def _section(one: Coverage, style: str) -> Iterator[str]:
    mark = "## " if style == "pipe" else ""
    yield f"{mark}{one.key}"
    yield ""
    place = ", ".join(filter(None, [one.soc, f"CANN {one.cann}" if one.cann else None]))
    yield f"{_capital(one.label)}. Route: {_ROUTES[one.route]}{f'; {place}' if place else ''}."
    yield f"{_capital(one.npugraph_ex)}."
    yield ""
    yield verdict(one)
    if one.ops:
        yield ""
        yield tabulate(
            [_row(op) for op in one.ops],
            headers=["op", "calls", "converted by", "inputs", "IR"],
            tablefmt=style,
            disable_numparse=True,
        )
    yield from _gaps(one, style)
    yield from _graphs(one, style)
    for name, texts in (("graph breaks", one.breaks), ("notes", one.notes)):
        if texts:
            yield ""
            yield f"{name}:"
            yield from (f"- {clean(text)}" for text in texts)
    yield ""


def verdict(one: Coverage) -> str:
    """Return one sentence: complete, what is missing, or why nothing can be said."""
    counted: Counter[str] = Counter(op.how for op in one.ops if not op.is_gap)
    ways = ", ".join(f"{n} {how}" for how, n in counted.most_common())
    if one.status == "failed":
        return f"Nothing to say: {one.error or 'no graph was lowered'}"
    if one.status == "complete":
        return f"No gap: all {len(one.ops)} ops become Ascend IR ({ways})."
    parts = [f"{op.op} ({op.calls} {'call' if op.calls == 1 else 'calls'})" for op in one.gaps]
    texts = []
    if parts:
        noun = "op has" if len(parts) == 1 else "ops have"
        texts.append(f"{len(parts)} {noun} no way into the graph: {', '.join(parts)}")
    if one.breaks:
        texts.append(f"{len(one.breaks)} graph breaks (max-autotune asks for one whole graph)")
    return f"{'; '.join(texts)}." + (f" The others: {ways}." if ways else "")


def _row(op: Op) -> list[str]:
    how = "none" if op.is_gap and op.how == "none" else op.how
    detail = f"{how}: {op.detail}" if op.detail else how
    form = ", ".join(op.forms[0].inputs) if op.forms else ""
    more = f" (+{len(op.forms) - 1} more)" if len(op.forms) > 1 else ""
    short = form if len(form) <= _FORM_WIDTH else form[: _FORM_WIDTH - 1] + "…"
    ir = " ".join(f"{name}:{n}" for name, n in op.ir.items() if "::" not in name)
    return [clean(text).replace("|", "/") for text in (op.op, str(op.calls), detail)] + [
        clean(short + more).replace("|", "/"),
        clean(ir),
    ]


def _gaps(one: Coverage, style: str) -> Iterator[str]:
    for op in one.gaps:
        yield ""
        name = f"`{op.op}`" if style == "pipe" else op.op
        yield f"{name}, {op.calls} {'call' if op.calls == 1 else 'calls'}:"
        for reason in op.reasons:
            yield f"- {clean(reason.text)}"
            yield f"  what to do: {clean(reason.advice)}"
        for note in op.notes:
            yield f"- {clean(note)}"


def _graphs(one: Coverage, style: str) -> Iterator[str]:
    for graph in one.graphs:
        yield ""
        held = f", {graph.placeholders} of them placeholders" if graph.placeholders else ""
        yield (
            f"{graph.name}: {graph.fx_nodes} FX nodes -> {graph.ir_nodes} IR nodes{held};"
            f" lowering time on this host {seconds(graph.lowering_s)}"
        )
        shown = list(graph.ir.items())[:_MOST_IR]
        rest = f", and {len(graph.ir) - len(shown)} more types" if len(graph.ir) > _MOST_IR else ""
        yield "  " + ", ".join(f"{name} {count}" for name, count in shown) + rest
    for file in one.dump:
        yield f"graph written to {file}"
    if one.seconds is not None and one.peak_rss_bytes:
        yield ""
        yield f"({seconds(one.seconds)} in all, peak memory {byte_size(one.peak_rss_bytes)})"


def _capital(text: str) -> str:
    return text if text.startswith("npugraph_ex") else text[0].upper() + text[1:]
