"""Logs of nccl-tests as rows: every form of its table, what it does not say, and damaged ones."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magus.advisor.measured import Imported
from magus.advisor.measured.nccl_logs import COLUMNS, is_log, is_other_table, read_log
from magus.advisor.measured.tables.collectives import MeasuredPoint, shipped_points
from magus.compiler import CompileError
from magus.compiler.text.diagnostics import Diagnostic, Report, Source, as_json, render_text
from tests.helpers.commands import magus
from tests.helpers.hostile_text import EVERYTHING, is_safe
from tests.helpers.marks import examples
from tests.helpers.paths import GOLDEN
from tests.helpers.some import some

LOGS = GOLDEN / "logs"
H100, MPI, REPORT = (
    (LOGS / name).read_text() for name in ("all_gather_h100.log", "all_reduce_a100_mpi.log", "reduce_scatter_b200.json")
)
FILES = {"all_gather_h100.log": H100, "all_reduce_a100_mpi.log": MPI, "reduce_scatter_b200.json": REPORT}
FOURTH = next(line for line in H100.splitlines() if "Rank  3" in line)


def read(
    text: str, gpu: str = "", collective: str = "", name: str = "run.log"
) -> tuple[Imported, tuple[Diagnostic, ...]]:
    """The rows of a log and the warnings.

    Raises
    ------
    CompileError
        If it is refused.
    """
    report = Report()
    with report.attempt():
        return read_log(Source(name, text), gpu, collective, report), report.diagnostics
    raise CompileError(report.diagnostics)


def rows(text: str, gpu: str = "", collective: str = "", name: str = "run.log") -> list[str]:
    return read(text, gpu, collective, name)[0].text.splitlines()[2:]


def refused(text: str, gpu: str = "", collective: str = "", name: str = "run.log") -> tuple[str, str]:
    """Code and message of the last error."""
    with pytest.raises(CompileError) as caught:
        read(text, gpu, collective, name)
    found = [each for each in caught.value.diagnostics if each.severity.value == "error"]
    return found[-1].code.name, found[-1].message


def test_a_table() -> None:
    found, warnings = read(H100)

    assert found.count == 10 and not warnings
    assert found.text.splitlines()[:3] == [
        "# From run.log, nccl-tests: times out of place.",
        COLUMNS,
        "H100-80GB-HBM3,8,all_gather,half,1024,13.2",
    ]


def test_an_old_table_under_mpirun() -> None:
    found, warnings = read(MPI)

    assert found.text.splitlines()[-1] == "A100-SXM4-80GB,4,all_reduce,float,67108864,449.43"
    assert [(each.code.name, each.message) for each in warnings] == [
        ("MGS624", "rows of float: magus validate and calibrate compare half alone")
    ]


def test_a_report_names_the_first_rank_of_a_process_alone() -> None:
    assert rows(REPORT)[0] == "B200,4,reduce_scatter,half,1048576,21.3107"


def test_rows_are_read_by_validate(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / f"nccl_collectives_{name}.csv").write_text(read(text)[0].text)

    found = list(shipped_points(tmp_path))

    points = [each for each in found if isinstance(each, MeasuredPoint)]
    assert [(each.gpu, each.ranks, each.operation.value) for each in points[::10]] == [
        ("H100", 8, "all_gather"),
        ("B200", 4, "reduce_scatter"),
    ]
    assert len(points) == 14
    assert [each for each in found if isinstance(each, str) and "half precision" in each]


def table(row: str, head: str = "", ranks: int = 2) -> str:
    devices = "".join(f"#  Rank {each} Group  0 Pid 1 on a device {each} [0x1b] NVIDIA H200\n" for each in range(ranks))
    return f"# nThread 1 nGpus {ranks} minBytes 8\n# Using devices\n{devices}{head}{row}\n"


@pytest.mark.parametrize(
    ("row", "head", "bytes_and_time"),
    [
        (" 1048576 262144 half sum -1 45.20 23.20 43.50", "", "1048576,45.2"),
        ("1073741824  2.68e+8  half sum -1 59530.2 18.04 33.82 0 57634.7 18.63 34.93 0", "", "1073741824,59530.2"),
        ("8589934592 4294967296 half sum -1 1.2e+06 7.1 6.2 N/A 1.1e+06 7.1 6.2 N/A", "", "8589934592,1.2e+06"),
        (
            "1024 512 half sum 9.5 0.1 0.1 0e+00 9.4 0.1 0.1 0e+00",
            "# size count type redop time algbw busbw error\n",
            "1024,9.5",
        ),
        (
            "1024 512 half sum -1 9.5 0.1 0.1 0 9.1 9.9 9.8 1.0 9.4 0.1 0.1 0 9.1 9.9 9.8 1.0",
            "# size count type redop root time algbw busbw #wrong i_min i_max i_p99 i_cv% time algbw busbw #wrong\n",
            "1024,9.5",
        ),
    ],
)
def test_versions_of_the_table(row: str, head: str, bytes_and_time: str) -> None:
    found = rows(table(row, head), collective="allreduce")

    assert found == [f"H200,2,all_reduce,half,{bytes_and_time}"]


def test_rows_that_are_left_out() -> None:
    good = "1024 512 half none -1 9.5 0.1 0.1 0 9.4 0.1 0.1 0\n"
    bad = (
        good.replace(" 0 9.4", " 3 9.4")
        + good.replace("9.5", "0.00")
        + "1024 512 half\n"
        + "0 0 half none -1 1 0 0 0\n"
    )
    found, warnings = read(table(good + bad), collective="all_gather")

    assert found.count == 1
    assert [(each.code.name, each.message) for each in warnings] == [
        ("MGS622", "1 rows left out: their results are wrong"),
        ("MGS622", "2 rows left out: no bytes, or no time"),
        ("MGS622", "1 rows left out: they are no rows of nccl-tests, or end early"),
    ]


def test_several_runs_in_one_log() -> None:
    second = H100.replace("all_gather", "alltoall").replace("H100 80GB HBM3", "H200")

    assert [line.split(",")[:3] for line in rows(H100 + second)[::10]] == [
        ["H100-80GB-HBM3", "8", "all_gather"],
        ["H200", "8", "all_to_all"],
    ]
    both = MPI + MPI.replace("-np 4", "-np 4 -x A=1")
    assert len(rows(both)) == 6


def test_what_a_log_does_not_say_is_requested_for() -> None:
    row = table("1024 512 half none -1 9.5 0.1 0.1 0")
    bare = "1024 512 half none -1 9.5 0.1 0.1 0\n"

    assert refused(row) == ("MGS621", "the log does not say which collective this is")
    assert rows(row, name="/a/2026_all_gather_perf.log") == rows(row, collective="all_gather")
    assert (
        refused("# nThread 1 nGpus 2 \n" + bare, "H100", "all_gather")[1]
        == "the log does not say how many ranks there were"
    )
    assert refused("# nThread 1 nGpus 2 \n" + bare, "", "all_gather")[1] == "the log does not say which GPUs these are"
    assert rows(row, "h800", "all_gather") == ["H800,2,all_gather,half,1024,9.5"]


@pytest.mark.parametrize(
    ("text", "collective", "code", "says"),
    [
        (H100.replace("_perf", "_gone").replace("all_gather", "sendrecv"), "", "MGS621", "no model of 'sendrecv_gone'"),
        (H100.replace("all_gather", "alltoallv"), "", "MGS621", "no model of 'alltoallv_perf'"),
        (H100, "all_reduce", "MGS621", "redop none does not fit all_reduce"),
        (MPI, "all_gather", "MGS621", "redop sum does not fit all_gather"),
        (H100, "gather", "MGS621", "no model of 'gather'"),
        (H100.replace(FOURTH, FOURTH.replace("lab-07", "lab-08")), "", "MGS623", "2 nodes"),
        (H100.replace(FOURTH, FOURTH.replace("Group  0", "Group  1")), "", "MGS623", "2 groups at once"),
        (H100.replace(FOURTH, FOURTH.replace("H100", "B200")), "", "MGS605", "GPUs of several kinds"),
        (H100.replace(" time ", " cputime "), "", "MGS620", "no row with a time"),
        ("# nThread 1 nGpus 8 \n", "all_gather", "MGS620", "no row with a time"),
        (REPORT.replace('"size"', '"volume"'), "", "MGS620", "no row with a time"),
        (REPORT[:-40], "", "MGS620", "no JSON"),
        (REPORT.replace('"ngpus":4', '"ngpus":-4'), "", "MGS307", "config.ngpus"),
        (REPORT.replace('"results":[', '"results":[3,'), "", "MGS620", "results[0]: an object is expected"),
        (REPORT.replace("reduce_scatter_perf", "scatter_perf"), "", "MGS621", "no model of 'scatter_perf'"),
    ],
)
def test_bad_logs(text: str, collective: str, code: str, says: str) -> None:
    found, message = refused(text, collective=collective)

    assert found == code
    assert says in message


def test_a_gpu_without_a_profile_is_no_other() -> None:
    text = H100.replace("H100 80GB HBM3", "H100 PCIe")

    assert rows(text)[0].startswith("H100_PCIe,8,")


def test_fields_hold_no_marks_of_a_table() -> None:
    evil = 'x,1\t"=1+1"'
    text = H100.replace("NVIDIA H100 80GB HBM3", f"NVIDIA {evil}").replace("    half ", '  ha,"lf ')
    found = rows(text)

    assert all(line.count(",") == 5 and '"' not in line and "=" not in line for line in found)
    assert is_safe(read(H100, name=f"/tmp/{EVERYTHING}\n.log")[0].text)


def test_other_texts_are_no_logs() -> None:
    assert [is_log(text) for text in FILES.values()] == [True] * 3
    assert not is_log("") and not is_log("<system/>") and not is_log('{"results": []}')


@st.composite
def damages(draw: st.DrawFn) -> tuple[str, str]:
    name = draw(st.sampled_from(sorted(FILES)))
    data = bytearray(FILES[name].encode())
    for _ in range(draw(st.integers(0, 8))):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255) | st.sampled_from(b'#,"{}[]\n -.0189e'))
    start, end = sorted(draw(st.lists(st.integers(0, len(data)), min_size=2, max_size=2)))
    if draw(st.booleans()):
        del data[start:end]
    return name, bytes(data).decode("utf-8", "replace")


@examples(150)
@given(damages())
def test_damaged_logs(damage: tuple[str, str]) -> None:
    name, text = damage
    try:
        found, warnings = read(text, name=name)
    except CompileError as error:
        assert error.diagnostics and is_safe(render_text(error.diagnostics))
        assert [as_json(each) for each in error.diagnostics]
        return
    assert is_safe(found.text) and is_safe(render_text(warnings))
    assert all(line.count(",") == 5 for line in found.text.splitlines()[1:])


@pytest.mark.parametrize("name", FILES)
def test_logs_that_end_early(name: str) -> None:
    text = FILES[name]
    ends: list[Any] = []
    for end in range(0, len(text), max(1, len(text) // 60)):
        try:
            ends.append(read(text[:end], name=name)[0].count)
        except CompileError:
            ends.append(None)

    assert None in ends


def test_a_report_with_other_numbers() -> None:
    changed = json.loads(REPORT)
    changed["results"][0]["out_of_place"] = None
    changed["results"][1]["out_of_place"]["time"] = "nan"
    changed["results"][2]["out_of_place"] = {"avg_us": 41, "nwrong": None}
    changed["results"][3]["out_of_place"]["nwrong"] = 2.0
    changed["config"]["devices"] = [dict(changed["config"]["devices"][0], rank=rank) for rank in range(4)]
    found, warnings = read(json.dumps(changed))

    assert found.text.splitlines()[2:] == ["B200,4,reduce_scatter,half,16777216,41"]
    assert [each.message for each in warnings] == [
        "2 results left out: no bytes, or no time out of place",
        "1 rows left out: their results are wrong",
    ]


def test_lines_of_ranks_without_the_name_of_their_gpu_count() -> None:
    blank = re.sub(r"(\[[0-9a-f:.]+\]) NVIDIA.*", r"\1 ", H100)

    assert blank != H100 and refused(blank) == ("MGS621", "the log does not say which GPUs these are")
    assert rows(blank, gpu="H100")[0].startswith("H100,8,all_gather")


@pytest.mark.parametrize(
    "text",
    [
        "size(MB)  tavg(usec)  tmin(usec)  avgbw(GB/sec)\n0.10  227.7  196.8  0.77\n",
        "# OSU MPI-CUDA Allreduce Latency Test v7.3\n# Size   Avg Latency(us)   Bandwidth (GB/s)\n4   21.5   0.1\n",
    ],
)
def test_tables_of_other_benchmarks_are_reported_to_be_none(text: str, tmp_path: Path) -> None:
    path = tmp_path / "table.log"
    path.write_text(text)
    done = magus("import", path)

    assert done.exit_code == 1 and "MGS620" in done.stderr
    assert "a table of times, and no log of nccl-tests" in done.stderr and "dump of a machine" not in done.stderr


def test_scenarios_and_dumps_are_no_tables() -> None:
    files = [*(GOLDEN / "machines").iterdir(), *(GOLDEN / "models").iterdir()]

    assert not any(is_other_table(file.read_text()) for file in some(files))
