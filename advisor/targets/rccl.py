"""Rules for the tuner that is built into RCCL, in the columns of NCCL's.

A call that no line matches is RCCL's own choice.
"""

from ..policy.table import PolicyTable
from .base import Options, Target, comments, heading
from .left_whole import rows_of
from .nccl import csv_line
from .tuner_rows import COLLECTIVES, Dialect

DIALECT = Dialect("RCCL", {"ring": ("ring", COLLECTIVES), "double_tree": ("tree", ("allreduce",))})


def _write(table: PolicyTable, options: Options) -> str:
    rows = rows_of(table, DIALECT)
    return heading(table, "rccl") + "".join(f"{comments(row.why)}{csv_line(row)}" for row in rows)


RCCL = Target("rccl", "rules for the tuner of RCCL, NCCL_TUNER_CONFIG_FILE", _write)
