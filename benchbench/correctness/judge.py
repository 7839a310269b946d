"""Judges what a mode computed against eager's trace, leaf by leaf, and sums up in one verdict."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

import torch

from benchbench.correctness import rules
from benchbench.correctness.leaves import Leaf, is_none
from benchbench.correctness.recorder import Changes, Recorder, Trace
from benchbench.correctness.reference import Reference, UnreadableReference, load
from benchbench.correctness.rules import Judged
from benchbench.records import Accuracy, AccuracyResult

WITHOUT_GOLDEN = "judged without a higher-precision reference"
"""The note on a result that had to do without a float64 copy; the next note says why."""

MAX_NOTES = 12
AFTER = "after the calls"


def compare(
    recorder: Recorder, path: str | Path, dtype: str | torch.dtype | None
) -> AccuracyResult:
    """Return how the recorded calls and state agree with the reference file.

    ``dtype`` is the case's dtype, by name or as torch's; it sets the tolerance together with each
    leaf's own. An unusable reference is ``not_comparable`` with its reason, never an exception.
    """
    try:
        reference = load(Path(path))
    except UnreadableReference as error:
        return AccuracyResult(verdict="not_comparable", reason=str(error))
    return judge_trace(reference, recorder.trace, dtype)


def judge_trace(
    reference: Reference, trace: Trace, dtype: str | torch.dtype | None
) -> AccuracyResult:
    """Return how ``trace`` agrees with the reference."""
    if reference.not_repeatable is not None:
        return AccuracyResult(
            verdict="random", reason=f"eager not repeatable: {reference.not_repeatable}"
        )
    reason = _unlike(reference.trace, trace)
    if reason is not None:
        return AccuracyResult(verdict="not_comparable", reason=reason)
    tally = _Tally(_dtype(dtype))
    golden = reference.golden
    for i, call in reference.trace.calls.items():
        where, truth = f"call {i}", golden.calls.get(i, {})
        tally.outputs(where, call.outputs, trace.calls[i].outputs, truth)
        tally.changes(where, call.inputs, trace.calls[i].inputs, truth)
    tally.changes(AFTER, reference.trace.state, trace.state, golden.state)
    return tally.result(reference, len(trace.calls))


def _unlike(eager: Trace, candidate: Trace) -> str | None:
    """Return why two traces are not of the same thing, or ``None``."""
    if eager.weights != candidate.weights:
        return "the reference was made from other weights"
    if eager.seed != candidate.seed or eager.calls.keys() != candidate.calls.keys():
        return (
            f"the reference holds calls {list(eager.calls)} of seed {eager.seed}, "
            f"not calls {list(candidate.calls)} of seed {candidate.seed}"
        )
    for i, call in eager.calls.items():
        if call.inputs_digest != candidate.calls[i].inputs_digest:
            return f"make_inputs gave other values for call {i} than in the reference"
    return None


def _dtype(dtype: str | torch.dtype | None) -> torch.dtype | None:
    if isinstance(dtype, str):
        found = getattr(torch, dtype, None)
        return found if isinstance(found, torch.dtype) else None
    return dtype


@dataclass(slots=True)
class _Tally:
    """Sums up the leaves of one comparison."""

    dtype: torch.dtype | None
    compared: int = 0
    compared_outputs: int = 0
    opaque: list[str] = field(default_factory=list)
    failures: list[tuple[str, Judged]] = field(default_factory=list)
    worst: tuple[str, Judged] | None = None
    notes: dict[str, None] = field(default_factory=dict)
    without_golden: bool = False

    def outputs(
        self,
        where: str,
        eager: dict[str, Leaf],
        candidate: dict[str, Leaf],
        golden: dict[str, torch.Tensor],
    ) -> None:
        """Compare the outputs of one call."""
        before = self.compared
        broken: tuple[str, ...] = ()
        for path in [*eager, *(path for path in candidate if path not in eager)]:
            if path.startswith(broken):
                continue  # one line for a part that is missing, not one for each leaf in it
            if not self._pair(where, path, eager.get(path), candidate.get(path), golden):
                broken = (*broken, f"{path}.", f"{path}[")
        self.compared_outputs += self.compared - before

    def changes(
        self, where: str, eager: Changes, candidate: Changes, golden: dict[str, torch.Tensor]
    ) -> None:
        """Compare what the two sides changed in their inputs or state."""
        for path in sorted(eager.changed | candidate.changed):
            if path in eager.changed:
                expected = eager.after.get(path)
                hint = "" if path in candidate.changed else "; the candidate does not change it"
            else:
                expected = candidate.before.get(path)
                hint = "; eager does not change it"
            self._pair(where, path, expected, candidate.after.get(path), golden, hint)

    def _pair(
        self,
        where: str,
        path: str,
        eager: Leaf | None,
        candidate: Leaf | None,
        golden: dict[str, torch.Tensor],
        hint: str = "",
    ) -> bool:
        """Compare two leaves; return whether what lies below them can be paired as well."""
        name = f"{where}: {path}"
        fault = _structure(eager, candidate)
        if fault is not None or eager is None or candidate is None:
            judged = Judged(False, math.inf, f"{fault}{hint}", by_value=False)
            self.failures.append((name, judged))
            return False
        if eager.kind == "opaque":
            self.opaque.append(f"{name}: {eager.text}")
        elif eager.kind == "value":
            self._value(name, eager, candidate, hint)
        elif eager.tensor is not None and candidate.tensor is not None:
            self._tensor(name, eager.tensor, candidate.tensor, golden.get(path), hint)
        return True

    def _value(self, name: str, eager: Leaf, candidate: Leaf, hint: str) -> None:
        if is_none(eager):
            return
        self.compared += 1
        if eager.text != candidate.text:
            reason = f"is {_short(candidate.text)}, eager gives {_short(eager.text)}{hint}"
            self.failures.append((name, Judged(False, math.inf, reason)))

    def _tensor(
        self,
        name: str,
        eager: torch.Tensor,
        candidate: torch.Tensor,
        golden: torch.Tensor | None,
        hint: str,
    ) -> None:
        self.compared += 1
        allowed = rules.tolerance(self.dtype, eager.dtype)
        judged = rules.judge(eager, candidate, golden, allowed)
        for note in judged.notes:
            self.notes[f"{name}: {note}"] = None
        if not judged.ok:
            judged.reason = f"{judged.reason}{hint}"
            self.failures.append((name, judged))
        elif self.worst is None or judged.severity > self.worst[1].severity:
            self.worst = (name, judged)
        rounded = rules.is_fraction(eager.dtype) and torch.float64 not in (self.dtype, eager.dtype)
        self.without_golden |= rounded and not judged.golden and judged.max_abs != 0.0

    def result(self, reference: Reference, calls: int) -> AccuracyResult:
        """Return the verdict."""
        verdict, reason = self._verdict(reference.random)
        notes = list(self.notes)
        if self.without_golden:
            why = reference.golden.missing or "it lacks this leaf or is too far from eager"
            notes[:0] = [WITHOUT_GOLDEN, f"no higher-precision reference: {why}"]
        if reference.random:
            notes.append("the model draws random numbers")
        notes += self.opaque
        if len(notes) > MAX_NOTES:
            notes[MAX_NOTES:] = [f"and {len(notes) - MAX_NOTES} more notes"]
        name, worst = self._worst()
        return AccuracyResult(
            verdict=verdict,
            reason=reason,
            max_abs=worst.max_abs,
            max_rel=worst.max_rel,
            cosine=worst.cosine,
            error_eager=worst.error_eager,
            error_candidate=worst.error_candidate,
            tolerance=worst.tolerance,
            worst=name,
            compared_leaves=self.compared,
            compared_calls=calls if self.compared or self.failures else 0,
            notes=notes,
        )

    def _worst(self) -> tuple[str | None, Judged]:
        """Return the leaf that all figures are of; unnamed when nothing differs at all."""
        if self.failures:
            return max(self.failures, key=lambda failure: failure[1].severity)
        if self.worst is None:
            return None, Judged(True, 0.0)
        name, judged = self.worst
        return (name if judged.max_abs != 0.0 else None), judged

    def _verdict(self, random: bool) -> tuple[Accuracy, str | None]:
        if self.failures:
            return self._failed(random)
        if self.opaque and not self.compared_outputs:
            return "not_comparable", self.opaque[0]
        if not self.compared:
            return "nothing_to_compare", "the model returns nothing and changes nothing"
        return "pass", None

    def _failed(self, random: bool) -> tuple[Accuracy, str]:
        structural = [failure for failure in self.failures if not failure[1].by_value]
        if structural:
            name, judged = structural[0]
        else:
            name, judged = max(self.failures, key=lambda failure: failure[1].severity)
        reason = f"{name}: {judged.reason}"
        if len(self.failures) > 1:
            first = self.failures[0][0].split(":", 1)[0]
            reason += f" ({len(self.failures)} leaves differ, first at {first})"
        if random and not structural:
            return "random", f"random: not comparable; {reason}"
        return "fail", reason


def _structure(eager: Leaf | None, candidate: Leaf | None) -> str | None:
    """Return how two leaves differ in kind, or ``None`` when their values can be compared."""
    if candidate is None:
        return "missing in the candidate"
    if eager is None:
        return "not there in eager"
    if eager.type != candidate.type or eager.kind != candidate.kind:
        return f"is {candidate.type}, eager gives {eager.type}"
    if eager.kind == "container" and eager.text != candidate.text:
        return f"is {candidate.text}, eager gives {eager.text}"
    if eager.tensor is None or candidate.tensor is None:
        return None
    if eager.tensor.dtype != candidate.tensor.dtype:
        return f"is {_text(candidate.tensor.dtype)}, eager gives {_text(eager.tensor.dtype)}"
    if eager.tensor.shape != candidate.tensor.shape:
        return f"has shape {tuple(candidate.tensor.shape)}, eager's is {tuple(eager.tensor.shape)}"
    return None


def _text(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _short(text: str, limit: int = 60) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
