"""``rehearse``: the whole run on a simulated NPU, before a real one is booked.

The real torch_npu and torchair run over a stand-in for CANN (:mod:`benchbench.npusim`), in the same
workers as a run on a device. The report says per case what entered the graph, whether outputs agree
with the CPU's, and what would go wrong on a device. It holds no time: none would mean anything.

Never imports torch.
"""

from __future__ import annotations

import argparse
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import tabulate

from benchbench import format as text
from benchbench.errors import ConfigError
from benchbench.records import FAILED_STATUSES, GraphEvidence, Record

DEVICE = "npu-sim"
MODES = "mode=[eager,npugraph_ex,max-autotune]"
FOLDER = "rehearsals"
"""Folder inside the results folder, so that ``latest`` never means a rehearsal."""

_COMMAND = "python -m benchbench"
_CALLBACK = "automatic callback"
_ENGINE = "torchair"
_WIDTH = 100
# Beyond this share of the device's memory another model, a longer prompt or a larger batch is due.
_NEARLY_FULL = 0.9

_EPILOG = f"""examples:
  {_COMMAND} rehearse model=llama
  {_COMMAND} rehearse model=llama workload=decode 'mode=[npugraph_ex,max-autotune]'
  {_COMMAND} rehearse model=path/to/file.py dtype=float32
  {_COMMAND} rehearse model=bert device.options.soc=Ascend310P3
  {_COMMAND} rehearse model=mlp 'device.options.faults=[capture]'   what a failure looks like

Takes the keys of {_COMMAND} run. Needs torch_npu and, once, g++; needs neither an NPU nor CANN.
exit codes: 0 every case ran and agrees with the CPU, 1 one would fail, 2 usage, 4 nothing ran
"""

LIMITS = (
    "speed: no time was taken",
    "whether CANN on the device has a kernel for each operator, dtype and shape",
    "whether a converter's Ascend IR computes the right thing: its graph was run as PyTorch has it",
    "memory of the Graph Engine, and streams that a large captured graph takes",
)
"""What a rehearsal cannot tell, in the words of the report."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something to know before the case runs on a device."""

    fails: bool
    """Whether the case would fail there; otherwise it runs, but not as one would like."""
    sentence: str
    next_step: str | None = None


