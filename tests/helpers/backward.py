"""Layers and the texts of their backward passes."""

from hypothesis import strategies as st

HEAD = (
    'use "nvidia/h100"\nsystem hgx { gpus 8 x H100; fabric switch(nvswitch, link=nvlink) }\n'
    "param M = 2048 in 1024..4096 x2\n"
)


def text_of(forward: str, keep: str = "") -> str:
    """A file with a forward pass, and the backward pass that is derived of it."""
    kept = f"; keep {keep}" if keep else ""
    return f"{HEAD}workload layer on hgx {{{forward}}}\nworkload back on hgx {{ backward layer{kept} }}\n"


BLOCKS = (
    "u{n} = reduce_scatter(gemm(swiglu(gemm(all_gather({x}), w8)), w4))",
    "q{n} = gemm(all_gather(norm({x})), w3)\na{n} = attention(q{n}, heads=8)\nu{n} = reduce_scatter(gemm(a{n}, w1))",
    "q{n} = gemm(norm({x}), m1)\nu{n} = attention(q{n}, gemm(norm({x}), m2), heads=8)",
    "g{n} = all_gather(norm({x}))\na{n} = attention(gemm(g{n}, w2), gemm(g{n}, w2), gemm(g{n}, w1.t), heads=8)\n"
    "u{n} = reduce_scatter(gemm(a{n}, w1))",
    "u{n} = add({x}, reduce_scatter(gemm(gelu(gemm(all_gather({x}), w4.t)), w4)))",
    "g{n} = all_gather({x})\nu{n} = reduce_scatter(gemm(add(gemm(g{n}, w4.t), gemm(g{n}, w4.t)), w4))",
    "u{n} = norm(add({x}, x))",
    "t{n} = dispatch({x}, experts=8, top=2)\nu{n} = combine(grouped_gemm(swiglu(grouped_gemm(t{n}, e8)), e4))",
)


@st.composite
def layers(draw: st.DrawFn) -> tuple[str, str]:
    """The text of a layer, and some of its results."""
    lines, latest = [], "x"
    for n, block in enumerate(draw(st.lists(st.sampled_from(BLOCKS), min_size=1, max_size=4))):
        lines.append(block.format(n=n, x=latest))
        latest = f"u{n}"
    kept = draw(st.lists(st.sampled_from([f"u{n}" for n in range(len(lines))]), unique=True))
    tensors = (
        *("x = tensor bf16[M, 1024] shard rows", "w8 = tensor bf16[1024, 2 * 4096] shard cols"),
        *("w4 = tensor bf16[4096, 1024] shard rows", "w3 = tensor bf16[1024, 3072] shard cols"),
        *("m1 = tensor bf16[1024, 1024]", "m2 = tensor bf16[1024, 2048]", "w2 = tensor bf16[1024, 1024] shard cols"),
        *("w1 = tensor bf16[1024, 1024] shard rows", "e8 = tensor bf16[8 * 1024, 4096] shard rows"),
        "e4 = tensor bf16[8 * 2048, 1024] shard rows",
    )
    repeat = f"repeat 4 {latest} as x"
    return "\n" + "\n".join((*tensors, *lines, repeat)) + "\n", ", ".join(kept)
