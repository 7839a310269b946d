"""The results folder: the only module that knows how a run lies on disk.

::

    results/<run_id>/plan.json         what was asked
    results/<run_id>/records.jsonl     one line per case, durable before the next case starts
    results/<run_id>/samples/NNNN.json raw samples of one case, until the run is finished
    results/<run_id>/samples.parquet   raw samples of all cases, once it is
    results/<run_id>/logs/<case>.log   what each worker printed

The folder is the database: append-only, one owner per run folder, readable at any moment. See
docs/results-format.md for every field.
"""

from __future__ import annotations

import math
import os
import re
import secrets
import shutil
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import msgspec

from benchbench import salvage
from benchbench.durable import append_line, explained, sync_folder, write_atomically
from benchbench.errors import StoreError, did_you_mean
from benchbench.paths import safe_name
from benchbench.records import Case, Json, Plan, Record, Samples

if TYPE_CHECKING:
    import pyarrow

RECORDS = "records.jsonl"
PLAN = "plan.json"
SAMPLES = "samples.parquet"
SAMPLE_PARTS = "samples"
LOGS = "logs"

_HEX = re.compile(r"_[0-9a-f]{4}$")
_STAMP = re.compile(r"^(\d{8}T\d{6}Z)")
_MOST_COLLISIONS = 100
# Clocks of machines that share a folder differ a little; a run this far ahead has a wrong clock.
_FUTURE = timedelta(minutes=10)

# ---- writing ------------------------------------------------------------------------------


class _Part(msgspec.Struct, frozen=True):
    case_key: str
    samples: list[Samples]


class RunWriter:
    """Owner of one new run folder. Use :meth:`create`, then ``append`` per case, then ``finish``.

    As a context manager it finishes on the way out, also after an interrupt.
    """

    def __init__(self, run_dir: Path, plan: Plan) -> None:
        self.run_dir = run_dir
        self.plan = plan
        self.run_id = plan.run_id
        self._parts = 0
        self._lock = threading.Lock()
        self._finished = False

    @classmethod
    def create(cls, results_dir: Path, plan: Plan) -> RunWriter:
        """Create ``results_dir/<run_id>/`` with its plan; nothing that exists is ever touched.

        When the folder exists already, another last four hex digits are taken: the run id of the
        returned writer (and of its plan) is then not the plan's.
        """
        run_dir, plan = _new_folder(Path(results_dir), plan)
        writer = cls(run_dir, plan)
        writer.write_bytes(PLAN, msgspec.json.format(_encoded(plan)) + b"\n")
        with explained("create", run_dir / LOGS):
            (run_dir / LOGS).mkdir()
        return writer

    def log_path(self, case: Case | str) -> Path:
        """Return the path of a case's log; the name is safe, bounded and unique per case key."""
        key = case if isinstance(case, str) else case.key
        return self.run_dir / LOGS / f"{safe_name(key)}.log"

    def append(self, record: Record, samples: Sequence[Samples] = ()) -> Record:
        """Store the raw samples and one line, both durable on return; return what was stored.

        The record is stored under this writer's run id. A figure that is no finite number is
        left out and noted. Raises :class:`StoreError` when it cannot be written; lines that
        were there before are intact then.
        """
        stored, line = encode_record(msgspec.structs.replace(record, run_id=self.run_id))
        with self._lock:  # cases on several devices end at the same time
            if samples:
                folder = self.run_dir / SAMPLE_PARTS
                with explained("create", folder):
                    folder.mkdir(exist_ok=True)
                part = msgspec.json.encode(_Part(record.case_key, list(samples)))
                write_atomically(folder / f"{self._parts:04d}.json", part)
                self._parts += 1
            append_line(self.run_dir / RECORDS, line)
        return stored

    def write_text(self, name: str, text: str) -> Path:
        """Write a file such as ``table.md`` whole, as UTF-8; an old one is replaced at once."""
        return self.write_bytes(name, text.encode("utf-8", "backslashreplace"))

    def write_bytes(self, name: str, content: bytes) -> Path:
        """Write a file of this run whole; there is never a half-written one under that name."""
        path = self.run_dir / name
        write_atomically(path, content)
        return path

    def finish(self) -> None:
        """Merge the raw samples into ``samples.parquet``. May be called again."""
        if not self._finished:
            _merge_samples(self.run_dir)
            self._finished = True

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.finish()


