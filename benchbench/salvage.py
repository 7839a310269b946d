"""What can still be read of a line of ``records.jsonl``, and what was wrong with it.

A results file outlives the program that wrote it: it may hold a torn last line, a stray byte,
``NaN`` from another writer, or fields of a version to come. Each of those costs as little as
possible and is named. Nothing here raises because of what the line holds.
"""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from benchbench.records import SCHEMA_VERSION, Json, Record

Upgrade = Callable[[dict[str, Any]], dict[str, Any]]

# Schema version -> function that turns a record of that version into one of the next version.
# A new SCHEMA_VERSION adds an entry here and a stored file to the tests; none is ever removed.
UPGRADES: Mapping[int, Upgrade] = MappingProxyType({})

# Keys under which a null is a value of the user's or of a library's, not a missing number.
FREE_JSON = frozenset({"environment", "options", "model_options", "converters"})

# Required fields without which a row still says something; what is missing reads "unknown".
_NOT_VITAL: Mapping[str, Json] = MappingProxyType(
    {
        "run_id": "unknown",
        "started_at": "unknown",
        "model_target": {"path": "unknown"},
        "mode_target": {"path": "unknown"},
        "path": "unknown",
    }
)

_START = b'{"schema_version"'
_NOT_A_NUMBER = re.compile(r'"(?:\\.|[^"\\])*"|[-+]?\b(?:nan|inf(?:inity)?)\b', re.IGNORECASE)
_ERROR_PATH = re.compile(r"^(?P<what>.*?)(?: - at `(?P<path>\$.*)`)?$", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(\w+)`")
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]|(\[\.\.\.\])")
_MOST_REPAIRS = 50
_UNREADABLE = object()
_RECORD = msgspec.json.Decoder(Record)


class Salvaged(NamedTuple):
    """The records of one line (more than one when lines were glued) and its damage."""

    records: list[Record]
    damage: list[str]


def read_line(line: bytes, *, upgrades: Mapping[int, Upgrade] = UPGRADES) -> Salvaged:
    """Return everything that can be read of one line without its newline."""
    if (whole := _sound(line)) is not None:
        return Salvaged([whole], [])
    damage: list[str] = []
    text = line.strip(b"\r\n\t \0")
    if b"\0" in line:
        damage.append(f"{line.count(0)} NUL bytes (a crash of the machine leaves those)")
    if not text:
        return Salvaged([], damage or ["blank line"])
    records = []
    for part in _parts(text):
        raw = _parse(part, damage)
        record = None if raw is _UNREADABLE else to_record(raw, damage, upgrades=upgrades)
        if record is not None:
            records.append(record)
    return Salvaged(records, damage)


def to_record(
    raw: Json, damage: list[str], *, upgrades: Mapping[int, Upgrade] = UPGRADES
) -> Record | None:
    """Return the record in a JSON value; what had to be left out is added to ``damage``."""
    if not isinstance(raw, dict):
        damage.append(f"not a record but {_short(raw)}")
        return None
    raw = _upgraded(raw, damage, upgrades)
    _drop_nulls(raw, "", damage)
    for _ in range(_MOST_REPAIRS):
        try:
            return msgspec.convert(raw, Record)
        except msgspec.ValidationError as error:
            if not _repair(raw, str(error), damage):
                break
    damage.append("not readable as a record")
    return None


def _sound(line: bytes) -> Record | None:
    """Return the record of a line that has nothing to be named, which is nearly every line.

    Reading straight into the type is several times as quick; a store has a million lines.
    """
    if b"null" in line or b"\0" in line:
        return None
    try:
        record = _RECORD.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return record if record.schema_version == SCHEMA_VERSION else None


def _parts(text: bytes) -> Iterator[bytes]:
    """Yield the line, or its pieces when a torn line was continued by another record."""
    if _loads(text) is not _UNREADABLE:
        yield text
        return
    starts = [0, *(m.start() for m in re.finditer(re.escape(_START), text) if m.start())]
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        yield text[start:end]


def _parse(text: bytes, damage: list[str]) -> Json:
    """Return the JSON value of a text, or ``_UNREADABLE`` after naming what is wrong."""
    value = _loads(text)
    if value is not _UNREADABLE:
        return value
    decoded = text.decode("utf-8", "replace")
    if bad := decoded.count("\ufffd") - text.count("\ufffd".encode()):
        damage.append(f"{bad} bytes that are not UTF-8")
    mended = _NOT_A_NUMBER.sub(_quoted, decoded)
    start = max(mended.find("{"), 0)
    try:
        value, end = json.JSONDecoder(parse_constant=str).raw_decode(mended, start)
    except (ValueError, RecursionError):
        damage.append(f"not JSON, {len(text)} bytes: {_short(decoded)}")
        return _UNREADABLE
    if stray := start + len(mended) - end:
        damage.append(f"{stray} stray characters around the record")
    return _without_infinities(value)


def _loads(text: bytes) -> Json:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _UNREADABLE


def _quoted(match: re.Match[str]) -> str:
    found = match.group()
    return found if found.startswith('"') else f'"{found}"'


def _without_infinities(value: Json) -> Json:
    """Turn ``1e999`` into text, so that it is named like every other figure that is none."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _without_infinities(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_infinities(item) for item in value]
    return value


def _upgraded(
    raw: dict[str, Any], damage: list[str], upgrades: Mapping[int, Upgrade]
) -> dict[str, Any]:
    version = raw.get("schema_version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        damage.append(f"schema_version: {_short(version)} is no version: read as {SCHEMA_VERSION}")
        return {**raw, "schema_version": SCHEMA_VERSION}
    if version > SCHEMA_VERSION:
        damage.append(
            f"schema_version {version} is newer than this program's {SCHEMA_VERSION}: what it "
            "added is not shown; update benchbench to see it"
        )
        return raw
    while version in upgrades:
        raw = upgrades[version](raw)
        version += 1
        raw["schema_version"] = version
    return raw


def _drop_nulls(value: Json, path: str, damage: list[str]) -> None:
    """Remove nulls: a value that is not known is absent, never null."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            _drop_nulls(item, f"{path}[{index}]", damage)
    elif isinstance(value, dict):
        for key in list(value):
            where = f"{path}.{key}".lstrip(".")
            if key in FREE_JSON:
                continue
            if value[key] is None:
                damage.append(f"{where}: null: read as missing")
                del value[key]
            else:
                _drop_nulls(value[key], where, damage)


def _repair(raw: dict[str, Any], message: str, damage: list[str]) -> bool:
    """Remove what the decoder complains about; ``False`` when that is the record itself."""
    match = _ERROR_PATH.match(message)
    assert match is not None  # the pattern matches every text
    what, steps = match["what"], _steps(match["path"] or "$")
    if _filled(raw, what, steps):
        damage.append(f"{_dotted(steps)}: {_complaint(what, None)}".lstrip(": "))
        return True
    parent: Any = raw
    for step in steps[:-1]:
        if step == "[...]":  # inside a dict under a key that the message does not name
            return _drop_odd_entries(parent, steps, damage)
        parent = parent[step]
    if not steps:
        damage.append(what)
        return False
    if steps[-1] == "[...]":
        return _drop_odd_entries(parent, steps, damage)
    value = parent[steps[-1]]
    del parent[steps[-1]]
    damage.append(f"{_dotted(steps)}: {_complaint(what, value)}: read as missing")
    return True


def _filled(raw: dict[str, Any], what: str, steps: list[str | int]) -> bool:
    """Fill in a missing field that is not vital; ``False`` when it is, or when none is missing."""
    missing = _MISSING.match(what)
    if missing is None or missing[1] not in _NOT_VITAL or "[...]" in steps:
        return False
    place: Any = raw
    for step in steps:
        place = place[step]
    place[missing[1]] = copy.deepcopy(_NOT_VITAL[missing[1]])
    return True


def _complaint(what: str, value: Json) -> str:
    if what.startswith("Object missing"):
        return what[0].lower() + what[1:]
    wanted = re.search(r"Expected `(.*?)`", what)
    if wanted and "float" in wanted[1]:
        return f"{_short(value)} is not a number"
    return f"{_short(value)} ({what[0].lower()}{what[1:]})"


def _drop_odd_entries(container: dict[str, Any], steps: list[str | int], damage: list[str]) -> bool:
    """Remove the entries of a plain dict that are not of the kind that most entries are."""
    kinds = [float if isinstance(v, int) else type(v) for v in container.values()]
    usual = max(set(kinds), key=kinds.count)
    odd = [key for key, kind in zip(container, kinds, strict=True) if kind is not usual]
    for key in odd or list(container):
        where = _dotted([*steps[: steps.index("[...]")], key])
        damage.append(f"{where}: {_short(container[key])}: read as missing")
        del container[key]
    return True


def _steps(path: str) -> list[str | int]:
    return [m[1] or (int(m[2]) if m[2] else m[3]) for m in _STEP.finditer(path)]


def _dotted(steps: list[str | int]) -> str:
    return "".join(f"[{s}]" if isinstance(s, int) else f".{s}" for s in steps).lstrip(".")


def _short(value: Json) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
