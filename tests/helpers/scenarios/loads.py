"""Scenarios with an all_to_all whose ranks send differently, and the templates that schedule them."""

import random
from collections.abc import Iterator
from itertools import product

from magus.compiler import compile_text
from magus.compiler.ir import Direction, EngineChoice, EngineKind, ExecutionOptions, OpCase, OpChoice
from magus.compiler.planning.build import reject_choice
from magus.compiler.templates import ALL_TEMPLATES

Table = tuple[tuple[int, ...], ...]

SYSTEM = 'use "amd/mi300x"\nsystem s { gpus RANKS x MI300X; fabric full_mesh(xgmi) }\n'
KINDS = ("alone", "GEMM", "experts", "beside")
BODIES = {
    "alone": "  y = all_to_all(x, ROWS)\n",
    "GEMM": "  w = tensor bf16[64, 64]\n  y = gemm(all_to_all(x, ROWS), w)\n",
    "experts": "  w = tensor bf16[128, 64]\n  y = grouped_gemm(all_to_all(x, ROWS), w, rows=EXPERTS)\n",
    "beside": "  a = tensor bf16[64, 64]\n  b = tensor bf16[64, 64]\n  g = gemm(a, b)\n  y = all_to_all(x, ROWS)\n",
}
ENGINES = (EngineChoice(EngineKind.DMA, 2), EngineChoice(EngineKind.SM, 4))


def text_of(kind: str, table: Table) -> str:
    """A file with one workload of that kind on as many ranks as the table has."""
    received = [sum(rows) for rows in zip(*table, strict=True)]
    experts = ", ".join(f"[{rows // 3}, {rows - rows // 3}]" for rows in received)
    rows = f"rows=[{', '.join(str(list(sent)) for sent in table)}]"
    body = BODIES[kind].replace("ROWS", rows).replace("EXPERTS", f"[{experts}]")
    head = SYSTEM.replace("RANKS", str(len(table)))
    return f"{head}workload w on s {{\n  x = tensor bf16[{sum(table[0])}, 64]\n{body}}}\n"


def scenario_of(kind: str, table: Table) -> OpCase:
    """The scenario of ``text_of``."""
    return compile_text(text_of(kind, table)).scenario().case


def drawn(rng: random.Random, ranks: int = 3, rows: int = 96) -> Table:
    """A table in which one rank is hot, and some send nothing to others."""
    hot, table = rng.randrange(ranks), list[tuple[int, ...]]()
    for rank in range(ranks):
        weights = [rng.choice((0, 1, 2, 3)) + 4 * (to == hot) + (to == rank) for to in range(ranks)]
        sent = [rows * weight // sum(weights) for weight in weights]
        sent[hot] += rows - sum(sent)
        table.append(tuple(sent))
    return tuple(table)


def legal_choices(scenario: OpCase) -> Iterator[OpChoice]:
    """Every template that schedules it, with put and get, by engines and by SMs."""
    for template, engine, direction in product(ALL_TEMPLATES, ENGINES, Direction):
        pieces = max(2, template.min_pieces) if template.cuts_shards else 1
        chunks, tactics = scenario.num_ranks * pieces, ExecutionOptions(direction=direction)
        choice = OpChoice(template.name, chunks, engine, template.default_streams, tactics)
        if reject_choice(scenario, choice) is None:
            yield choice
