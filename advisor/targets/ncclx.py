"""Rules for the tuner of NCCLX: ``collective,[bytes per rank],algorithm,protocol,channels,nodes,ranks of a node``.

A call that no line matches is NCCLX's own choice. It refuses a file with a line that it cannot read.
"""

from ..policy.table import PolicyTable
from .base import Options, Target, comments, heading
from .left_whole import rows_of
from .nccl import DIALECT
from .tuner_rows import TunerRow


def _line(row: TunerRow) -> str:
    sizes = f"[{row.least // row.ranks},{row.most // row.ranks}]"
    return ",".join(map(str, (row.collective, sizes, *row.settings, row.nodes, row.ranks // row.nodes))) + "\n"


def _write(table: PolicyTable, options: Options) -> str:
    rows = rows_of(table, DIALECT)
    return heading(table, "ncclx") + "".join(f"{comments(row.why)}{_line(row)}" for row in rows)


NCCLX = Target("ncclx", "rules for the tuner of NCCLX, NCCLX_TUNER_CONFIG_FILE", _write)
