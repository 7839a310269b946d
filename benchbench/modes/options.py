"""Typed option tables of our own: what each option accepts, checked before anything starts.

The libraries check late and loosely: a misspelt npugraph_ex option fails only in the first call, a
free string reaches the Graph Engine unread, ``1`` passes for ``true``, and an unknown attribute of
some torchair objects is taken without a word. A table here knows each option's type, range, scope,
dependencies and the torch_npu version that brought it, and answers in one sentence.

Options may be typed by their full dotted path or by any suffix that only one option has, so
``frozen_parameter`` means ``experimental_config.frozen_parameter``. ``null`` means "as the library
has it". This module never imports torch.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

from benchbench.errors import did_you_mean
from benchbench.records import Json

Kind = Literal[
    "bool",
    "int",
    "float",
    "str",
    "folder",
    "file",
    "function",
    "dict",
    "int_list",
    "gears",
    "decompositions",
]
Scope = Literal["local", "global", "ours"]

INT64_MAX = 2**63 - 1
MAX_GEARS = 100  # the Graph Engine's limit of gear combinations


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option of a backend, as its table row says it."""

    path: str
    """Dotted path as the library names it, e.g. ``experimental_config.frozen_parameter``."""
    kind: Kind = "bool"
    default: Json = None
    choices: tuple[str, ...] = ()
    low: int | None = None
    high: int | None = None
    pattern: str | None = None
    example: str | None = None
    keys: Mapping[str, str] | None = None
    """For a dict: key -> type word (``int``, ``str``, ``str_list``, ``int_dict``)."""
    scope: Scope = "local"
    """``global``: one value per process, hence one process per variant; ``ours``: not theirs."""
    since: str | None = None
    """First torch_npu version that has it."""
    needs: str | None = None
    """Option that has to be on (or set) for this one to do anything."""
    diagnosis: bool = False
    """Any other value than the default makes the row a diagnosis, not a timing."""
    timed_with: str | None = None
    """Option that, once changed from its default, makes the row a timing after all."""
    refused: str | None = None
    """Why this option cannot be used here, for options that exist but make no sense in a run."""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """The options of one backend."""

    title: str
    options: tuple[Option, ...]
    known_elsewhere: Callable[[str], bool] | None = None
    """Says whether a name outside the table exists in the installed library after all."""
    full_names: bool = False
    """Whether options are shown by their full path, because a suffix would mislead."""
    other_names: Callable[[], list[str]] | None = None
    """More names for the nearest match, asked only when a name is not in the table."""

    def find(self, name: str) -> Option | None:
        """Return the option of this full path or unique suffix, else ``None``."""
        matches = self._matches(name)
        return matches[0] if len(matches) == 1 else None

    def short(self, option: Option) -> str:
        """Return the shortest suffix of the option's path that names it alone."""
        if self.full_names:
            return option.path
        parts = option.path.split(".")
        for start in range(len(parts) - 1, -1, -1):
            name = ".".join(parts[start:])
            if self.find(name) is option:
                return name
        return option.path

    def flatten(self, given: Mapping[str, Json]) -> dict[str, Json]:
        """Return ``path -> value`` of what is set: nested mappings opened, ``null`` left out.

        A name that the table does not know stays as it was typed.
        """
        flat: dict[str, Json] = {}
        for name, value in self._walk(given, ""):
            option = self.find(name)
            if value is not None:
                flat[option.path if option else name] = value
        return flat

    def changed(self, given: Mapping[str, Json]) -> dict[str, Json]:
        """Return the flat options that differ from the library's defaults."""
        return {
            path: value
            for path, value in self.flatten(given).items()
            if not self._is_default(path, value)
        }

    def problem(
        self, given: Mapping[str, Json], where: str, version: str | None = None
    ) -> str | None:
        """Return what is wrong with the options, or ``None``.

        ``where`` is the configuration key that they were given under; ``version`` is the installed
        torch_npu, where that is known.
        """
        flat = self.flatten(given)
        for path, value in flat.items():
            option = self.find(path)
            text = (
                self._unknown(path)
                if option is None
                else None
                if self._is_default(path, value)
                else self._problem_of(option, value, flat, version)
            )
            if text:
                name = self.short(option) if option else path
                return f"{where}.{name}: {text}"
        return None

    def diagnosis(self, given: Mapping[str, Json]) -> str | None:
        """Return the options that turn a graph run into something else, or ``None``."""
        changed = self.changed(given)
        names = [
            f"{self.short(option)}={value!r}"
            for path, value in changed.items()
            if (option := self.find(path))
            and option.diagnosis
            and not (option.timed_with and option.timed_with in changed)
        ]
        return ", ".join(names) or None

    def defaults(self) -> dict[str, Json]:
        """Return short name -> default of every option that a configuration file may list."""
        return {self.short(option): option.default for option in self.options if not option.refused}

    def _walk(self, given: Mapping[str, Json], prefix: str) -> Iterator[tuple[str, Json]]:
        for key, value in given.items():
            name = f"{prefix}{key}"
            if isinstance(value, Mapping) and self.find(name) is None:
                yield from self._walk(value, f"{name}.")
            else:
                yield name, value

    def _matches(self, name: str) -> list[Option]:
        exact = [option for option in self.options if option.path == name]
        return exact or [option for option in self.options if option.path.endswith(f".{name}")]

    def _is_default(self, path: str, value: Json) -> bool:
        option = self.find(path)
        if option is None:
            return False
        return value == option.default and type(value) is type(option.default)

    def _unknown(self, name: str) -> str | None:
        several = self._matches(name)
        if several:
            return "several options have this name: " + ", ".join(o.path for o in several)
        if self.known_elsewhere and self.known_elsewhere(name):
            return None
        names = [self.short(option) for option in self.options if not option.refused]
        near = did_you_mean(name, names + (self.other_names() if self.other_names else []))
        if not near and "." in name:
            near = did_you_mean(name.rsplit(".", 1)[1], names)
        return f"{self.title} has no such option{near}\n  available: {', '.join(sorted(names))}"

    def _problem_of(
        self, option: Option, value: Json, flat: Mapping[str, Json], version: str | None
    ) -> str | None:
        if option.refused:
            return option.refused
        if option.since and version and _version(version) < _version(option.since):
            return f"needs torch_npu {option.since} or newer; {version} is installed"
        if option.needs and not flat.get(option.needs):
            needed = self.find(option.needs)
            name = self.short(needed) if needed else option.needs
            return f"has no effect without {name}; set {name} as well"
        return value_problem(option, value)


