"""A whole layer of a model as a graph, and its backward pass, as ``.mgs`` text.

Weights are sharded as in ``layer.py``. What is kept for the backward pass is what kernels other than row-wise ones
made; norms and activations are made again, and what they feed is gathered again (Korthikanti et al., "Reducing
Activation Recomputation in Large Transformer Models", 2022). So are queries, keys and values of compressed ones
(DeepSeek-V3, arXiv 2412.19437, section 3.2.3).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from .config import Latent, ModelConfig

LAYER, BACK = "layer", "layer_back"


@dataclass(frozen=True, slots=True)
class _Block:
    """A half of a layer: its weights, its statements, and results that are kept for the backward pass."""

    weights: tuple[str, ...]
    statements: tuple[str, ...]
    kept: tuple[str, ...]


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
    attention = _heads(model, kv_heads, words) if model.latent is None else _latent(model, model.latent)
    mlp = _experts(model, nodes) if model.experts else _dense(model, words)
    sequences = "All M tokens are one sequence." if model.latent is None else "Each rank has a sequence of its own."
    yield f"# {sequences}\n" + _workload(
        LAYER,
        f'about "one of {model.layers} layers"',
        f"x = tensor {model.dtype.value}[M, {model.hidden}]{words.shard}",
        *attention.weights,
        *mlp.weights,
        "",
        *attention.statements,
        *mlp.statements,
        "",
        f"repeat {model.layers} y as x",
    )
    about = 'about "its backward pass with weight gradients"'
    kept = ", ".join((*attention.kept, "r", *mlp.kept))
    yield _workload(BACK, about, f"backward {LAYER}", f"keep {kept}")


def _heads(model: ModelConfig, kv_heads: int, words: _Words) -> _Block:
    """Attention by heads, which ranks share."""
    dtype, hidden = model.dtype.value, model.hidden
    heads, packed = model.heads * model.head_dim, (model.heads + 2 * kv_heads) * model.head_dim
    weights = (
        f"wqkv = tensor {dtype}[{hidden}, {packed}] shard cols",
        f"wo = tensor {dtype}[{heads}, {hidden}] shard rows",
    )
    statements = (
        f"qkv = {words.up('norm(x)', 'wqkv')}",
        f"a = attention(qkv, heads={model.heads}, kv_heads={kv_heads}, causal=true)",
        f"r = add(x, {words.down('a', 'wo')})",
    )
    return _Block(weights, statements, ("qkv", "a"))


def _latent(model: ModelConfig, latent: Latent) -> _Block:
    """Compressed attention: each rank attends with all heads to its own rows.

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
    queries = ("cq = gemm(norm(x), wdq)", "q = gemm(norm(cq), wq)") if latent.query_rank else ("q = gemm(norm(x), wq)",)
    statements = (
        *(*queries, "ckv = gemm(norm(x), wdkv)", "kv = gemm(norm(ckv), wkv)"),
        f"a = attention(q, kv, heads={model.heads}, causal=true)",
        "r = add(x, gemm(a, wo))",
    )
    return _Block(weights, statements, ("cq" if latent.query_rank else "q", "ckv", "a"))


def _dense(model: ModelConfig, words: _Words) -> _Block:
    """An MLP."""
    dtype, hidden, inner = model.dtype.value, model.hidden, model.inner
    width, activation = (2 * inner, "swiglu") if model.gated else (inner, "gelu")
    weights = (
        f"wup = tensor {dtype}[{hidden}, {width}] shard cols",
        f"wdn = tensor {dtype}[{inner}, {hidden}] shard rows",
    )
    statements = (f"u = {words.up('norm(r)', 'wup')}", f"y = add(r, {words.down(f'{activation}(u)', 'wdn')})")
    return _Block(weights, statements, ("u",))


def _experts(model: ModelConfig, nodes: int) -> _Block:
    """Experts, which are dealt to the ranks; the router is left out."""
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
        return _Block(weights, (*routed, f"y = add(r, {results})"), ("u", "t"))
    shared = (
        f"sup = tensor {dtype}[{hidden}, 2 * {model.shared_inner}]  # of the shared expert, whole on each rank",
        f"sdn = tensor {dtype}[{model.shared_inner}, {hidden}]",
    )
    every = ("su = gemm(norm(r), sup)", "s = gemm(swiglu(su), sdn)", f"z = {results}", "y = add(r, add(z, s))")
    return _Block((*weights, *shared), (*routed, *every), ("u", "t", "su"))


def _workload(name: str, *lines: str) -> str:
    inner = "".join(f"  {line}\n" if line else "\n" for line in lines)
    return f"workload {name} on node {{\n{inner}}}"
