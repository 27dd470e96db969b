"""Kernels other than a GEMM before and after a collective, as the language writes them, and what may schedule them."""

from collections.abc import Iterator, Sequence

from magus.compiler import compile_text
from magus.compiler.ir import EngineChoice, EngineKind, OpCase, OpChoice
from magus.compiler.planning.build import reject_choice
from magus.compiler.templates import ALL_TEMPLATES

RING = (
    "q = tensor bf16[{m}, 8 * {d}] shard rows; kv = tensor bf16[{m}, 2 * 4 * {d}] shard rows; "
    "y = attention(q, all_gather(kv), heads=8, kv_heads=4{causal})"
)
TO_HEADS = "qkv = tensor bf16[{m}, (8 + 2 * 4) * {d}]; y = attention(all_to_all(qkv), heads=8, kv_heads=4{causal})"
TO_ROWS = "qkv = tensor bf16[{m}, (8 + 2 * 4) * {d}]; y = all_to_all(attention(qkv, heads=8, kv_heads=4{causal}))"
EXPERTS = "x = tensor bf16[{m}, 2 * {d}]; w = tensor bf16[3 * 2 * {d}, 256]; "
SIDE_BY_SIDE = "x = tensor bf16[{m}, 8 * {d}] shard cols; w = tensor bf16[8 * {d}, 256]; "

TEXTS = {
    "AG+attention": RING.replace("{causal}", ""),
    "AG+attention causal": RING.replace("{causal}", ", causal=yes"),
    "A2A+attention": TO_HEADS.replace("{causal}", ""),
    "A2A+attention causal": TO_HEADS.replace("{causal}", ", causal=yes"),
    "attention+A2A": TO_ROWS.replace("{causal}", ""),
    "attention+A2A causal": TO_ROWS.replace("{causal}", ", causal=yes"),
    "AG+grouped_gemm": EXPERTS.replace("];", "] shard rows;", 1)
    + "y = grouped_gemm(all_gather(x), w, rows=[{experts}])",
    "A2A+grouped_gemm": EXPERTS + "y = grouped_gemm(all_to_all(x{split}), w, rows=[{experts}])",
    "grouped_gemm+A2A": EXPERTS + "y = all_to_all(grouped_gemm(x, w, rows=[{experts}]){split})",
    "grouped_gemm+RS": "x = tensor bf16[{m}, {ranks} * 2 * {d}] shard cols; "
    "w = tensor bf16[3 * {ranks} * 2 * {d}, 256] shard rows; "
    "y = reduce_scatter(grouped_gemm(x, w, rows=[{experts}]))",
    "grouped_gemm+AR": "x = tensor bf16[{m}, {ranks} * 2 * {d}] shard cols; "
    "w = tensor bf16[3 * {ranks} * 2 * {d}, 256] shard rows; y = all_reduce(grouped_gemm(x, w, rows=[{experts}]))",
    "GEMM+A2A": "x = tensor bf16[{m}, {d}]; w = tensor bf16[{d}, 256]; y = all_to_all(gemm(x, w){split})",
    "A2A+GEMM side by side": SIDE_BY_SIDE + "y = gemm(all_to_all(x), w)",
    "GEMM+A2A+GEMM": "x = tensor bf16[{m}, {d}]; w = tensor bf16[{d}, 256]; v = tensor bf16[256, 128]; "
    "y = gemm(all_to_all(gemm(x, w){split}), v)",
    "GEMM+A2A+GEMM side by side": "u = tensor bf16[{m}, {d}]; v = tensor bf16[{d}, 8 * {d}] shard cols; "
    "w = tensor bf16[8 * {d}, 256]; y = gemm(all_to_all(gemm(u, v)), w)",
    "GEMM+A2A+grouped_gemm": EXPERTS + "v = tensor bf16[2 * {d}, 2 * {d}]; "
    "y = grouped_gemm(all_to_all(gemm(x, v){split}), w, rows=[{experts}])",
    "grouped_gemm+A2A+GEMM": EXPERTS + "v = tensor bf16[256, 128]; "
    "y = gemm(all_to_all(grouped_gemm(x, w, rows=[{experts}]){split}), v)",
    "attention+A2A+GEMM": "qkv = tensor bf16[{m}, (8 + 2 * 4) * {d}]; w = tensor bf16[{ranks} * 8 * {d}, 256]; "
    "y = gemm(all_to_all(attention(qkv, heads=8, kv_heads=4)), w)",
}
"""A workload of every kind, by its label: {m} rows of all, {d} columns of a row or of a head."""

SYSTEMS = (
    "gpus {ranks} x H100; fabric switch(nvswitch, link=nvlink)",
    "gpus {ranks} x MI300X; fabric full_mesh(xgmi)",
    "gpus {ranks} x MI300X; fabric ring(xgmi)",
)
ENGINES = (EngineChoice(EngineKind.DMA, 3), EngineChoice(EngineKind.SM, 16))


def workload_of(name: str, ranks: int = 4, m: int = 1024, d: int = 64, system: int = 0, uneven: bool = True) -> OpCase:
    """A scenario of ``TEXTS`` as a user's file would give it; an all_to_all sends ``uneven`` blocks where it may."""
    block = m // ranks
    sent = [block + block // 2, block // 2, *[block] * (ranks - 2)] if uneven else [block] * ranks
    return compile_text(text_of(name, d, system, sent)).scenario().case


def text_of(name: str, d: int = 64, system: int = 0, sent: Sequence[int] = (384, 128, 256, 256)) -> str:
    """The file: rank r has ``sent[k]`` rows for rank r + k, as far as an all_to_all may be uneven."""
    m, split = sum(sent), f", rows=[{', '.join(map(str, sent))}]"
    first, second = m // 2, m // 2 - m // 8
    body = TEXTS[name].format(
        m=m, d=d, ranks=len(sent), split=split, experts=f"{first}, {second}, {m - first - second}"
    )
    where = SYSTEMS[system].format(ranks=len(sent))
    return f'use "amd/mi300x"\nuse "nvidia/h100"\nsystem s {{ {where} }}\nworkload one on s {{ {body} }}\n'


def choices_of(scenario: OpCase, pieces: tuple[int, ...] = (1, 2, 4)) -> Iterator[OpChoice]:
    """The legal choices of every template that a search goes through, by copy engines and by SMs."""
    n = scenario.num_ranks
    for template in ALL_TEMPLATES:
        if template.explored and scenario.shape.pattern in template.patterns:
            for count in pieces if template.cuts_shards else (1,):
                for engine in ENGINES:
                    choice = OpChoice(template.name, n * count, engine)
                    if reject_choice(scenario, choice) is None:
                        yield choice
