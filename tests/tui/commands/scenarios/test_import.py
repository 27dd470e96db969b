"""``magus import``: a dump becomes a system that ``magus check`` accepts, a log a table, a trace workloads."""

import gzip
import json
import os
import re
from pathlib import Path

import pytest

from tests.helpers.commands import magus
from tests.helpers.hostile_text import EVERYTHING, is_safe
from tests.helpers.machines import MACHINES
from tests.helpers.paths import GOLDEN
from tests.helpers.traces import LAYERS, nsight, several_ranks
from tests.helpers.traces import document as trace_of

H100 = MACHINES / "h100.xml"


def test_to_stdout_and_to_a_file(tmp_path: Path) -> None:
    out = tmp_path / "node.mgs"

    shown = magus("import", H100)
    written = magus("import", H100, "-o", out)

    assert (shown.exit_code, written.exit_code) == (0, 0)
    assert shown.stdout == out.read_text() == (MACHINES / "h100.xml.mgs").read_text()
    assert (shown.stderr, written.stdout) == ("", "")
    assert written.stderr == f"{out}: system node of 8 x H100\n"
    assert magus("check", out).exit_code == 0
    assert magus("fmt", "--check", out).exit_code == 0


def test_a_file_that_includes_the_machine_is_simulated(tmp_path: Path) -> None:
    magus("import", MACHINES / "mi300x.xml", "-o", tmp_path / "node.mgs")
    own = tmp_path / "own.mgs"
    own.write_text(
        'include "node.mgs"\nworkload w on node { x = tensor bf16[512, 512] shard rows; y = all_gather(x) }\n'
    )

    done = magus("simulate", own)

    assert done.exit_code == 0, done.output
    assert "MI300X" in done.stdout


def test_warnings_of_a_broken_machine_go_to_stderr() -> None:
    done = magus("import", MACHINES / "h100_broken.xml")

    assert done.exit_code == 0
    assert done.stderr.count("MGS610 warning") == 2
    assert "GPU 5 at 0000:ac:00.0 has no NVLink" in done.stderr


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "MGS601"),
        (b"<system><gpu", "MGS602"),
        (b"\xff\xfe<\0s\0", "MGS121"),
        (b"\x89PNG\xff", "MGS121"),
        (b" " * ((16 << 20) + 1), "MGS130"),
        (EVERYTHING.encode(), "MGS601"),
    ],
    ids=["empty", "cut", "utf-16", "binary", "large", "escapes"],
)
def test_bad_input_is_one_error(tmp_path: Path, data: bytes, code: str) -> None:
    path, out = tmp_path / "dump", tmp_path / "out.mgs"
    path.write_bytes(data)

    done = magus("import", path, "-o", out)

    assert done.exit_code == 1
    assert done.stderr.count(" error: ") == 1 and code in done.stderr
    assert is_safe(done.stderr)
    assert not out.exists()


def test_a_gigabyte_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "dump.xml"
    with path.open("wb") as file:
        os.truncate(file.fileno(), 1 << 30)

    assert "MGS130" in magus("import", path).stderr


def test_a_log_becomes_a_table(tmp_path: Path) -> None:
    log = GOLDEN / "logs" / "all_gather_h100.log"
    out, other = tmp_path / "nccl_collectives_lab.csv", tmp_path / "rows.csv"

    named, plain = magus("import", log, "-o", out), magus("import", log, "-o", other, "--collective", "all_gather")

    assert (named.exit_code, named.stderr) == (0, f"{out}: 10 rows\n")
    assert plain.stderr.splitlines() == [
        f"{other}: 10 rows",
        "magus validate and calibrate read tables that are called nccl_collectives_*.csv",
    ]
    assert magus("import", log).stdout == out.read_text() == other.read_text()
    other.unlink()
    assert "all_gather" in magus("validate", "--data", tmp_path, "--sample", "0").stdout


@pytest.mark.slow
def test_a_trace_becomes_workloads(tmp_path: Path) -> None:
    plain, packed, out = tmp_path / "a.json", tmp_path / "a.json.gz", tmp_path / "a.mgs"
    plain.write_text(LAYERS)
    packed.write_bytes(gzip.compress(LAYERS.encode()))

    done = magus("import", packed, "-o", out)

    assert (done.exit_code, done.stderr) == (0, f"{out}: 2 workloads\n")
    assert magus("check", out).exit_code == 0
    assert magus("fmt", "--check", out).exit_code == 0
    assert magus("import", plain).stdout == out.read_text().replace("a.json.gz", "a.json")
    assert magus("simulate", out, "--workload", "gemm_rs_2", "--granularity", "packet").exit_code == 0


