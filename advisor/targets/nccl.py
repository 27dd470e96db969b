"""Rules for the example tuner of NCCL: lines of ``collective,least,most,algorithm,protocol,channels,nodes,ranks``.

The plugin gives one channel to each call that no line matches. So lines for all other calls come last: the ring, by the
protocols that NCCL takes itself about these sizes. A line whose algorithm or protocol is off is passed over.

The tuner that is built into RCCL reads the same columns, that of NCCLX others:
``collective,[bytes per rank],algorithm,protocol,channels,nodes,ranks of a node``. There a call that no line matches is
the library's own choice. NCCLX refuses a file with a line that it cannot read.

Since NCCL 2.31 a call takes ``ncclCollConfig_t``: CTAs, algorithm, and the policy by which copy engines do an
all_gather or all_to_all (docs.nvidia.com, NCCL, api/types).
"""

import json

from ...compiler.planning.knobs.library import CHANNELS
from ..policy.table import PolicyTable
from .base import Option, Options, Target, comments, heading, sizes_text
from .left_whole import rows_of
from .tuner_rows import COLLECTIVES, ENGINES, Dialect, TunerRow, library_rules

KIB = 1 << 10
ANY_SIZE = (1 << 64) - 1
"""The largest size: samples that end at 4 GiB - 1 leave 8 GiB to one channel."""
REST = (("ll", 32 * KIB), ("ll128", 8 * KIB * KIB), ("simple", ANY_SIZE))
"""Protocols of the ring for all other calls, and the sizes up to which they are taken."""

DIALECT = Dialect(
    "NCCL",
    {
        "ring": ("ring", COLLECTIVES),
        "double_tree": ("tree", ("allreduce",)),
        "nvls": ("nvls", ("allgather", "reducescatter", "allreduce")),
    },
)


def _csv_line(row: TunerRow) -> str:
    """Return a row in the columns that NCCL and RCCL share."""
    cells = (row.collective, row.least, row.most, *row.settings, row.nodes, row.ranks)
    return ",".join(map(str, cells)) + "\n"


def _write(table: PolicyTable, options: Options) -> str:
    own = () if table.is_several else library_rules(table)
    kept = [f"{sizes_text(rule)}: the choice of NCCL itself is best, which no line can keep" for rule in own]
    rows = rows_of(table, DIALECT)
    lines = [f"{comments(row.why)}{_csv_line(row)}" for row in rows]
    rest = [
        _csv_line(TunerRow(collective, 0, most, "ring", protocol, int(options["channels"]), -1, -1, ""))
        for collective in COLLECTIVES
        for protocol, most in REST
    ]
    said = "all other calls: assumed, since the plugin gives one channel to what no line matches"
    return f"{heading(table, 'nccl')}{''.join(lines)}{comments(*kept, said)}{''.join(rest)}"


OPTIONS = (
    Option("channels", "channels of all calls without a rule, 1 to 64", tuple(map(str, range(1, 65))), str(CHANNELS)),
)
NCCL = Target("nccl", "rules for the tuner of NCCL, NCCL_TUNER_CONFIG_FILE", _write, OPTIONS)

RCCL_DIALECT = Dialect("RCCL", {"ring": ("ring", COLLECTIVES), "double_tree": ("tree", ("allreduce",))})


def _write_rccl(table: PolicyTable, options: Options) -> str:
    rows = rows_of(table, RCCL_DIALECT)
    return heading(table, "rccl") + "".join(f"{comments(row.why)}{_csv_line(row)}" for row in rows)


RCCL = Target("rccl", "rules for the tuner of RCCL, NCCL_TUNER_CONFIG_FILE", _write_rccl)


def _ncclx_line(row: TunerRow) -> str:
    sizes = f"[{row.least // row.ranks},{row.most // row.ranks}]"
    return ",".join(map(str, (row.collective, sizes, *row.settings, row.nodes, row.ranks // row.nodes))) + "\n"


def _write_ncclx(table: PolicyTable, options: Options) -> str:
    rows = rows_of(table, DIALECT)
    return heading(table, "ncclx") + "".join(f"{comments(row.why)}{_ncclx_line(row)}" for row in rows)


NCCLX = Target("ncclx", "rules for the tuner of NCCLX, NCCLX_TUNER_CONFIG_FILE", _write_ncclx)

CONFIG_DIALECT = Dialect("NCCL", DIALECT.algorithms, ("allgather", "alltoall"))


def _write_config(table: PolicyTable, options: Options) -> str:
    rows = rows_of(table, CONFIG_DIALECT)
    calls = [
        {
            "collective": row.collective,
            "bytes": [row.least, row.most],
            "config": _config(row),
            "why": row.why,
        }
        for row in rows
    ]
    alike = len({json.dumps(call["config"]) for call in calls}) == 1
    head = [line.removeprefix("# ") for line in heading(table, "nccl-config").splitlines()]
    document = {"about": head, "environment": _environment(rows[0]) if alike else None, "ncclCollConfig_t": calls}
    return json.dumps(document, indent=2) + "\n"


def _config(row: TunerRow) -> dict[str, str | int]:
    """The members of ``ncclCollConfig_t`` for such a call."""
    if row.algorithm == ENGINES:
        return {"CTAPolicy": "NCCL_CTA_POLICY_ZERO"}
    selection = f"{row.algorithm}_{row.protocol}".upper()
    return {"minCTAs": row.channels, "maxCTAs": row.channels, "algSelection": selection}


def _environment(row: TunerRow) -> dict[str, str]:
    """The same for all calls of a communicator, before 2.31."""
    if row.algorithm == ENGINES:
        return {"NCCL_CTA_POLICY": "2"}
    return {"NCCL_MIN_CTAS": str(row.channels), "NCCL_MAX_CTAS": str(row.channels)}


NCCL_CONFIG = Target("nccl-config", "ncclCollConfig_t of each call of NCCL, as JSON", _write_config)
