"""Times of all ops of a run as arrays, for a notebook or a file that numpy reads."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..program.program import Int64Array, OpKind, Program, Run

TextArray = npt.NDArray[np.str_]


@dataclass(frozen=True, slots=True)
class OpTable:
    """One entry for each op, in the order of its rank's program; times in ticks of 10 fs, -1 where it did not happen.

    Joins, which only gather and take no time, are left out.
    """

    label: TextArray
    kind: TextArray  # names of OpKind, in lower case
    rank: Int64Array
    pool: TextArray  # the pool whose slot the op held, empty without one
    ready_ticks: Int64Array
    start_ticks: Int64Array
    done_ticks: Int64Array
    polls: Int64Array

    def save(self, path: Path) -> None:
        """Write a compressed ``.npz``, one array a column; nothing in it is pickled."""
        np.savez_compressed(path, **{name: getattr(self, name) for name in self.__slots__})


def op_table(program: Program, run: Run) -> OpTable:
    """The ops of ``program`` as ``run`` found them."""
    ops = np.flatnonzero(program.op_kind != OpKind.JOIN)
    ops = ops[np.lexsort((program.op_local_id[ops], program.op_rank[ops]))]
    kinds = np.array([kind.name.lower() for kind in OpKind])
    pools = np.array([*map(program.pool_name, range(len(program.pool_slots))), ""])
    return OpTable(
        label=np.array(program.labels)[program.op_label_idx[ops]],
        kind=kinds[program.op_kind[ops]],
        rank=program.op_rank[ops],
        pool=pools[program.op_pool[ops]],  # NONE is -1, the last
        ready_ticks=run.op_ready[ops],
        start_ticks=run.op_start[ops],
        done_ticks=run.op_done[ops],
        polls=run.op_polls[ops],
    )
