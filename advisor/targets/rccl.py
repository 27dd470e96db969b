"""Rules for the tuner that is built into RCCL, in the columns of NCCL's.

A call that no line matches is RCCL's own choice.
"""

from ..policy.table import PolicyTable
from .base import Options, Target, comments, heading
from .nccl import csv_line
from .tuner_rows import COLLECTIVES, Dialect, tuner_rows

DIALECT = Dialect("RCCL", {"ring": ("ring", COLLECTIVES), "double_tree": ("tree", ("allreduce",))})


def _write(table: PolicyTable, options: Options) -> str:
    lines = [f"{comments(row.why)}{csv_line(row)}" for row in tuner_rows(table, DIALECT)]
    return heading(table, "rccl") + "".join(lines)


RCCL = Target("rccl", "rules for the tuner of RCCL, NCCL_TUNER_CONFIG_FILE", _write)