def value_problem(option: Option, value: Json) -> str | None:
    """Return what is wrong with one value, in words that show the value and what is accepted."""
    if option.choices:
        if isinstance(value, str) and value in option.choices:
            return None
        near = did_you_mean(str(value), option.choices)
        return f"{value!r} is not one of {', '.join(option.choices)}{near}"
    return _CHECKS[option.kind](option, value)


def is_list_option(option: Option) -> bool:
    """Say whether a list is one value of this option; otherwise a list is a sweep over values."""
    return option.kind in ("int_list", "decompositions")


def _bool(option: Option, value: Json) -> str | None:
    if isinstance(value, bool):
        return None
    hint = " (1 and 0 are not taken for true and false)" if value in (0, 1) else ""
    return f"{value!r} is not true or false{hint}"


def _int(option: Option, value: Json) -> str | None:
    if not isinstance(value, int) or isinstance(value, bool):
        return f"{value!r} is not a whole number"
    low, high = option.low, option.high
    if (low is not None and value < low) or (high is not None and value > high):
        upper = "" if high in (None, INT64_MAX) else f" and at most {high}"
        return f"{value} is out of range: at least {low}{upper}"
    return None


def _float(option: Option, value: Json) -> str | None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return None if number else f"{value!r} is not a number"


def _str(option: Option, value: Json) -> str | None:
    if not isinstance(value, str):
        example = f", e.g. '{option.example}'" if option.example else ""
        return f"{value!r} is not a text{example}"
    if option.pattern and not re.fullmatch(option.pattern, value):
        return f"'{value}' is not of the form '{option.example}'"
    return None


