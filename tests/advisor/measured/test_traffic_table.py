"""What profiles say of writes between GPUs, as the table that ``traffic { file }`` reads."""

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from magus.advisor.measured import Imported
from magus.advisor.measured.traces.traffic import HEADER, MAX_ROWS, traffic_table
from magus.compiler import CompileError
from magus.compiler.text.diagnostics import Report
from tests.helpers.traces import Event, collective, document, gemm, nsight

MIB = 1 << 20
Row = tuple[float, int, int, int]
COLUMNS = "Kind,Direction,Stream_Id,Source_Agent_Id,Destination_Agent_Id,Correlation_Id,Start_Timestamp,End_Timestamp"


def table_of(*files: Path, gpu: str = "") -> Imported:
    report = Report()
    with report.attempt():
        return traffic_table(files, gpu, report)
    raise CompileError(report.diagnostics)


def refused(*files: Path, gpu: str = "") -> str:
    with pytest.raises(CompileError) as caught:
        table_of(*files, gpu=gpu)
    (found,) = caught.value.diagnostics
    return f"{found.code.name} {found.message}"


def rows_of(table: Imported) -> list[Row]:
    lines = [line for line in table.text.splitlines() if not line.startswith("#")]
    assert lines[0] == HEADER
    rows = [line.split(",") for line in lines[1:]]
    assert len(rows) == table.count > 0
    return [(float(time), int(source), int(target), int(size)) for time, source, target, size in rows]


def notes_of(table: Imported) -> str:
    return " ".join(line.removeprefix("# ") for line in table.text.splitlines() if line.startswith("#"))


def kineto(file: Path, events: Sequence[Event], rank: int | None = 3) -> Path:
    found = document(events)
    if rank is None:
        del found["distributedInfo"]
    else:
        found["distributedInfo"]["rank"] = rank
    file.write_text(json.dumps(found))
    return file


def rocprof(file: Path, copies: Sequence[tuple[int, int, int, int, int]]) -> Path:
    """Copies (begin, end, source, target, bytes) among agents: 10 is the host, 40 and 30 are GPUs at nodes 1 and 2."""
    agents = [
        {"id": {"handle": 10}, "type": 1, "node_id": 0},
        {"id": {"handle": 30}, "type": 2, "node_id": 2},
        {"id": {"handle": 40}, "type": 2, "node_id": 1},
    ]
    records = [
        {
            "start_timestamp": start,
            "end_timestamp": end,
            "src_agent_id": {"handle": source},
            "dst_agent_id": {"handle": target},
            "bytes": size,
        }
        for start, end, source, target, size in copies
    ]
    tool: dict[str, Any] = {"agents": agents, "buffer_records": {"memory_copy": records}}
    file.write_text(json.dumps({"rocprofiler-sdk-tool": [tool]}))
    return file


def test_copies_of_nsight_keep_their_time_and_rate(tmp_path: Path) -> None:
    copies = [
        (5_000_000, 5_040_000, 1, 4 * MIB, 10, 1, 0),
        (5_010_000, 5_011_000, 2, 100, 10, 2, 0),
        (5_000_000, 5_001_000, 0, 64, 1, None, None),  # from the host
        (5_000_000, 5_001_000, 0, 64, 8, 3, 3),  # within a GPU
    ]
    kernel = "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT)"
    table = table_of(
        nsight(tmp_path / "run.sqlite", copies, kernel, "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (7)")
    )

    pieces = [(turn * 10.0, 1, 0, MIB) for turn in range(4)]
    assert rows_of(table) == sorted([*pieces, (10.0, 2, 0, 100)])
    assert "2 transfers within a GPU, from the host or to it" in notes_of(table)
    assert "1 kernel of which the profile does not say what it writes" in notes_of(table)


