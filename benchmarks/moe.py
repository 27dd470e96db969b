"""Errors of what layers with experts are made of, on rows of measured tables that no constant was fitted to.

Experts of one rank, dispatch and combine by library and ranks, the fused layer, and attention, as ``magus validate``
compares them. ``MAGUS_MEASURED_DATA`` names the folder of the tables. Before that what ``magus advise`` says of the
experts of DeepSeek-V4-Pro, which needs no table.
"""

import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import mean

from magus.advisor import recommend_workload
from magus.advisor.measured.tables.csv_rows import TableComparison
from magus.advisor.measured.validate.report import COMPARED, comparable, kept_rows, summed_up
from magus.compiler import compile_file
from magus.examples import path

from .harness.report import Figure, main

PARTS = ("exchange_comparisons", "attention_comparisons", "expert_comparisons", "fused_layer_comparisons")
FITTED = ("fit", "all")
"""Groups with rows that constants were fitted to."""

V4_PRO = {2048: 912, 8192: 3045, 32768: 12072}
"""us of one kernel for these experts on 8 GB200 by tokens of a rank: aiconfigurator, MegaMoE in SGLang 0.5.10."""

FARTHEST = 12
"""Percent that the time of what is recommended may be off."""

SIZES = (1024, 4096, 16384)
"""Tokens of a rank in the table by ranks."""


def measure() -> Iterator[Figure]:
    """Yield errors in percent: of what is recommended, and the median of each group that was held out."""
    yield from _recommended()
    yield from _held_out()


def _recommended() -> Iterator[Figure]:
    """The time of what the answer names first, and how far it is from what was measured."""
    for tokens, measured in V4_PRO.items():
        example = compile_file(path("moe/experts_v4_pro"), (("T", str(tokens)),))
        advice = recommend_workload(example.scenario())
        first = advice.faster_offer
        name = advice.recommended.expression if first is None else first.name
        us = advice.recommended.best_us if first is None else first.us
        what = f"experts of V4-Pro, 8 GB200, {tokens:,} tokens of a rank, {name}"
        yield Figure(what, us, "us", "lower")
        yield Figure(f"{what}: off {measured:,} us", 100 * abs(us / measured - 1), "%", "lower", FARTHEST)


def _held_out() -> Iterator[Figure]:
    """The median error of each group that was held out, and the fused layer by ranks and tokens."""
    folder = os.environ.get("MAGUS_MEASURED_DATA")
    if not folder:
        print("MAGUS_MEASURED_DATA names no folder with tables: nothing is compared", file=sys.stderr)
        return
    left_out: list[str] = []
    for compared in COMPARED:
        if compared.__name__ in PARTS:
            rows = [row for row in kept_rows(compared(Path(folder)), left_out) if comparable(row)]
            yield from _by_size(rows)
            for stats in summed_up(rows):
                if not stats.group.startswith(FITTED):
                    yield Figure(f"{stats.gpu} {stats.operation}, {stats.group}: median", stats.median, "%", "lower")


def _by_size(rows: Iterable[TableComparison]) -> Iterator[Figure]:
    """Simulated over measured of one kernel with even loads, by tokens of a rank and ranks; the mean of like rows."""
    ratios: dict[tuple[int, int], list[float]] = {}
    for row in rows:
        if row.operation == "mega_moe layer":
            tokens, ranks = (int(part.replace(",", "")) for part in re.findall(r"^[\d,]+|\d+(?= GPUs$)", row.label))
            ratios.setdefault((tokens, ranks), []).append(row.predicted_us / row.measured_us)
    for (tokens, ranks), each in sorted(ratios.items()):
        if tokens in SIZES:
            what = f"GB300 mega_moe layer, {tokens:,} tokens of a rank, {ranks} GPUs: simulated over measured"
            yield Figure(what, mean(each), "x", "lower")


if __name__ == "__main__":
    sys.exit(main(__doc__ or "", measure))