def test_of_several_ranks_collectives_are_without_what_they_waited(tmp_path: Path) -> None:
    files = [tmp_path / f"{rank}.json" for rank in range(2)]
    for rank, (file, events) in enumerate(zip(files, several_ranks(8, 3, 0.3), strict=False)):
        file.write_text(json.dumps({**trace_of(events), "distributedInfo": {"rank": rank}}))
    alone, of_both = magus("import", files[0]), magus("import", *files)
    twice = magus("import", files[0], files[0])

    assert "of 4 collectives waited for other ranks: times are without that" in of_both.stdout
    assert median_us(of_both.stdout) < median_us(alone.stdout)
    assert (twice.exit_code, "MGS634" in twice.stderr) == (1, True)


def median_us(text: str) -> float:
    """The first time that is said of an all_gather."""
    return float(re.findall(r"medians: all_gather ([\d.]+) us", " ".join(text.replace("#", "").split()))[0])


def test_a_packed_trace_that_is_cut_off(tmp_path: Path) -> None:
    data = gzip.compress(LAYERS.encode(), 0)
    path = tmp_path / "a.json.gz"
    path.write_bytes(data[: len(data) * 3 // 4])
    part = magus("import", path)
    path.write_bytes(data[: len(data) // 2] + b"damage" * 20_000)
    damaged = magus("import", path)
    path.write_bytes(data[:30])

    assert part.exit_code == damaged.exit_code == 0
    assert "ends early or is damaged" in part.stdout and "ends early or is damaged" in damaged.stdout
    assert magus("import", path).exit_code == 1


def test_a_bomb_is_unpacked_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "a.json.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents": [' + b" " * (4 << 20)))

    assert "MGS631" in magus("import", path).stderr


def test_a_collective_is_of_a_log() -> None:
    done = magus("import", H100, "--collective", "all_gather")

    assert (done.exit_code, done.stdout) == (2, "")
    assert "--collective is for logs of nccl-tests" in done.stderr


def test_missing_files_and_names() -> None:
    assert "MGS120" in magus("import", MACHINES / "none.xml").stderr
    unknown = magus("import", H100, "--gpu", "\x1b[31mh100\n")

    assert "MGS604" in unknown.stderr and "--gpu:1:1" in unknown.stderr
    assert is_safe(unknown.stderr)


def test_traffic_of_profiles_is_beside_a_plan(tmp_path: Path) -> None:
    pushes = [(1, turn) for turn in range(5)] + [(2, turn) for turn in range(5)]
    copies = [(20_000 * turn, 20_000 * (turn + 1), rank, 4 << 20, 10, rank, 0) for rank, turn in pushes]
    profile, table = nsight(tmp_path / "run.sqlite", copies), tmp_path / "others.csv"
    text = """use "nvidia/h100"
system box { gpus 8 x H100; fabric switch(nvswitch, link=nvlink) TRAFFIC }
workload w on box { x = tensor bf16[8192, 8192] shard rows; y = all_gather(x) }
"""
    alone, beside = tmp_path / "alone.mgs", tmp_path / "beside.mgs"
    alone.write_text(text.replace("TRAFFIC", ""))
    beside.write_text(text.replace("TRAFFIC", '; traffic { file "others.csv" }'))

    done = magus("import", profile, "--traffic", "-o", table)
    packets = ("--granularity", "packet", "--json")
    took = [json.loads(magus("simulate", file, *packets).stdout) for file in (alone, beside)]

    assert (done.exit_code, done.stderr) == (0, f"{table}: 40 writes\n")
    assert took[1]["makespan_us"] > 1.05 * took[0]["makespan_us"]


def test_several_files_are_those_of_traffic(tmp_path: Path) -> None:
    several = magus("import", H100, H100)
    trace, missing = tmp_path / "0.json", tmp_path / "1.json"
    trace.write_text(LAYERS)
    with_none = magus("import", trace, missing)
    of_a_log = magus("import", H100, "--traffic", "--collective", "all_gather")
    no_profile = magus("import", H100, "--traffic")

    assert [each.exit_code for each in (several, of_a_log, no_profile)] == [2, 2, 1]
    assert "several files are traces of several ranks, or read with --traffic" in several.stderr
    assert (with_none.exit_code, f"{missing} is no file with a trace" in with_none.stderr) == (2, True)
    assert "MGS630" in no_profile.stderr
