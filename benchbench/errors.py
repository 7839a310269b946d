"""Errors that a user can mend, and the near-match text that every one of them uses.

A :class:`BenchbenchError` is printed without a traceback. Its text says what is wrong, the value,
what would be accepted (nearest match first) and what to type next.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_MOST_NAMES = 40
_NEAR_NAMES = 8


class BenchbenchError(Exception):
    """Base of all errors that end in a message for the user instead of a traceback."""

    exit_code = 2


class ConfigError(BenchbenchError):
    """The command line or a configuration file asks for something that does not exist."""


class LoadError(BenchbenchError):
    """A model, mode or plugin that a target names cannot be found or does not fit its case."""


class StoreError(BenchbenchError):
    """The results folder cannot be read or written as asked."""


class WorkerError(BenchbenchError):
    """A worker process could not be started at all (never: a case failed inside it)."""


def did_you_mean(value: str, accepted: Iterable[str]) -> str:
    """Return ``" (did you mean 'x'?)"`` for the nearest accepted word, or an empty string.

    Case, ``-`` and ``_`` are ignored when looking for the nearest word, because users write
    ``ACLGraph`` and ``npugraph-ex``.
    """
    folded = {_fold(word): word for word in accepted}
    near = difflib.get_close_matches(_fold(value), folded, n=1, cutoff=0.6)
    return f" (did you mean '{folded[near[0]]}'?)" if near else ""


def unknown(
    kind: str, value: str, accepted: Iterable[str], *, next_step: str | None = None
) -> ConfigError:
    """Return the error for a name that is not among the ``accepted`` names of a ``kind``."""
    names = sorted(accepted)
    lines = [f"unknown {kind} '{value}'{did_you_mean(value, names)}"]
    lines.append(f"  available: {_listed(value, names)}")
    if next_step:
        lines.append(f"  next: {next_step}")
    return ConfigError("\n".join(lines))


def _listed(value: str, names: list[str]) -> str:
    """Return the names; of very many only those that come nearest, and how many there are."""
    if len(names) <= _MOST_NAMES:
        return ", ".join(names) if names else "(none)"
    near = difflib.get_close_matches(value, names, n=_NEAR_NAMES, cutoff=0.0)
    return f"{', '.join(near)} and {len(names) - len(near)} more"


def _fold(word: str) -> str:
    return word.casefold().replace("-", "").replace("_", "")