def main(argv: Sequence[str]) -> int:
    """Rehearse what the overrides ask for; return the exit code of the run."""
    parser = argparse.ArgumentParser(
        prog=f"{_COMMAND} rehearse",
        description="Run the selected models and modes on a simulated NPU and say what a real one"
        " would do.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("words", nargs="*", metavar="KEY=VALUE", help="as for run")
    parser.add_argument("-cd", "--config-dir", action="append", default=[], metavar="DIR",
        help="a folder with model/, mode/, suite/ of your own")  # fmt: skip
    arguments = parser.parse_intermixed_args(list(argv))
    return _rehearse(overrides(arguments.words), arguments.config_dir)


def overrides(words: Sequence[str]) -> list[str]:
    """Return the words of a run on the simulated NPU, in the modes of an NPU if none are named."""
    keys = {word.partition("=")[0].lstrip("+") for word in words}
    for word in words:
        key, _, value = word.partition("=")
        if key == "device" and value != DEVICE:
            raise ConfigError(
                f"device={value}: a rehearsal runs on the simulated NPU\n"
                f"  next: leave device out, or {_COMMAND} run device={value}"
            )
    added = [f"device={DEVICE}"] if "device" not in keys else []
    if not keys & {"mode", "suite"}:
        added.append(MODES)
    return [*words, *added]


def _rehearse(words: list[str], config_dirs: list[str]) -> int:
    from benchbench.cli import results_folder
    from benchbench.config import compose
    from benchbench.plan import build_plan, new_run_id
    from benchbench.progress import Progress
    from benchbench.runner import run_plan
    from benchbench.store import RunWriter

    conf = compose(words, config_dirs=config_dirs)
    plan = build_plan(conf, overrides=words, run_id="")
    plan = msgspec.structs.replace(plan, run_id=new_run_id())
    result = run_plan(
        plan, results_dir=results_folder(conf.results_dir) / FOLDER, progress=Progress()
    )
    report = render(result.records)
    RunWriter(result.run_dir, plan).write_text("rehearsal.txt", report)
    print(f"{report}\nrecords and logs: {result.run_dir}")  # noqa: T201 (the verb's output)
    return result.exit_code


# ---- what is to be said of a case -----------------------------------------------------------


def findings(record: Record) -> list[Finding]:
    """Return what would fail or disappoint on a device; empty for a case that is ready."""
    found = [*_failure(record)]
    if record.graph is not None:
        found += _of_graph(record.graph, failed=record.status in FAILED_STATUSES)
    found += _of_outputs(record)
    found += _of_memory(record)
    return found


def outcome(record: Record) -> str:
    """Return in a few words what would become of the case on a device."""
    if record.status in ("skipped", "not_run"):
        return text.status_word(record)
    found = findings(record)
    if any(finding.fails for finding in found):
        return "would fail"
    return "runs, see below" if found else "ready"


def _failure(record: Record) -> Iterator[Finding]:
    failure = record.failure
    if failure is None:
        return
    if record.status in ("skipped", "not_run"):
        yield Finding(False, failure.reason)
        return
    kind = "" if failure.kind == record.status else f" ({failure.kind})"
    yield Finding(
        True,
        f"{text.status_word(record)} in phase {failure.phase}{kind}: {failure.reason}",
        failure.hint,
    )


def _of_graph(graph: GraphEvidence, *, failed: bool) -> Iterator[Finding]:
    if graph.fallbacks and not failed:
        yield Finding(True, f"runs in eager: {'; '.join(graph.fallbacks)}")
    if graph.breaks:
        first = graph.breaks[0]
        where = f" at {first.location}" if first.location else ""
        count = len(graph.breaks)
        yield Finding(
            False,
            f"{count} graph break{'s' if count > 1 else ''}, the first{where}: {first.reason}",
        )
    if graph.recompiles:
        yield Finding(False, f"recompiled {len(graph.recompiles)} times: {graph.recompiles[0]}")
    for cause, times in graph.recaptures.items():
        yield Finding(False, f"captured again {times} times: {cause}", "keep addresses and shapes")
    called_back = [op for op, file in graph.converters.items() if _CALLBACK in file]
    if called_back:
        yield Finding(
            False,
            f"{', '.join(called_back)}: no converter, so torchair compiles a callback in the first"
            " call; on the device that takes g++ and CANN's headers (ASCEND_HOME_PATH)",
            f"write a converter: {_COMMAND} coverage says what is missing",
        )


def _of_outputs(record: Record) -> Iterator[Finding]:
    accuracy = record.accuracy
    if accuracy is None or record.status != "ok" or accuracy.verdict in ("pass", "off"):
        return
    reason = f": {accuracy.reason}" if accuracy.reason else ""
    verdict = accuracy.verdict.replace("_", " ")
    yield Finding(accuracy.verdict == "fail", f"outputs against the CPU: {verdict}{reason}")


def _of_memory(record: Record) -> Iterator[Finding]:
    total = _device(record).get("memory_bytes")
    peak = record.graph.counters.get("npusim peak bytes") if record.graph else None
    if total and peak and record.status == "ok" and peak > _NEARLY_FULL * total:
        yield Finding(
            False,
            f"takes {text.byte_size(peak)} of {text.byte_size(total)} device memory",
            "the Graph Engine's own memory comes on top",
        )


def _device(record: Record) -> dict[str, Any]:
    found = record.environment.get("device")
    return found if isinstance(found, dict) else {}


# ---- the report -----------------------------------------------------------------------------


def render(records: Sequence[Record]) -> str:
    """Return the report: a table per group of cases, findings, and what it cannot tell."""
    lines = [_headline(records)]
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(record.case.group, []).append(record)
    for group, members in groups.items():
        lines += ["", text.clean(group.removesuffix(f"/{DEVICE}")), *_table(members)]
        for record in members:
            lines += _lines(record)
    lines += ["", _counts(records), "", "A rehearsal does not tell:"]
    lines += [f"  - {limit}" for limit in LIMITS]
    return "\n".join(lines) + "\n"


def _headline(records: Iterable[Record]) -> str:
    facts = next((facts for record in records if (facts := _device(record))), {})
    versions = facts.get("cann")
    cann = versions.get("CANN") if isinstance(versions, dict) else versions
    parts = [
        f"simulated {facts.get('name', 'NPU')}",
        *([f"CANN {cann}"] if cann else []),
        *([f"torch_npu {facts['torch_npu']}"] if "torch_npu" in facts else []),
    ]
    return f"rehearsed on: {', '.join(parts)}"


def _table(members: Sequence[Record]) -> list[str]:
    rows = [
        {
            "mode": text.clean(_mode(record)),
            "on a device": outcome(record),
            "graph": _graph(record),
            "captures": _captures(record),
            "IR nodes": _ir(record),
            "converters": _converters(record),
            "outputs": _outputs(record),
            "memory": _memory(record),
        }
        for record in members
    ]
    drawn = tabulate.tabulate(rows, headers="keys", tablefmt="simple", disable_numparse=True)
    return [f"  {line}" for line in drawn.splitlines()]


def _mode(record: Record) -> str:
    options = ",".join(f"{name}={value}" for name, value in record.case.options.items())
    return record.case.mode + (f"{{{options}}}" if options else "")


def _ran(record: Record) -> bool:
    return record.graph is not None and record.status not in ("skipped", "not_run")


def _graph(record: Record) -> str:
    graph = record.graph
    if graph is None:
        return "none"
    if not graph.graphs:
        return "op by op" if record.status == "ok" else "none"
    ops = f"{graph.graphs} of {graph.captured_ops} ops"
    return f"{ops}, {len(graph.breaks)} breaks" if graph.breaks else ops


def _captures(record: Record) -> str:
    graph = record.graph
    if graph is None or not graph.captures:
        return "none"
    replays = graph.counters.get("npusim replays")
    return f"{graph.captures}, {replays} replays" if replays else str(graph.captures)


def _ir(record: Record) -> str:
    nodes = record.graph.ir_ops if record.graph else {}
    return f"{sum(nodes.values())} of {len(nodes)} kinds" if nodes else "none"


def _converters(record: Record) -> str:
    """Return how many ops needed a converter that torchair does not have, by who served them."""
    served = record.graph.converters if record.graph else {}
    kinds = Counter("callback" if _CALLBACK in file else "added" for file in served.values())
    return ", ".join(f"{count} {kind}" for kind, count in kinds.items()) or "none"


def _outputs(record: Record) -> str:
    accuracy = record.accuracy
    if accuracy is None or not _ran(record):
        return "not checked"
    word = accuracy.verdict.replace("_", " ")
    if accuracy.max_abs is None:
        return word
    return f"{word}, equal" if accuracy.max_abs == 0 else f"{word}, off by {accuracy.max_abs:.1e}"


def _memory(record: Record) -> str:
    memory = record.memory
    if memory is None or memory.steady_peak_bytes is None:
        return "unknown"
    size = text.byte_size(memory.steady_peak_bytes)
    engine = record.graph is not None and record.graph.effective == _ENGINE
    return f"{size} + engine" if engine else size


def _lines(record: Record) -> Iterator[str]:
    for finding in findings(record):
        yield from _wrapped(f"{_mode(record)}: {text.clean(finding.sentence)}", "  ! ")
        if finding.next_step:
            yield from _wrapped(f"next: {text.clean(finding.next_step)}", "    ")
    served = record.graph.converters if record.graph else {}
    added = [f"{op} by {file}" for op, file in served.items() if _CALLBACK not in file]
    if added:
        yield from _wrapped(f"{_mode(record)}: added converters: {', '.join(added)}", "    ")
    if record.failure is not None and record.failure.log:
        yield f"    log: {record.failure.log}"


def _wrapped(sentence: str, first: str) -> list[str]:
    return textwrap.wrap(
        sentence,
        _WIDTH,
        initial_indent=first,
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _counts(records: Sequence[Record]) -> str:
    counted = Counter(outcome(record) for record in records)
    cases = f"{len(records)} case{'' if len(records) == 1 else 's'}"
    return f"{cases}: " + ", ".join(f"{count} {word}" for word, count in counted.items())