def _folder(option: Option, value: Json) -> str | None:
    if isinstance(value, str) and os.path.isdir(value):
        return None
    return f"'{value}' is not an existing folder"


def _file(option: Option, value: Json) -> str | None:
    if isinstance(value, str) and os.path.isfile(value):
        return None
    return f"'{value}' is not an existing file"


def _function(option: Option, value: Json) -> str | None:
    if isinstance(value, str) and re.fullmatch(r"[\w.]+\.\w+|.+\.py:\w+", value):
        return None
    return f"{value!r} does not name a function: package.module.function or file.py:function"


def _dict(option: Option, value: Json) -> str | None:
    if not isinstance(value, Mapping):
        return f"{value!r} is not a mapping"
    for key, inner in value.items():
        if option.keys is None:
            continue
        if key not in option.keys:
            return f"unknown key '{key}'{did_you_mean(str(key), option.keys)}"
        if not _TYPE_WORDS[option.keys[key]](inner):
            return f"{key}={inner!r} is not of type {option.keys[key]}"
    return None


def _int_list(option: Option, value: Json) -> str | None:
    return None if _is_int_list(value) else f"{value!r} is not a list of whole numbers"


def _decompositions(option: Option, value: Json) -> str | None:
    if value in ("none", "core"):
        return None
    if isinstance(value, (list, tuple)) and all(
        isinstance(name, str) and re.fullmatch(r"\w+(\.\w+)+", name) for name in value
    ):
        return None
    return f"{value!r} is neither 'none', 'core' nor a list of ops such as [aten.amax]"


def _gears(option: Option, value: Json) -> str | None:
    if not isinstance(value, Mapping) or not value:
        return f"{value!r} is not of the form {option.example}"
    for tensor, dims in value.items():
        if not isinstance(dims, Mapping) or not dims:
            return f"input {tensor}: {dims!r} does not give a list of sizes per dimension"
        for dim, sizes in dims.items():
            text = _gear_list(sizes)
            if text:
                return f"input {tensor}, dimension {dim}: {text}"
    return None


def _gear_list(sizes: Json) -> str | None:
    if not _is_int_list(sizes):
        return f"{sizes!r} is not a list of sizes"
    small = [size for size in sizes if size < 2]
    if small:
        return f"gear {small[0]} is not allowed: 0 and 1 never fit a dynamic graph"
    if len(set(sizes)) != len(sizes):
        return f"{list(sizes)} holds a duplicate size"
    if not 2 <= len(sizes) <= MAX_GEARS:
        return f"{len(sizes)} gears; 2 to {MAX_GEARS} are possible"
    return None


def gear_combinations(gears: Mapping[Json, Mapping[Json, list[int]]], policy: str) -> str | None:
    """Return why these gears cannot be combined by ``zip`` or ``product``, or ``None``."""
    lengths = [len(sizes) for dims in gears.values() for sizes in dims.values()]
    if policy == "zip":
        if len(set(lengths)) > 1:
            return f"with dynamic_gears_merge_policy=zip all lists need one length, not {lengths}"
        return None
    combinations = prod(lengths)
    if combinations > MAX_GEARS:
        return f"{combinations} > {MAX_GEARS} gear combinations; give fewer sizes or use zip"
    return None


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_int_list(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(_is_int(item) for item in value)


def _is_str_list(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value)


def _is_int_dict(value: Any) -> bool:
    return isinstance(value, Mapping) and all(_is_int(item) for item in value.values())


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])


_TYPE_WORDS: Mapping[str, Callable[[Any], bool]] = {
    "int": _is_int,
    "str": lambda value: isinstance(value, str),
    "str_list": _is_str_list,
    "int_dict": _is_int_dict,
}

_CHECKS: Mapping[Kind, Callable[[Option, Json], str | None]] = {
    "bool": _bool,
    "int": _int,
    "float": _float,
    "str": _str,
    "folder": _folder,
    "file": _file,
    "function": _function,
    "dict": _dict,
    "int_list": _int_list,
    "gears": _gears,
    "decompositions": _decompositions,
}
