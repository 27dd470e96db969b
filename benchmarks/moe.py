"""Errors of what layers with experts are made of, on rows of measured tables that no constant was fitted to.

Experts of one rank, dispatch and combine by library and ranks, the fused layer, and attention, as ``magus validate``
compares them. ``MAGUS_MEASURED_DATA`` names the folder of the tables.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from magus.advisor.measured.validate.report import COMPARED, comparable, kept_rows, summed_up

from .harness.report import Figure, main

PARTS = ("exchange_comparisons", "attention_comparisons", "expert_comparisons", "fused_layer_comparisons")
FITTED = ("fit", "all")
"""Groups with rows that constants were fitted to."""


def measure() -> Iterator[Figure]:
    """Yield the median error in percent of each group that was held out."""
    folder = os.environ.get("MAGUS_MEASURED_DATA")
    if not folder:
        print("MAGUS_MEASURED_DATA names no folder with tables: nothing is compared", file=sys.stderr)
        return
    left_out: list[str] = []
    for compared in COMPARED:
        if compared.__name__ in PARTS:
            rows = [row for row in kept_rows(compared(Path(folder)), left_out) if comparable(row)]
            for stats in summed_up(rows):
                if not stats.group.startswith(FITTED):
                    yield Figure(f"{stats.gpu} {stats.operation}, {stats.group}: median", stats.median, "%", "lower")


if __name__ == "__main__":
    sys.exit(main(__doc__ or "", measure))
