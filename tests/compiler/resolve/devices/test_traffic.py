"""Traffic of other programs: what is read, and what is wrong is told at its place."""

from fractions import Fraction
from pathlib import Path

import pytest

from magus.compiler import CompileError, compile_file
from magus.compiler.codes import Code
from magus.compiler.ir import TICKS_PER_US, BackgroundTraffic, BackgroundWrite, Distribution, Shape, WriteStream

SYSTEM = """
use "amd/mi300x"
system s { gpus 4 x MI300X; fabric full_mesh(xgmi); traffic { %s } }
workload g on s { a = tensor bf16[8, 8]; y = gemm(a, a) }
"""


def traffic(folder: Path, statements: str) -> BackgroundTraffic:
    file = folder / "a.mgs"
    file.write_text(SYSTEM % statements)
    found = compile_file(file).scenario().case.system.traffic
    assert found is not None
    return found


def test_streams(tmp_path: Path) -> None:
    found = traffic(
        tmp_path,
        "rank 1..3 writes 4 KiB every exponential(2 us) to 0; rank 0 writes 16 x 64 B every uniform(0 us, 5 us) to 2;"
        "rank 2 writes 1 MiB every 50 us to 1",
    )

    assert found.random and found.streams == (
        WriteStream((1, 2, 3), 0, 1, 4096, Distribution(Shape.EXPONENTIAL, (Fraction(2 * TICKS_PER_US),))),
        WriteStream((0,), 2, 16, 64, Distribution(Shape.UNIFORM, (Fraction(0), Fraction(5 * TICKS_PER_US)))),
        WriteStream((2,), 1, 1, 1 << 20, Distribution(Shape.CONSTANT, (Fraction(50 * TICKS_PER_US),))),
    )


def test_a_file_in_any_order(tmp_path: Path) -> None:
    (tmp_path / "n.csv").write_text("# of a neighbour\ntime_us, from, to, bytes\n2.5,1,0,128\n\n1,3,2,64 # first\n")

    found = traffic(tmp_path, 'file "n.csv"')

    assert not found.random
    assert found.writes == (
        BackgroundWrite(TICKS_PER_US, 3, 2, 64),
        BackgroundWrite(5 * TICKS_PER_US // 2, 1, 0, 128),
    )


def test_the_writes_of_a_recorded_run_without_its_flags(tmp_path: Path) -> None:
    (tmp_path / "n.csv").write_text("time_us, rank, signal, bytes\n1,3,s_x0_3,64\n2.5,1,s_x0_1,128\n3,1,s_x0_1,0\n")

    assert traffic(tmp_path, 'file "n.csv"').writes == (
        BackgroundWrite(TICKS_PER_US, 3, 0, 64),
        BackgroundWrite(5 * TICKS_PER_US // 2, 1, 0, 128),
    )


@pytest.mark.parametrize(
    ("statement", "code", "place"),
    [
        ("rank 0..3 writes 4 KiB every 2 us to 0", Code.MGS307, "to 0"),
        ("rank 4 writes 4 KiB every 2 us to 0", Code.MGS307, "4 writes"),
        ("rank 3..1 writes 4 KiB every 2 us to 0", Code.MGS306, "3..1"),
        ("rank 1 writes 64 every 2 us to 0", Code.MGS301, "64 every"),
        ("rank 1 writes 5000 x 1 B every 2 us to 0", Code.MGS307, "5000"),
        ("rank 1 sends 4 KiB every 2 us to 0", Code.MGS116, "sends"),
        ("rank 1 writes 4 KiB to 0", Code.MGS116, "to 0"),
        ("rank 1 writes 4 KiB every normal(2 us) to 0", Code.MGS204, "normal"),
        ("rank 1 writes 4 KiB every uniform(5 us, 2 us) to 0", Code.MGS306, "uniform"),
        ("rank 1 writes 4 KiB every uniform(0 us, 0 us) to 0", Code.MGS307, "uniform"),
        ("rank 1 writes 4 KiB every 0 us to 0", Code.MGS307, "0 us"),
        ("rank 1 writes 4 MiB every 2 us to 0", Code.MGS307, "traffic {"),
        ("skew normal(2 us)", Code.MGS201, "skew"),
        ("file 3", Code.MGS116, "3 }"),
        ('file "absent.csv"', Code.MGS120, '"absent'),
    ],
)
def test_what_is_wrong_is_told_at_its_place(tmp_path: Path, statement: str, code: Code, place: str) -> None:
    with pytest.raises(CompileError) as error:
        traffic(tmp_path, statement)

    (diagnostic,) = error.value.diagnostics
    assert diagnostic.code is code
    assert diagnostic.span.start == (SYSTEM % statement).index(place, 60) + (
        3 if place == "to 0" and code is Code.MGS307 else 0
    )


def test_a_table_says_which_headers_it_may_have(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("time,from,to,bytes\n0,1,0,8\n")

    with pytest.raises(CompileError) as error:
        traffic(tmp_path, 'file "p.csv"')

    (diagnostic,) = error.value.diagnostics
    assert diagnostic.message == "a table of traffic begins with the line time_us,from,to,bytes"
    assert "time_us,rank,signal,bytes" in diagnostic.hint


def test_a_replayed_profile_has_no_traffic_beside_it(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("time_us,rank,signal,bytes\n0,1,a,8\n")

    with pytest.raises(CompileError) as error:
        traffic(tmp_path, 'rank 1 writes 4 KiB every 2 us to 0 }; replay "p.csv"; variability { late rank 1 by 1 us')

    (diagnostic,) = error.value.diagnostics
    assert diagnostic.code is Code.MGS523


@pytest.mark.parametrize(
    ("row", "code"),
    [
        ("1,2,3", Code.MGS136),
        ("-1,1,0,8", Code.MGS136),
        ("nan,1,0,8", Code.MGS136),
        ("1,1,0,8,9", Code.MGS136),
        ("1,1,1,8", Code.MGS307),
        ("1,4,0,8", Code.MGS307),
        ("1,1,0,0", Code.MGS307),
        ("1,1,0,999999999999999", Code.MGS307),
    ],
)
def test_a_row_that_is_wrong_is_told_with_its_line(tmp_path: Path, row: str, code: Code) -> None:
    (tmp_path / "n.csv").write_text(f"time_us,from,to,bytes\n0,1,0,8\n{row}\n")

    with pytest.raises(CompileError) as error:
        traffic(tmp_path, 'file "n.csv"')

    (diagnostic,) = error.value.diagnostics
    assert (diagnostic.code, diagnostic.span.text) == (code, row)