def encode_record(record: Record) -> tuple[Record, bytes]:
    """Return the record as it will be read again, and its line of strict JSON."""
    raw = _plain(record)
    left_out: list[str] = []
    _drop_non_finite(raw, "", left_out)
    if left_out:
        raw["notes"] = [*raw.get("notes", []), *(f"{p} was not a finite number" for p in left_out)]
    damage: list[str] = []
    stored = salvage.to_record(raw, damage)
    if stored is None:
        raise StoreError(f"a record of {record.case_key} cannot be stored: {'; '.join(damage)}")
    if damage:  # a required figure was left out, so that the object around it had to go as well
        stored = msgspec.structs.replace(stored, notes=[*stored.notes, *damage])
    return stored, msgspec.json.encode(stored) + b"\n"


def _new_folder(results_dir: Path, plan: Plan) -> tuple[Path, Plan]:
    with explained("create", results_dir):
        results_dir.mkdir(parents=True, exist_ok=True)
    stem = _HEX.sub("", safe_name(plan.run_id))
    run_id = safe_name(plan.run_id)
    for _ in range(_MOST_COLLISIONS):
        run_dir = results_dir / run_id
        with explained("create", run_dir):
            try:
                run_dir.mkdir()
            except FileExistsError:
                run_id = f"{stem}_{secrets.token_hex(2)}"
                continue
            sync_folder(results_dir)
        return run_dir, msgspec.structs.replace(plan, run_id=run_id)
    raise StoreError(
        f"cannot create a run folder in {results_dir}: {stem}_* is taken "
        f"{_MOST_COLLISIONS} times over. Choose another folder with results_dir=DIR."
    )


# ---- strict JSON --------------------------------------------------------------------------


def _encoded(value: Any) -> bytes:
    raw = _plain(value)
    _drop_non_finite(raw, "", [])
    return msgspec.json.encode(raw)


def _plain(value: Any) -> Any:
    """Return JSON values only, whatever a library put into the environment."""
    return _encodable(msgspec.to_builtins(value, str_keys=True, enc_hook=_odd_value))


def _odd_value(value: Any) -> Json:
    """Store a value that JSON does not know: a numpy number as a number, the rest as text."""
    item = getattr(value, "item", None)
    plain = item() if callable(item) and getattr(value, "ndim", None) == 0 else None
    return plain if isinstance(plain, (bool, int, float, str)) else str(value)


