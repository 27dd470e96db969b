"""Chakra traces: the pairs that their sizes tell, and files that are cut off, damaged or of something else."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magus.advisor.measured.traces.chakra import MAX_RECORD, fields, is_chakra, read_chakra, records
from magus.advisor.measured.traces.chrome import TraceError
from magus.advisor.measured.traces.run import find_pairs
from magus.compiler import compile_text
from magus.compiler.ir import Pattern
from tests.helpers.chakra import ALL_GATHER, LAYERS, collective, gemm, groups, layer, node, trace
from tests.helpers.commands import magus
from tests.helpers.hostile_text import EVERYTHING, is_safe
from tests.helpers.marks import examples
from tests.helpers.scenarios.compiled import cases_in


def pieces(data: bytes, size: int = 1 << 12) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_pairs_of_layers(size: int) -> None:
    run = read_chakra(pieces(LAYERS, size))

    assert not run.has_times and (len(run.gemms), len(run.collectives)) == (6, 6)
    found = {
        (pair.shape.operation, pair.shape.m, pair.shape.n, pair.shape.k, pair.shape.num_ranks): pair
        for pair in find_pairs(run)
    }
    assert set(found) == {("all_gather", 4096, 3584, 8192, 8), ("reduce_scatter", 4096, 8192, 3584, 8)}
    gathered = found["all_gather", 4096, 3584, 8192, 8]
    assert (gathered.count, gathered.collective_us, gathered.gemm_us) == (3, 190.0, 370.0)
    assert gathered.together_us is None and gathered.hidden is None


def test_what_ran_beside_what_is_known_where_kernels_have_times() -> None:
    nodes = [
        groups(("0", 8)),
        collective(10, ALL_GATHER, 2 * 4096 * 8192 // 8, 190, start=1000),
        *gemm(11, (4096, 3584, 8192), 370, start=1150),
    ]
    (pair,) = find_pairs(read_chakra(pieces(trace(nodes))))

    assert pair.together_us == 520.0 and pair.hidden == pytest.approx(40 / 190)


def test_the_command_writes_workloads(tmp_path: Path) -> None:
    path = tmp_path / "step.0.et"
    path.write_bytes(LAYERS)

    done = magus("import", path, "--gpu", "H100")
    compiled = compile_text(done.stdout)

    assert {each.shape.pattern for each in cases_in(compiled)} == {Pattern.AG_GEMM, Pattern.GEMM_RS}
    assert "a trace of Chakra" in done.stdout
    assert "3 times in the trace, medians: all_gather 190.0 us, GEMM 370.0 us.\n" in done.stdout
    assert "MGS604" in magus("import", path).stderr, "it does not name its GPU"


def test_a_group_of_unknown_size_is_reported() -> None:
    run = read_chakra(pieces(trace([groups(("1", 8)), *layer(10)])))

    assert not run.collectives and any("2 collectives are of a group" in note for note in run.notes)


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"\x00\x00", LAYERS[:9], b"\x08" + b"mgs 1 \n" * 9, b"\xff" * 40, trace([]), trace([], "x")]
)
def test_other_files_are_none(data: bytes) -> None:
    assert not is_chakra(pieces(data))


def test_a_trace_for_a_simulator_has_no_shapes(tmp_path: Path) -> None:
    path = tmp_path / "sim.0.et"
    path.write_bytes(trace([node(1, "gemm", 4, us=5, num_ops=8, is_cpu_op=False), collective(2, 0, 64, 1)]))

    done = magus("import", path, "--gpu", "H100")

    assert done.exit_code == 1 and "MGS631" in done.stderr and "no GEMM whose shape" in done.stderr


def test_a_trace_that_is_cut_off_gives_what_it_has() -> None:
    run = read_chakra(pieces(LAYERS[:-5]))

    assert len(run.collectives) == 5 and any("ends early" in note for note in run.notes)


def test_lengths_are_limited() -> None:
    with pytest.raises(TraceError, match="too long"):
        list(records(iter([b"\xff\xff\xff\x7f" + b"x" * 99])))
    assert MAX_RECORD < 0xFFFFFFF


@pytest.mark.parametrize("literal", ["[" * 9999, "__import__('os')", "9" * 70_000, "[[1e999]]", "{[]}", "\x00", "None"])
def test_what_should_be_lists_is_never_run(literal: str) -> None:
    nodes = [
        node(1, "aten::mm", 4, shapes=literal, types=literal, is_cpu_op=True),
        node(2, "## process_group:init ##", 1, values=[literal]),
        node(3, "## process_group:init ##", 1, values=literal),
    ]
    assert not read_chakra(pieces(trace([*nodes, *layer(10)]))).collectives


def test_names_stay_in_their_comments(tmp_path: Path) -> None:
    path = tmp_path / EVERYTHING.replace("/", "|")
    path.write_bytes(LAYERS)
    done = magus("import", path, "--gpu", "H100")

    assert is_safe(done.stdout) and compile_text(done.stdout).workloads


@st.composite
def damages(draw: st.DrawFn) -> bytes:
    data = bytearray(LAYERS)
    for _ in range(draw(st.integers(1, 8))):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    start, end = sorted(draw(st.lists(st.integers(0, len(data)), min_size=2, max_size=2)))
    if draw(st.booleans()):
        del data[start:end]
    return bytes(data)


@examples(150)
@given(damages())
def test_damaged_traces(data: bytes) -> None:
    is_chakra(pieces(data))
    try:
        run = read_chakra(pieces(data))
    except TraceError:
        return
    assert all(pair.count > 0 for pair in find_pairs(run)) or not run.collectives


@examples(100)
@given(st.binary(max_size=200))
def test_fields_of_any_bytes(data: bytes) -> None:
    try:
        found = list(fields(data))
    except TraceError:
        return
    assert all(number > 0 or isinstance(value, int) for number, value in found) or not found
