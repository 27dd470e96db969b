"""A whole layer of a model as a graph, and its backward pass, as ``.mgs`` text.

Weights are sharded as in ``layer.py``. What is kept for the backward pass is what kernels other than row-wise ones
made; norms and activations are made again, and what they feed is gathered again (Korthikanti et al., "Reducing
Activation Recomputation in Large Transformer Models", 2022).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .config import Latent, ModelConfig

LAYER, BACK = "layer", "layer_back"
KEPT = ("qkv", "a", "r", "u")


@dataclass(frozen=True, slots=True)
class _Words:
    """How activations lie, and what stands before and behind the products: gathers and sums, with their brackets."""

    shard: str
    before: str
    behind: str

    def up(self, operand: str, weight: str) -> str:
        """A product whose weight is sharded by columns."""
        return f"gemm({self.before.format(operand)}, {weight})"

    def down(self, operand: str, weight: str) -> str:
        """A product whose weight is sharded by rows."""
        return f"{self.behind}(gemm({operand}, {weight}))"


def whole_layer(model: ModelConfig, kv_heads: int, nodes: int, *, sequence: bool) -> Iterator[str]:
    """Write the layer and its backward pass; ``kv_heads`` are those of all ranks together, which are in ``nodes``."""
    words = _Words(" shard rows", "all_gather({})", "reduce_scatter") if sequence else _Words("", "{}", "all_reduce")
    own, attention = _heads(model, kv_heads, words) if model.latent is None else _latent(model, model.latent)
    weights, mlp = _experts(model, nodes) if model.experts else _dense(model, words)
    sequences = "All M tokens are one sequence." if model.latent is None else "Each rank has a sequence of its own."
    yield f"# {sequences}\n" + _block(
        LAYER,
        f'about "one of {model.layers} layers"',
        f"x = tensor {model.dtype.value}[M, {model.hidden}]{words.shard}",
        *own,
        *weights,
        "",
        *attention,
        *mlp,
        "",
        f"repeat {model.layers} y as x",
    )
    if model.latent is not None:
        yield "# No backward pass is derived of attention whose queries and keys are apart."
        return
    about = 'about "its backward pass with weight gradients"'
    kept = (*KEPT, "t") if model.experts else KEPT
    yield _block(BACK, about, f"backward {LAYER}", f"keep {', '.join(kept)}")


def _heads(model: ModelConfig, kv_heads: int, words: _Words) -> tuple[Sequence[str], Sequence[str]]:
    """Weights and statements of attention by heads, which ranks share."""
    dtype, hidden = model.dtype.value, model.hidden
    heads, packed = model.heads * model.head_dim, (model.heads + 2 * kv_heads) * model.head_dim
    weights = (
        f"wqkv = tensor {dtype}[{hidden}, {packed}] shard cols",
        f"wo = tensor {dtype}[{heads}, {hidden}] shard rows",
    )
    return weights, (
        f"qkv = {words.up('norm(x)', 'wqkv')}",
        f"a = attention(qkv, heads={model.heads}, kv_heads={kv_heads}, causal=true)",
        f"r = add(x, {words.down('a', 'wo')})",
    )


def _latent(model: ModelConfig, latent: Latent) -> tuple[Sequence[str], Sequence[str]]:
    """Weights and statements of compressed attention: each rank attends with all heads to its own rows.

    What turns with the position is left out, as a part of what keys and values are made of.
    """
    dtype, hidden, heads = model.dtype.value, model.hidden, model.heads * latent.head_dim
    query = f"tensor {dtype}[{latent.query_rank or hidden}, {heads}]"
    down = (f"wdq = tensor {dtype}[{hidden}, {latent.query_rank}]",) if latent.query_rank else ()
    weights = (
        *(*down, f"wq = {query}  # heads of {latent.head_dim}: the mean of those of keys and of values"),
        f"wdkv = tensor {dtype}[{hidden}, {latent.rank}]",
        f"wkv = tensor {dtype}[{latent.rank}, {2 * heads}]",
        f"wo = tensor {dtype}[{heads}, {hidden}]",
    )
    return weights, (
        f"q = gemm({'norm(gemm(norm(x), wdq))' if latent.query_rank else 'norm(x)'}, wq)",
        "kv = gemm(norm(gemm(norm(x), wdkv)), wkv)",
        f"a = attention(q, kv, heads={model.heads}, causal=true)",
        "r = add(x, gemm(a, wo))",
    )


def _dense(model: ModelConfig, words: _Words) -> tuple[Sequence[str], Sequence[str]]:
    """Weights and statements of an MLP."""
    dtype, hidden, inner = model.dtype.value, model.hidden, model.inner
    width, activation = (2 * inner, "swiglu") if model.gated else (inner, "gelu")
    weights = (
        f"wup = tensor {dtype}[{hidden}, {width}] shard cols",
        f"wdn = tensor {dtype}[{inner}, {hidden}] shard rows",
    )
    return weights, (
        f"u = {words.up('norm(r)', 'wup')}",
        f"y = add(r, {words.down(f'{activation}(u)', 'wdn')})",
    )


def _experts(model: ModelConfig, nodes: int) -> tuple[Sequence[str], Sequence[str]]:
    """Weights and statements of experts, which are dealt to the ranks; the router is left out."""
    dtype, hidden, inner, experts = model.dtype.value, model.hidden, model.expert_inner, model.experts
    weights = (
        f"wup = tensor {dtype}[{experts} * {hidden}, 2 * {inner}] shard rows",
        f"wdn = tensor {dtype}[{experts} * {inner}, {hidden}] shard rows",
    )
    some = f", nodes={min(model.groups_per_token, nodes)}" if model.groups_per_token and nodes > 1 else ""
    routed = (
        f"t = dispatch(norm(r), experts={experts}, top={model.experts_per_token}{some})",
        "u = grouped_gemm(t, wup)",
    )
    results = "combine(grouped_gemm(swiglu(u), wdn))"
    if not model.shared_inner:
        return weights, (*routed, f"y = add(r, {results})")
    shared = (
        f"sup = tensor {dtype}[{hidden}, 2 * {model.shared_inner}]  # of the shared expert, whole on each rank",
        f"sdn = tensor {dtype}[{model.shared_inner}, {hidden}]",
    )
    every = ("s = gemm(swiglu(gemm(norm(r), sup)), sdn)", f"z = {results}", "y = add(r, add(z, s))")
    return (*weights, *shared), (*routed, *every)


def _block(name: str, *lines: str) -> str:
    inner = "".join(f"  {line}\n" if line else "\n" for line in lines)
    return f"workload {name} on node {{\n{inner}}}"
