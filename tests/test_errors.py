"""Errors for names that do not exist."""

from __future__ import annotations

from benchbench.errors import unknown


def test_of_hundreds_of_names_only_the_nearest_are_listed() -> None:
    """Cases 23 and 59: an error stays a few short lines."""
    names = [f"aten.op{number}.default" for number in range(300)]
    text = str(unknown("converter", "aten.op299.defalt", names))
    assert "did you mean 'aten.op299.default'" in text
    assert "and 292 more" in text
    assert max(map(len, text.splitlines())) < 250


def test_of_few_names_all_are_listed() -> None:
    assert "available: a, b" in str(unknown("mode", "c", ["b", "a"]))
