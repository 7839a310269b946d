"""Reasons to distrust a row, each with its next step. One enumeration, one meaning per name.

A caveat marks a number and does not hide it. What is worse than a caveat is a status or an
accuracy verdict, not a member of this list. The member's name is what records store.
"""

from __future__ import annotations

from enum import Enum


class Caveat(Enum):
    """``name`` is stored; ``mark`` is printed in the table; ``text`` and ``next_step`` explain."""

    NOISY = ("~", "samples spread widely", "close other programs, or raise measure.max_time_s")
    FEW_SAMPLES = ("#", "few samples", "raise measure.max_time_s")
    ONE_PROCESS = ("1", "one process, so no process-to-process spread", "repeat the run")
    STOPPED_BY_TIME = (
        "t",
        "sampling stopped by time before the median was settled",
        "raise measure.max_time_s",
    )
    NOT_STEADY = (
        "^",
        "the level was still moving when sampling began",
        "raise measure.warmup_max_time_s",
    )
    DRIFT = (
        "/",
        "the level moved while sampling",
        "look at the samples; repeat on a quieter machine",
    )
    OUTLIERS = (
        "o",
        "some samples are far out (kept, the median does not feel them)",
        "look at max",
    )
    STARVED = (
        "s",
        "the process did not get its core (CPU time / wall < 0.95)",
        "stop other programs",
    )
    UNSTABLE_THREADS = (
        "u",
        "times jump by a multiple: OpenMP threads fight for cores",
        "settings.threads=1, or keep GOMP_SPINCOUNT=1000",
    )
    SETTING_SPOILS = ("!", "a variable of your shell spoils this row", "see notes; unset it")
    RECOMPILED_IN_WARMUP = ("r", "recompiled while warming up", "see recompile reasons; fix shapes")
    GRAPH_BREAKS = (
        "b",
        "not one graph",
        "see graph breaks; mode.NAME.fullgraph=true makes it an error",
    )
    NOTHING_TUNED = ("0", "max-autotune tuned nothing", "the mode equals inductor for this model")
    NOT_CAPTURED = ("g", "no device graph was captured", "see the reasons in the record")
    CALLBACK_USED = ("c", "an op runs through a callback inside the graph", "write a converter")
    WARM_CACHE = (
        "w",
        "the compile cache was not empty: compile time is not cold",
        "clear the cache",
    )
    BELOW_RESOLUTION = (
        ".",
        "calls are too short for single timings: no percentiles",
        "none needed",
    )
    MEMORY_GROWS = ("m", "memory grows with every call", "look for a leak in the model")
    CHECKED_WITHOUT_GOLDEN = (
        "a",
        "accuracy was judged without a higher-precision reference",
        "see accuracy notes",
    )
    MEMOISED = ("M", "a repeated input is far quicker than a new one", "the model caches results")
    DIRTY_COMMIT = ("d", "the working tree had uncommitted changes", "commit before a run to keep")
    CRASHED_AT_EXIT = ("x", "the worker crashed after it had handed over its result", "see its log")
    MODEL_CHANGED = (
        "e",
        "model source or weights differ from the compared row",
        "compare like with like",
    )
    ENVIRONMENT_DIFFERS = ("E", "environment differs from the compared row", "see differences")
    RESUMED = ("<", "taken over from an earlier run", "none needed")
    STAND_IN = ("S", "a stand-in backend ran in place of the mode's own", "not for a history")

    def __init__(self, mark: str, text: str, next_step: str) -> None:
        self.mark = mark
        self.text = text
        self.next_step = next_step


TIMING = frozenset(
    {
        Caveat.NOISY,
        Caveat.FEW_SAMPLES,
        Caveat.ONE_PROCESS,
        Caveat.STOPPED_BY_TIME,
        Caveat.NOT_STEADY,
        Caveat.DRIFT,
        Caveat.OUTLIERS,
        Caveat.STARVED,
        Caveat.UNSTABLE_THREADS,
        Caveat.BELOW_RESOLUTION,
        Caveat.MEMOISED,
    }
)
"""Caveats that doubt a latency, so a row without one has none of them."""


def caveat(name: str) -> Caveat | None:
    """Return the caveat stored under ``name``; ``None`` for one that a newer version wrote."""
    return Caveat.__members__.get(name)
