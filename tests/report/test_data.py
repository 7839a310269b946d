"""The data of the page: every row of the store, four kinds of "no figure", nothing escapes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from some_records import RUN_ID, make_failed, make_plan, make_record, make_skipped

from benchbench.records import Record
from benchbench.report import data


def write_run(results: Path, records: list[Record], run_id: str = RUN_ID, **plan: Any) -> Path:
    folder = results / run_id
    folder.mkdir(parents=True)
    cases = plan.pop("cases", [record.case for record in records])
    wanted = msgspec.structs.replace(make_plan(*cases, **plan), run_id=run_id)
    (folder / "plan.json").write_bytes(msgspec.json.encode(wanted))
    lines = [msgspec.json.encode(msgspec.structs.replace(r, run_id=run_id)) for r in records]
    (folder / "records.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
    return folder


def collected(results: Path, **options: Any) -> Any:
    return json.loads(data.encode(data.collect(results, **options)))


def test_failed_skipped_not_run_and_missing_are_four_things(tmp_path: Path) -> None:
    """Cases 80 and 82: the counts are the store's, and a row that is not there is named."""
    lost = make_record("cudagraphs")
    there = [
        make_record(),
        make_failed("inductor"),
        make_skipped(),
        make_failed("aot_eager", "not_run"),
    ]
    write_run(tmp_path, there, cases=[*(r.case for r in there), lost.case])
    found = collected(tmp_path)
    assert found["counts"] == {"ok": 1, "failed": 1, "skipped": 1, "not_run": 1, "missing": 1}
    assert found["stored"] == len(there)
    assert found["runs"][0]["planned"] == len(there) + 1
    figures = {
        found["statuses"][status]: median
        for status, median in zip(found["rows"]["st"], found["rows"]["med"], strict=True)
    }
    assert figures.pop("ok") == 2000
    assert set(figures.values()) == {-1}


def test_simulated_rows_have_no_times(tmp_path: Path) -> None:
    write_run(tmp_path, [make_record("eager", simulated=True)])
    rows = collected(tmp_path)["rows"]
    assert rows["fl"][0] & data.SIMULATED
    assert not rows["fl"][0] & data.COUNTS
    assert rows["med"] == rows["lo"] == rows["thr"] == rows["cold"] == [-1]


def test_names_cannot_end_the_script(tmp_path: Path) -> None:
    """Case 82: ``</script>`` in a name, names that differ in case only, Chinese names."""
    names = ["</script><b>x</b>&", "MLP", "mlp", "模型\u2028"]
    write_run(tmp_path, [make_record(model=name) for name in names])
    encoded = data.encode(data.collect(tmp_path))
    assert not {b"<", b">", b"&"} & {encoded[i : i + 1] for i in range(len(encoded))}
    assert [case["m"] for case in json.loads(encoded)["cases"]] == names


@pytest.mark.parametrize("exists", [True, False])
def test_an_empty_store(tmp_path: Path, exists: bool) -> None:
    folder = tmp_path if exists else tmp_path / "none"
    found = collected(folder)
    assert found["stored"] == 0
    assert found["runs"] == []


def test_damage_is_named_and_the_rest_is_there(tmp_path: Path) -> None:
    """Case 68: NaN of another writer reads as missing, with a warning."""
    folder = write_run(tmp_path, [make_record(), make_record("inductor", 0.001)])
    path = folder / "records.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"median_s":0.001', b'"median_s":NaN') + b"{torn")
    found = collected(tmp_path)
    assert found["stored"] == 2
    assert len(found["runs"][0]["damage"]) >= 2


def test_old_rows_are_summarised_and_still_counted(tmp_path: Path) -> None:
    for day in range(1, 7):
        records = [make_record(), make_record("inductor", 0.001 * day), make_failed("cudagraphs")]
        write_run(tmp_path, records, f"2026080{day}T120000Z_abc1234_000{day}")
    found = collected(tmp_path, most_rows=7)
    assert found["whole"] == 6
    assert found["stored"] == sum(found["counts"].values()) == 18
    summarised = sum(n for _, _, _, _, counts, *_ in found["old"] for n in counts.values())
    assert found["whole"] + summarised == found["stored"]
    inductor = next(o for o in found["old"] if found["cases"][o[0]]["mode"] == "inductor")
    assert inductor[2:4] == [0, 3]
    assert inductor[5:] == [2500, 1000, 4000]


def test_details_stop_at_their_budget(tmp_path: Path) -> None:
    for day in (1, 2):
        write_run(tmp_path, [make_record()], f"2026080{day}T120000Z_abc1234_000{day}")
    assert collected(tmp_path, detail_bytes=1)["rows"]["det"] == [-1, 0]