def test_a_database_runs_nothing_of_its_own(tmp_path: Path) -> None:
    view = "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS SELECT load_extension('evil')"
    file = nsight(tmp_path / "run.sqlite", [(1000, 2000, 1, 100, 10, 1, 0)], view)
    before = file.read_bytes()

    assert rows_of(table_of(file)) == [(0.0, 1, 0, 100)]
    assert file.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["run.sqlite"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"SQLite format 3\0" + b"\xff" * 200, "MGS630 SQLite cannot read it"),
        (b"not a profile", "MGS630 it is no trace of torch.profiler"),
        (b'{"rocprofiler-sdk-tool": [', "MGS630 no JSON"),
        (b'{"rocprofiler-sdk-tool": 7}', "MGS630 rocprofiler-sdk-tool has no profiles"),
        (b'{"rocprofiler-sdk-tool": [{"agents": 3}]}', "MGS630 it has no records of copies"),
        (f"{COLUMNS}\n".encode(), "MGS631 no copy between GPUs"),
    ],
)
def test_what_is_no_profile_is_refused(data: bytes, message: str, tmp_path: Path) -> None:
    file = tmp_path / "run"
    file.write_bytes(data)

    assert refused(file).startswith(message)


def test_tables_of_others_and_values_of_other_types_are_refused_or_left_out(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "other.sqlite")) as database, database:
        database.execute("CREATE TABLE songs (name TEXT)")
    wrong = [("text", 2000, 1, 100, 10, 1, 0), (3000, 2000, 1, 100, 10, 1, 0), (1, 2, 1, -5, 10, 1, 0)]
    odd = nsight(tmp_path / "odd.sqlite", wrong)

    assert "no table of Nsight Systems" in refused(tmp_path / "other.sqlite")
    assert "3 transfers without a time or a size that a copy has" in refused(odd)


def test_numbers_that_no_table_takes_are_left_out(tmp_path: Path) -> None:
    large = [(0, 2**62, 1, 2**62, 10, 1, 0), (0, 10, 1, 64, 10, "one", "one")]
    late = [(0, 1000, 1, 64, 10, 1, 0), (2 * 10**12, 2 * 10**12 + 1, 1, 64, 10, 1, 0)]

    found = refused(nsight(tmp_path / "large.sqlite", large))
    assert "1 transfer without a time or a size" in found and "1 transfer between what are no numbers of GPUs" in found
    table = table_of(nsight(tmp_path / "late.sqlite", late))
    assert rows_of(table) == [(0.0, 1, 0, 64)] and "the first 1 of 2 writes" in notes_of(table)


def test_json_of_rocprof_numbers_gpus_by_their_nodes(tmp_path: Path) -> None:
    copies = [(1000, 3000, 40, 30, 100), (2000, 3000, 30, 40, 50), (0, 10, 10, 30, 7), (5, 5, 30, 40, 1)]
    table = table_of(rocprof(tmp_path / "run.json", copies))

    assert rows_of(table) == [(0.0, 0, 1, 100), (1.0, 1, 0, 50)]
    assert "1 transfer within a GPU, from the host or to it" in notes_of(table)
    assert "1 transfer without a time or a size that a copy has" in notes_of(table)


def test_a_csv_of_rocprof_has_no_bytes_but_those_of_a_link(tmp_path: Path) -> None:
    file = tmp_path / "memory_copy_trace.csv"
    rows = [
        '"MEMORY_COPY","MEMORY_COPY_DEVICE_TO_DEVICE",0,"Agent 7","Agent 4",1,2000,12000',
        '"MEMORY_COPY","MEMORY_COPY_HOST_TO_DEVICE",0,"Agent 0","Agent 4",2,1000,2000',
    ]
    file.write_text("\n".join([",".join(f'"{name}"' for name in COLUMNS.split(",")), *rows, ""]))

    assert refused(file) == "MGS631 it has no bytes of copies"
    table = table_of(file, gpu="MI300X")

    ((time, source, target, size),) = rows_of(table)
    assert (time, source, target) == (0.0, 1, 0)
    assert 10e-6 * 30e9 < size < 10e-6 * 64e9  # a link of xGMI has 64 GB/s by the data sheet
    assert "what a link of MI300X carries" in notes_of(table)


