"""Errors of what layers with experts are made of, on rows of measured tables that no constant was fitted to.

Experts of one rank, dispatch and combine by library and ranks, the fused layer, and attention, as ``magus validate``
compares them, and how far layers that were measured are above the bound. ``MAGUS_MEASURED_DATA`` names the folder of
the tables. Before that what ``magus advise`` says of the experts of DeepSeek-V4-Pro, which needs no table.
"""

import csv
import os
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import mean, median

from magus.advisor import recommend_workload
from magus.advisor.bounds.lower_bound import workload_bound
from magus.advisor.measured.tables.csv_rows import TableComparison
from magus.advisor.measured.validate.report import COMPARED, comparable, kept_rows, summed_up
from magus.compiler import compile_file, compile_text
from magus.compiler.ir import TICKS_PER_US
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

LAYER = """
use "nvidia/{library}"
system pod {{ gpus {ranks} x {gpu}; fabric switch(nvswitch, link=nvlink) }}
workload layer on pod {{
  x = tensor fp8[{ranks} * {tokens}, {hidden}] shard rows
  u = tensor {weights}[{experts} * {hidden}, 2 * {inter}] shard rows
  d = tensor {weights}[{experts} * {inter}, {hidden}] shard rows
  t = dispatch(x, experts={experts}, top={top})
  y = combine(grouped_gemm(swiglu(grouped_gemm(t, u)), d), type=bf16)
}}
"""
WEIGHTS = {"GB300": "mxfp4", "B200": "mxfp4", "H20": "fp8"}
"""Of the kernels whose layers were measured; a Blackwell that a thread does not name is taken for a B200."""

ONE_KERNEL = "MegaMoE"
MOST_OVER_BOUND = 2.0


def measure() -> Iterator[Figure]:
    """Yield errors in percent: of what is recommended, and the median of each group that was held out."""
    yield from _recommended()
    yield from _held_out()
    yield from _over_bound()


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
                    what, most = f"{stats.gpu} {stats.operation}, {stats.group}: median", stats.median_target
                    yield Figure(what, stats.median, "%", "lower", most)


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


def _over_bound() -> Iterator[Figure]:
    """Measured over the bound of layers with even loads, by kernel: the least, which is 1 or more, and the median."""
    ratios = defaultdict(list)
    for kernel, gpu, measured_us, sizes in _layers(Path(os.environ.get("MAGUS_MEASURED_DATA", "."))):
        text = LAYER.format(library=gpu.lower(), gpu=gpu, weights=WEIGHTS[gpu], **sizes)
        scenario = compile_text(text).scenario()
        bound = workload_bound(scenario)
        ratios[f"{gpu} layer, {kernel}"].append(measured_us * TICKS_PER_US / bound.ticks)
    for what, each in ratios.items():
        most = MOST_OVER_BOUND if ONE_KERNEL in what else None
        yield Figure(f"{what}: least measured over bound, of {len(each)}", min(each), "x", "higher", 1)
        yield Figure(f"{what}: median measured over bound", median(each), "x", "lower", most)


def _layers(folder: Path) -> Iterator[tuple[str, str, float, dict[str, str]]]:
    """The kernel, GPU, us and sizes of each layer of experts with even loads, fused or not."""
    for table in folder.glob("moe_layer_fused*.csv"):
        for row in csv.DictReader(table.open()):
            if row["distribution"] == "balanced":
                names = {"ranks": "ep", "tokens": "tokens_per_rank", "top": "topk"}
                sizes = {each: row[names.get(each, each)] for each in ("hidden", "inter", "experts", *names)}
                yield ONE_KERNEL, row["gpu"], float(row["latency_us"]), sizes
    for table in folder.glob("overlap_kernels*.csv"):
        for row in csv.DictReader(table.open()):
            if row["op"] == "MoE layer" and (found := re.search(r"E(\d+) topk(\d+)", row["shape_semantics"])):
                sizes = {"ranks": row["n_gpus"], "tokens": row["m"], "hidden": row["k"], "inter": row["n"]}
                gpu = row["gpu"] if row["gpu"] in WEIGHTS else "B200"
                experts = {"experts": found[1], "top": found[2]}
                yield row["impl"], gpu, float(row["time_us"]), sizes | experts


if __name__ == "__main__":
    sys.exit(main(__doc__ or "", measure))