def _encodable(value: Any) -> Any:
    """Escape lone surrogates (a file name that is not UTF-8), which no UTF-8 file can hold."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {_encodable(str(key)): _encodable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_encodable(item) for item in value]
    return value


def _drop_non_finite(value: Any, path: str, left_out: list[str]) -> None:
    """Remove NaN and infinities, which JSON has no word for: absent means not known."""
    if isinstance(value, dict):
        for key in list(value):
            where = f"{path}.{key}".lstrip(".")
            if _is_non_finite(value[key]):
                left_out.append(where)
                del value[key]
            else:
                _drop_non_finite(value[key], where, left_out)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            if _is_non_finite(item):
                left_out.append(f"{path}[{index}]")
                value[index] = str(item)  # later items must keep their place
            else:
                _drop_non_finite(item, f"{path}[{index}]", left_out)


def _is_non_finite(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


# ---- raw samples --------------------------------------------------------------------------


def _part_files(run_dir: Path) -> list[Path]:
    return sorted((run_dir / SAMPLE_PARTS).glob("*.json"))


def _read_parts(run_dir: Path, damage: list[str]) -> list[tuple[Path, _Part]]:
    found = []
    for path in _part_files(run_dir):
        try:
            found.append((path, msgspec.json.decode(path.read_bytes(), type=_Part)))
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            damage.append(f"{SAMPLE_PARTS}/{path.name}: raw samples not readable: {error}")
    return found


def _merge_samples(run_dir: Path) -> None:
    parts = _read_parts(run_dir, [])
    if not parts:
        return
    from pyarrow import parquet

    path = run_dir / SAMPLES
    temporary = path.with_name(f".{path.name}.tmp")
    with explained("write", path):
        try:
            parquet.write_table(_to_table(part for _, part in parts), temporary, compression="zstd")
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        sync_folder(run_dir)
        for part_path, _ in parts:
            part_path.unlink()
        if not _part_files(run_dir):
            shutil.rmtree(run_dir / SAMPLE_PARTS, ignore_errors=True)


def _to_table(parts: Iterable[_Part]) -> pyarrow.Table:
    """Return one row per sample, in the order measured."""
    import numpy as np
    import pyarrow as pa

    flat = [(part.case_key, samples) for part in parts for samples in part.samples]
    lengths = [len(samples.duration_ns) for _, samples in flat]
    counted: Counter[tuple[str, int, str]] = Counter()
    index = []
    for key, samples in flat:
        series = (key, samples.round, samples.phase)
        index.append(np.arange(len(samples.duration_ns)) + counted[series])
        counted[series] += len(samples.duration_ns)

    def column(values: list[Any], kind: pa.DataType) -> pa.Array:
        return pa.array(np.repeat(np.asarray(values, dtype=object), lengths), kind)

    empty = np.empty(0, dtype=np.int64)
    durations = [np.asarray(samples.duration_ns, dtype=np.int64) for _, samples in flat]
    return pa.table(
        {
            "case_key": column([key for key, _ in flat], pa.string()).dictionary_encode(),
            "round": column([s.round for _, s in flat], pa.int32()),
            "phase": column([s.phase for _, s in flat], pa.string()).dictionary_encode(),
            "index": pa.array(np.concatenate([empty, *index]), pa.int64()),
            "duration_ns": pa.array(np.concatenate([empty, *durations]), pa.int64()),
            "calls_per_sample": column([s.calls_per_sample for _, s in flat], pa.int64()),
        }
    )


def load_samples(run_dir: Path) -> tuple[dict[str, list[Samples]], list[str]]:
    """Return case key -> raw samples of a run (finished, running or killed), and the damage."""
    damage: list[str] = []
    found: dict[str, list[Samples]] = {}
    if (run_dir / SAMPLES).exists():
        import pyarrow
        from pyarrow import parquet

        try:
            found = _from_table(parquet.read_table(run_dir / SAMPLES))
        except (OSError, KeyError, pyarrow.ArrowException, msgspec.ValidationError) as error:
            damage.append(f"{SAMPLES}: raw samples not readable: {str(error).splitlines()[0]}")
    # A run killed between writing the merged file and removing the parts has both.
    merged = set(found)
    for _, part in _read_parts(run_dir, damage):
        if part.case_key not in merged:
            found.setdefault(part.case_key, []).extend(part.samples)
    return found, damage


def _from_table(table: pyarrow.Table) -> dict[str, list[Samples]]:
    frame = table.to_pandas()
    frame = frame.astype({"case_key": str, "phase": str})
    series = ["case_key", "round", "phase", "calls_per_sample"]
    # A new series starts wherever one of these columns changes, or the index starts again.
    starts = (frame[series] != frame[series].shift()).any(axis=1) | (frame["index"] == 0)
    found: dict[str, list[Samples]] = {}
    for _, rows in frame.groupby(starts.cumsum(), sort=False):
        key, round_number, phase, calls = rows.iloc[0][series]
        found.setdefault(str(key), []).append(
            msgspec.convert(
                {
                    "phase": str(phase),
                    "calls_per_sample": int(calls),
                    "duration_ns": rows["duration_ns"].tolist(),
                    "round": int(round_number),
                },
                Samples,
            )
        )
    return found


# ---- reading ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """A run as it can be read, with everything that could not be read named in ``damage``."""

    path: Path
    run_id: str
    plan: Plan | None
    records: list[Record]
    damage: list[str] = field(default_factory=list)
    """``file:line: what``, one entry per defect."""
    warnings: list[str] = field(default_factory=list)
    samples: dict[str, list[Samples]] = field(default_factory=dict)
    """Case key -> raw samples, where they were asked for and are there."""


def load_run(path: Path | str, *, recompute: bool = True, now: datetime | None = None) -> Run:
    """Read a run folder (or a lone ``records.jsonl``) as far as it can be read.

    With ``recompute`` the statistics of a row come from its raw samples wherever those are
    there; the stored ones are only a convenience. Raises :class:`StoreError` when there is no
    run at all.
    """
    path = Path(path)
    run_dir, records_path = (path, path / RECORDS) if path.is_dir() else (path.parent, path)
    damage: list[str] = []
    plan = _read_plan(run_dir / PLAN, damage)
    if records_path.exists():
        records = read_records(records_path, damage)
    elif plan is None:
        raise StoreError(f"no run in {path}: neither {PLAN} nor {RECORDS} is there")
    else:
        records = []
    samples: dict[str, list[Samples]] = {}
    if recompute:
        samples, sample_damage = load_samples(run_dir)
        damage += sample_damage
        records = _recomputed(records, samples)
    run_id = plan.run_id if plan else records[0].run_id if records else run_dir.name
    warnings = _from_the_future(run_id, now or datetime.now(timezone.utc))
    return Run(run_dir, run_id, plan, records, damage, warnings, samples)


def read_records(path: Path, damage: list[str]) -> list[Record]:
    """Return every record of a file in order; each defect is added as ``file:line: what``."""
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror or error}.") from error
    ended = lines[-1] == b""
    if ended:
        del lines[-1]
    records: list[Record] = []
    for number, line in enumerate(lines, start=1):
        found = salvage.read_line(line)
        records += found.records
        torn = "torn last line: " if not ended and number == len(lines) else ""
        damage += [f"{path.name}:{number}: {torn}{what}" for what in found.damage]
        if torn and not found.damage:
            damage.append(f"{path.name}:{number}: the last line has no end, but is complete")
    return records


def _read_plan(path: Path, damage: list[str]) -> Plan | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Plan)
    except FileNotFoundError:
        return None
    except OSError as error:
        damage.append(f"{PLAN}: {error.strerror or error}")
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        damage.append(f"{PLAN}: not readable: {error}")
    return None


def _recomputed(records: list[Record], samples: dict[str, list[Samples]]) -> list[Record]:
    """Derive the statistics again from the samples, for keys that only one record has."""
    from benchbench import stats

    times = Counter(record.case_key for record in records)
    result = []
    for record in records:
        old = record.latency
        found = samples.get(record.case_key)
        if record.status == "ok" and found and times[record.case_key] == 1:
            new = stats.latency(found, old.stop_reason if old else None)
            record = msgspec.structs.replace(record, latency=new or old)
        result.append(record)
    return result


def _from_the_future(run_id: str, now: datetime) -> list[str]:
    stamp = _STAMP.match(run_id)
    if stamp is None:
        return []
    try:
        started = datetime.strptime(stamp[1], "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc)
    except ValueError:
        return []
    if started - now <= _FUTURE:
        return []
    return [
        f"run {run_id} is dated in the future ({started:%Y-%m-%d %H:%M} UTC): it stays 'latest' "
        "until then; name the run you mean, or remove its folder"
    ]


# ---- finding ------------------------------------------------------------------------------


def list_runs(results_dir: Path) -> list[str]:
    """Return the run ids of a results folder, oldest first (a run id begins with its time)."""
    if not results_dir.is_dir():
        return []
    return sorted(
        entry.name
        for entry in results_dir.iterdir()
        if entry.is_dir() and ((entry / RECORDS).exists() or (entry / PLAN).exists())
    )


def find_run(results_dir: Path | str, name: str) -> Path:
    """Return the folder of the run that ``name`` means.

    Accepted: a run id, the path of a run folder, the beginning of exactly one run id, ``latest``
    and ``previous``. Raises :class:`StoreError` that names the nearest runs.
    """
    results_dir = Path(results_dir)
    runs = list_runs(results_dir)
    if name in ("latest", "previous"):
        back = 1 if name == "latest" else 2
        if len(runs) < back:
            have = "no run" if not runs else "only one run"
            raise StoreError(
                f"no '{name}' run: there is {have} in {results_dir}.\n"
                "  next: python -m benchbench, or name another folder with --results-dir DIR"
            )
        return results_dir / runs[-back]
    if name in runs:
        return results_dir / name
    as_path = Path(name).expanduser()
    if name and as_path.is_dir() and ((as_path / RECORDS).exists() or (as_path / PLAN).exists()):
        return as_path
    begins = [run for run in runs if name and run.startswith(name)]
    if len(begins) == 1:
        return results_dir / begins[0]
    raise StoreError(_no_such_run(results_dir, name, runs, begins))


def _no_such_run(results_dir: Path, name: str, runs: list[str], begins: list[str]) -> str:
    if begins:
        return f"'{name}' begins {len(begins)} runs: {', '.join(begins[-5:])}\n  next: type more"
    newest = ", ".join(reversed(runs[-5:])) or "(none)"
    return (
        f"no run '{name}' in {results_dir}{did_you_mean(name, [*runs, 'latest', 'previous'])}\n"
        f"  newest: {newest}\n"
        "  next: a run id or its beginning, a folder, latest or previous"
    )