def test_numbers_of_a_csv_that_no_table_takes_are_left_out_and_counted(tmp_path: Path) -> None:
    file, copy = (
        tmp_path / "memory_copy_trace.csv",
        '"MEMORY_COPY","MEMORY_COPY_DEVICE_TO_DEVICE",0,"Agent 7","Agent 4"',
    )
    rows = [f"{copy},1,2000,12000", f"{copy},2,2000,{'9' * 5000}", f"{copy},3,2000,{10**17}"]
    file.write_text("\n".join([",".join(f'"{name}"' for name in COLUMNS.split(",")), *rows, ""]))
    table = table_of(file, gpu="MI300X")

    assert len(rows_of(table)) == 1
    assert "1 transfer without a time or a size that a copy has" in notes_of(table)
    assert "1 transfer of more bytes than a table takes" in notes_of(table)


def test_collectives_go_around_the_ring_of_their_group(tmp_path: Path) -> None:
    gather = collective("_allgather_base", (1000, 8000), 100.0, 8.0)
    reduce = collective("allreduce", (800, 800), 200.0, 8.0)
    table = table_of(kineto(tmp_path / "rank3.json", [gather, reduce, *gemm(1, (64, 64, 64), 150.0, 3.0)]))

    assert rows_of(table) == [(0.0, 3, 4, 7 * 1000 * 2), (100.0, 3, 4, 2 * 7 * 800 * 2 // 8)]


def test_an_all_to_all_goes_to_each_and_groups_may_be_any_ranks(tmp_path: Path) -> None:
    exchange = collective("all_to_all", (800, 800), 100.0, 8.0)
    pair = collective("_allgather_base", (50, 100), 300.0, 8.0, ranks=2)
    pair["args"]["Process Group Ranks"] = "[3, 7]"
    unsaid = collective("_allgather_base", (50, 100), 400.0, 8.0, ranks=2)
    unsaid["args"]["Process Group Ranks"] = "[0, 1, ..."
    table = table_of(kineto(tmp_path / "rank3.json", [exchange, pair, unsaid]))

    to_each = [(0.0, 3, target, 200) for target in range(8) if target != 3]
    assert rows_of(table) == [*to_each, (200.0, 3, 7, 100), (300.0, 3, 2, 100)]


def test_copies_of_torch_between_gpus(tmp_path: Path) -> None:
    args = {"fromDevice": 1, "inDevice": 1, "toDevice": 0, "bytes": 300, "stream": 20}
    copy = {
        "ph": "X",
        "cat": "gpu_memcpy",
        "name": "Memcpy PtoP (Device -> Device)",
        "ts": 5.0,
        "dur": 2.0,
        "args": args,
    }

    assert rows_of(table_of(kineto(tmp_path / "run.json", [copy]))) == [(0.0, 1, 0, 300)]


def test_files_of_ranks_are_one_table_if_they_are_of_one_run(tmp_path: Path) -> None:
    def rank(number: int, at: float) -> Path:
        return kineto(tmp_path / f"r{number}.json", [collective("_allgather_base", (10, 80), at, 8.0)], number)

    files = [rank(number, 100.0 + number) for number in range(8)]
    rows = rows_of(table_of(*files))

    assert rows == [(float(number), number, (number + 1) % 8, 140) for number in range(8)]
    assert refused(files[0], rank(9, 9e6)).startswith("MGS634 9 s lie between r0.json and r9.json")


def test_a_file_that_lasts_joins_those_that_begin_in_its_time(tmp_path: Path) -> None:
    spans = [(0, 9_000_000_000), (1_000, 2_000), (5_000_000_000, 5_000_001_000)]
    files = [nsight(tmp_path / f"{number}.sqlite", [(*span, 1, 100, 10, 1, 0)]) for number, span in enumerate(spans)]

    assert len(rows_of(table_of(*files))) == 3


def test_a_rank_that_is_not_said_is_left_out(tmp_path: Path) -> None:
    file = kineto(tmp_path / "run.json", [collective("_allgather_base", (10, 80), 100.0, 8.0)], rank=None)

    assert "1 collective of a trace that does not say its rank" in refused(file)


def test_long_runs_are_cut_and_the_table_says_so(tmp_path: Path) -> None:
    copies = [(1000 * turn, 1000 * turn + 500, 1, 64, 10, 1, 0) for turn in range(MAX_ROWS + 5)]
    table = table_of(nsight(tmp_path / "run.sqlite", copies))

    assert table.count == MAX_ROWS
    assert f"the first {MAX_ROWS:,} of {MAX_ROWS + 5:,} writes" in notes_of(table)
