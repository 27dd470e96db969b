"""Rules for the tuner of NCCLX: ``collective,[bytes per rank],algorithm,protocol,channels,nodes,ranks of a node``.

A call that no line matches is NCCLX's own choice. It refuses a file with a line that it cannot read.
"""

from collections.abc import Sequence

from ..policy.table import PolicyTable
from .base import Options, Target, comments, heading
from .nccl import DIALECT
from .tuner_rows import TunerRow, tuner_rows


def _line(row: TunerRow) -> str:
    sizes = f"[{row.least // row.ranks},{row.most // row.ranks}]"
    return ",".join(map(str, (row.collective, sizes, *row.settings, row.nodes, row.ranks // row.nodes))) + "\n"


def ncclx_text(head: str, rows: Sequence[TunerRow]) -> str:
    """Return the file of ``rows``."""
    return head + "".join(f"{comments(row.why)}{_line(row)}" for row in rows)


def _write(table: PolicyTable, options: Options) -> str:
    return ncclx_text(heading(table, "ncclx"), tuner_rows(table, DIALECT))


NCCLX = Target("ncclx", "rules for the tuner of NCCLX, NCCLX_TUNER_CONFIG_FILE", _write)
