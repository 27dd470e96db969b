"""Damaged dumps: a diagnostic at a place or a system that compiles, never anything else."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magus.compiler import CompileError, compile_text
from magus.compiler.text.diagnostics import as_json, render_text
from tests.helpers.hostile_text import EVERYTHING, is_safe
from tests.helpers.machines import GPU, MACHINES, imported
from tests.helpers.marks import examples

FILES = [path for path in sorted(MACHINES.iterdir()) if path.suffix != ".mgs"]
BYTES = {path: path.read_bytes() for path in FILES}
WORKLOAD = "\nworkload w on node { x = tensor bf16[GPUS, 8] shard rows; y = all_gather(x) }\n"


def check(data: bytes, name: str) -> None:
    text = data.decode("utf-8", "replace")
    try:
        machine, written, warnings = imported(text, GPU.get(name, ""), name)
    except CompileError as error:
        assert error.diagnostics
        for each in error.diagnostics:
            as_json(each)
        assert is_safe(render_text(error.diagnostics))
        return
    render_text(warnings)
    assert is_safe(written)
    num_gpus = len(machine.gpus)
    assert len(compile_text(written + (WORKLOAD.replace("GPUS", str(num_gpus)) if num_gpus > 1 else "")).workloads) < 2


@st.composite
def damages(draw: st.DrawFn) -> tuple[Path, bytes]:
    path = draw(st.sampled_from(FILES))
    data = bytearray(BYTES[path])
    for _ in range(draw(st.integers(0, 8))):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255) | st.sampled_from(b'<>"\t\n 0189=/'))
    start, end = sorted(draw(st.lists(st.integers(0, len(data)), min_size=2, max_size=2)))
    if draw(st.booleans()):
        del data[start:end]
    return path, bytes(data)


@examples(150)
@given(damages())
def test_damaged_bytes(damage: tuple[Path, bytes]) -> None:
    path, data = damage
    check(data, path.name)


@pytest.mark.quick(6)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_files_that_end_early(path: Path) -> None:
    data = BYTES[path]
    for end in range(0, len(data), max(1, len(data) // 40)):
        check(data[:end], path.name)


@pytest.mark.quick(9)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_numbers_that_cannot_be(path: Path) -> None:
    for number in (b"-1", b"0", b"99999999999999999999", b"1e9", b"nan", "\u0663".encode(), EVERYTHING.encode()):
        for digits in (b"18", b"4", b"8", b"1", b"0"):
            check(BYTES[path].replace(digits, number), path.name)
