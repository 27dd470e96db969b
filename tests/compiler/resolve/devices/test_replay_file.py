"""Profiles: what is read is what was written, and what is wrong is told with its line."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magus.compiler import CompileError, compile_file
from magus.compiler.codes import Code
from magus.compiler.ir import Replay, Write
from magus.compiler.resolve.devices.variability import HEADER, read_replay, write_profile
from magus.compiler.text.diagnostics import Report, Source, Span
from magus.compiler.text.syntax import Text

SYSTEM = """
use "amd/mi300x"
system s { gpus 4 x MI300X; fabric full_mesh(xgmi); replay "p.csv" }
workload g on s { a = tensor bf16[8, 8]; y = gemm(a, a) }
"""


def replayed(folder: Path, profile: str) -> Replay:
    (folder / "p.csv").write_text(profile, encoding="utf-8")
    file = folder / "a.mgs"
    file.write_text(SYSTEM)
    found = compile_file(file).scenario().case.system.replay
    assert found is not None
    return found


def test_rows_are_writes_in_the_order_of_time(tmp_path: Path) -> None:
    profile = (
        f"# of a run\n{HEADER}\n\n0,1,a,128  # first\n1,1,a,0  # a flag\n12.5,3,s_x0_1, 65536\n12.50000001,3,s_x0_1,1\n"
    )

    assert replayed(tmp_path, profile) == Replay(
        "p.csv",
        (
            Write(0, 1, "a", 128),
            Write(100_000_000, 1, "a", 0),
            Write(1_250_000_000, 3, "s_x0_1", 65536),
            Write(1_250_000_001, 3, "s_x0_1", 1),
        ),
    )


@pytest.mark.parametrize(
    ("rows", "code", "line"),
    [
        ("1,1,a", Code.MGS136, 2),
        ("1,1,a,8\n-1,1,b,8", Code.MGS136, 3),
        ("2,1,a,8\n1,1,b,8", Code.MGS136, 3),
        ("1,1,a,8\n2,2,a,8", Code.MGS136, 3),
        ("1.123456789,1,a,8", Code.MGS136, 2),
        ("nan,1,a,8", Code.MGS136, 2),
        ("1e3,1,a,8", Code.MGS136, 2),
        ("1,one,a,8", Code.MGS136, 2),
        ("1,1,a b,8", Code.MGS136, 2),
        ("1,1,,8", Code.MGS136, 2),
        ("1,0,a,8", Code.MGS307, 2),
        ("1,4,a,8", Code.MGS307, 2),
        (f"1,1,a,{(1 << 40) + 1}", Code.MGS307, 2),
        ("1,1,a,-8", Code.MGS136, 2),
    ],
)
def test_a_wrong_row_is_reported_with_its_line(tmp_path: Path, rows: str, code: Code, line: int) -> None:
    with pytest.raises(CompileError) as caught:
        replayed(tmp_path, f"{HEADER}\n{rows}\n")

    (found,) = caught.value.diagnostics
    assert (found.code, found.span.location.line) == (code, line)
    assert found.span.source.path.endswith("p.csv")


@pytest.mark.parametrize("profile", ["", "# nothing\n", "1,1,a,8\n", "time_us,rank,bytes\n"])
def test_a_profile_begins_with_its_header(tmp_path: Path, profile: str) -> None:
    with pytest.raises(CompileError, match="begins with the line"):
        replayed(tmp_path, profile)


def test_every_wrong_row_is_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(CompileError) as caught:
        replayed(tmp_path, f"{HEADER}\n1,9,a,8\n2,1,b,8\n3,1,c\n")

    assert [found.span.location.line for found in caught.value.diagnostics] == [2, 4]


def test_a_large_or_binary_or_absent_profile_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="larger than 1 MiB"):
        replayed(tmp_path, f"{HEADER}\n" + "#" * (1 << 20))
    with pytest.raises(CompileError, match="zero byte"):
        replayed(tmp_path, "\0")
    (tmp_path / "p.csv").unlink()
    with pytest.raises(CompileError, match="No such file"):
        compile_file(tmp_path / "a.mgs")


writes = st.builds(
    Write,
    ticks=st.integers(0, 10**16),
    rank=st.integers(1, 255),
    signal=st.from_regex(r"[a-z_][a-z0-9_.]{0,8}", fullmatch=True),
    num_bytes=st.integers(0, 1 << 40),
)


@given(st.lists(writes, max_size=20, unique_by=lambda write: write.signal))
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, found: list[Write]) -> None:
    folder = tmp_path_factory.mktemp("profiles")
    ordered = tuple(sorted(found, key=lambda write: write.ticks))
    (folder / "p.csv").write_text(write_profile(ordered), encoding="utf-8")
    name = Text("p.csv", span=Span(Source(str(folder / "a.mgs"), ""), 0, 0))

    assert read_replay(name, 256, Report()) == Replay("p.csv", ordered)
