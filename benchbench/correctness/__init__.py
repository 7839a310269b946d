"""Compares what a mode computes with what eager computes, over several calls and the state after.

``Recorder`` runs beside the calls and keeps copies, ``make_reference`` writes eager's side of the
comparison (and a float64 copy's) to a file, ``compare`` judges. The rule and its reasons are in
docs/accuracy.md.
"""

from benchbench.correctness.eager import make_reference
from benchbench.correctness.judge import WITHOUT_GOLDEN, compare
from benchbench.correctness.recorder import Recorder, weights_hash

__all__ = ["WITHOUT_GOLDEN", "Recorder", "compare", "make_reference", "weights_hash"]
