"""The table of ops says what the run found, and survives a file."""

from pathlib import Path

import numpy as np

from magus.simcore.cores.engine import run
from magus.simcore.figures.metrics import op_table
from magus.simcore.program.builder import ProgramBuilder
from magus.simcore.program.program import OpKind, OpSpec, Stage


def test_every_op_but_joins_is_listed_and_saved(tmp_path: Path) -> None:
    b = ProgramBuilder(2, unit_bytes=128)
    sms = b.pool("sms", 1)
    late = b.op(1, OpSpec(OpKind.TILE, "late", [Stage(4)], pool=sms))
    early = b.op(0, OpSpec(OpKind.LAUNCH, "early", [Stage(3)]))
    join = b.op(0, OpSpec(OpKind.JOIN, "join"))
    b.after(join, early)
    b.after(late, join)
    program = b.build()

    table = op_table(program, run(program))
    table.save(tmp_path / "ops.npz")

    with np.load(tmp_path / "ops.npz") as saved:
        columns = {name: saved[name].tolist() for name in saved.files}
    assert columns == {
        "label": ["early", "late"],
        "kind": ["launch", "tile"],
        "rank": [0, 1],
        "pool": ["", "sms[1]"],
        "ready_ticks": [0, 3],
        "start_ticks": [0, 3],
        "done_ticks": [3, 7],
        "polls": [0, 0],
    }


def test_a_program_without_ops_has_an_empty_table() -> None:
    program = ProgramBuilder(1, unit_bytes=128).build()

    assert len(op_table(program, run(program)).label) == 0
