"""Rules for the tuner that is built into RCCL, in the columns of NCCL's.

A call that no line matches is RCCL's own choice.
"""

from collections.abc import Sequence

from ..policy.table import PolicyTable
from .base import Options, Target, comments, heading
from .nccl import csv_line
from .tuner_rows import COLLECTIVES, Dialect, TunerRow, tuner_rows

DIALECT = Dialect("RCCL", {"ring": ("ring", COLLECTIVES), "double_tree": ("tree", ("allreduce",))})


def rccl_text(head: str, rows: Sequence[TunerRow]) -> str:
    """Return the file of ``rows``."""
    return head + "".join(f"{comments(row.why)}{csv_line(row)}" for row in rows)


def _write(table: PolicyTable, options: Options) -> str:
    return rccl_text(heading(table, "rccl"), tuner_rows(table, DIALECT))


RCCL = Target("rccl", "rules for the tuner of RCCL, NCCL_TUNER_CONFIG_FILE", _write)
