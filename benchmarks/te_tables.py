"""Tables of Transformer Engine that NVIDIA ships with Megatron-Bridge, against those that Magus finds: choices alone.

``MAGUS_MEASURED_DATA`` is the folder with ``te_tables.csv``. An entry counts where the method is the same and the SMs
that copy are within a factor of two; ``ring_exchange`` copies by engines here and by one SM there. Tables for LoRA are
left out: their backward pass has no gradients of weights, which no request leaves out.
"""

import csv
import os
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from magus.advisor.implementations.offers import OpSetting
from magus.advisor.layers.transformer_engine import RING, TeSearch
from magus.compiler.from_model.request import LayerRequest, layer_scenario, model_of
from magus.compiler.ir import DType, Schedule
from magus.compiler.planning.plan import build_plan
from magus.simcore import simulate

from .harness.report import Figure, main

LAYERS_RUN, UNIT_BYTES = 3, 1 << 16
_SHAPES = {  # hidden, MLP, heads, heads of keys and values, gated: as published
    "llama3 70b": (8192, 28672, 64, 8, True),
    "gpt3 175b": (12288, 49152, 96, 96, False),
    "nemotron 15b": (6144, 24576, 48, 8, False),
}


def measure() -> Iterator[Figure]:
    """Yield the share of entries that agree, of each table and of all."""
    right, every = 0, 0
    for name, rows in _tables().items():
        found = _found(rows[0])
        agreed = sum(_agrees(row, found.get(row["entry"])) for row in rows)
        right, every = right + agreed, every + len(rows)
        yield Figure(f"{name}: entries that agree, of {len(rows)}", agreed, "entries", "higher")
    if every:
        yield Figure(f"method and SMs within 2x, of {every} entries", 100 * right / every, "%", "higher", 80)


def _tables() -> Mapping[str, Sequence[Mapping[str, str]]]:
    folder = os.environ.get("MAGUS_MEASURED_DATA")
    if not folder:
        print("MAGUS_MEASURED_DATA names no folder with te_tables.csv: nothing is compared", file=sys.stderr)
        return {}
    tables = defaultdict(list)
    with (Path(folder) / "te_tables.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            if row["lora"] == "0":
                tables[row["config"]].append(row)
    return tables


def _found(row: Mapping[str, str]) -> Mapping[str, OpSetting]:
    """The settings of the best table for the model of ``row``, by entry, forward and backward."""
    hidden, inner, heads, kv_heads, gated = _SHAPES[row["model"]]
    config = {
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "num_hidden_layers": LAYERS_RUN,
        "head_dim": 128,
        "hidden_act": "silu" if gated else "gelu",
        "vocab_size": 128256,
    }
    model = replace(model_of(config), dtype=DType(row["dtype"]))
    tokens, tp = int(row["seq"]) * int(row["mbs"]), int(row["tp"])
    settings: dict[str, OpSetting] = {}
    for backward in (False, True):
        scenario = layer_scenario(LayerRequest(model, row["gpu"], tp, tokens, backward))
        system, workload = scenario.system, scenario.workload

        def ticks(choice: Schedule) -> int:
            plan = build_plan(system, workload, choice, LAYERS_RUN)  # noqa: B023 - called before the next pass
            return simulate(system, plan, unit_bytes=UNIT_BYTES).makespan_ticks  # noqa: B023

        *_, (table, _) = TeSearch(system, workload).found(ticks)
        settings |= {setting.layer: setting for setting in table.settings}
    return settings


def _agrees(row: Mapping[str, str], found: OpSetting | None) -> bool:
    if found is None or found.method != row["method"]:
        return False
    return found.method == RING or 0.5 <= found.num_sm / int(row["num_sm"]) <= 2


if __name__ == "__main__":
    sys.exit(main(__doc__ or "", measure))
