"""Programs of work-groups drawn at random: collectives by puts, by gets and in rings, with waits of several kinds."""

import random
from collections.abc import Mapping

from magus.compiler import compile_text
from magus.compiler.ir import OpCase

FABRICS = ("switch(nvswitch, link=nvlink)", "full_mesh(nvlink)", "ring(nvlink)")
# Of each chunk c that a work-group has; {end} is how it ends.
BODIES: Mapping[str, tuple[str, str]] = {
    "all_gather": (
        "for p in 1..ranks - 1 { copy output.shard(0)[c] to p; signal p }",
        "for p in 1..ranks - 1 { wait -p }",
    ),
    "all_gather by gets": ("for p in 1..ranks - 1 { copy output.shard(p)[c] from p }", ""),
    "all_gather in a ring": ("for s in 0..ranks - 2 { copy output.shard(-s)[c] to 1; signal 1; wait -1 }", ""),
    "all_gather in a ring of gets": (
        "copy output.shard(1)[c] from 1; for s in 2..ranks - 1 { signal -1; wait 1; copy output.shard(s)[c] from 1 }",
        "",
    ),
    "reduce_scatter": (
        "for p in 1..ranks - 1 { load input.shard(p)[c]; store scratch.shard(0)[c] to p; signal p }",
        "load input.shard(0)[c]; for p in 1..ranks - 1 { wait p; load scratch.shard(p)[c] }; reduce; "
        "store output.shard(0)[c]",
    ),
    "reduce_scatter by gets": (
        "load input.shard(0)[c]; for p in 1..ranks - 1 { load input.shard(0)[c] from p }; reduce; "
        "store output.shard(0)[c]",
        "",
    ),
    "all_reduce": (
        "load input.shard(0)[c]; for p in 1..ranks - 1 { load input.shard(0)[c] from p }; reduce; "
        "store output.shard(0)[c]; for p in 1..ranks - 1 { store output.shard(0)[c] to p }; "
        "for p in 1..ranks - 1 { signal p }",
        "for p in 1..ranks - 1 { wait p }",
    ),
    "all_reduce by gets": (
        "load input.shard(0)[c]; for p in 1..ranks - 1 { load input.shard(0)[c] from p }; reduce; "
        "store output.shard(0)[c]; for p in 1..ranks - 1 { signal p }; "
        "for p in 1..ranks - 1 { wait p; copy output.shard(p)[c] from p }",
        "",
    ),
    "all_to_all": (
        "load input.shard(0)[c]; store output.shard(0)[c]; "
        "for p in 1..ranks - 1 { load input.shard(p)[c]; store output.shard(0)[c] to p; signal p }",
        "for p in 1..ranks - 1 { wait p }",
    ),
}


def drawn_program(rng: random.Random, name: str) -> OpCase:
    """A case whose schedule is the program of that name in ``BODIES``, with drawn sizes."""
    op, ranks = name.split()[0], rng.choice((2, 3, 4))
    groups, each, loads = rng.randint(1, 3), rng.randint(1, 2), rng.choice((1, 4, 16))
    chunks = groups * each
    shard = " shard rows" if op == "all_gather" else ""
    begins, ends = BODIES[name]
    # All chunks begin before any ends, or one after the other; work-groups may wait for each other between.
    many = f"for c in self * {each}..self * {each} + {each - 1} {{"
    between = rng.choice(("", "barrier"))
    if rng.random() < 0.5:
        body = f"{many} {begins} }}; {between or 'barrier'}; {many} {ends} }}" if ends else f"{many} {begins} }}"
    else:
        body = f"{many} {begins}; {ends} }}; {between}" if ends else f"{many} {begins} }}; {between}"
    rows, cols = ranks * chunks * rng.choice((1, 4)), rng.choice((64, 192))
    text = f"""use "nvidia/h100"
system s {{ gpus {ranks} x H100; fabric {rng.choice(FABRICS)} }}
kernel k {{
  groups {groups}; waves {rng.randint(1, 3)}
  request {rng.choice((1, 16))} B; arbitration {rng.choice(("fifo", "fair"))}
  chunks {chunks}
  put {{ load {loads}; store }}
  get {{ load {2 * loads}; waitcnt {loads}; {"reduce" if "reduce" in op else "store"} }}
  program {{ {body.rstrip("; ")} }}
}}
workload w on s {{ x = tensor bf16[{rows}, {cols}]{shard}; y = {op}(x) }}
schedule mine for w = program(k)
"""
    return compile_text(text).scenario("w").case
