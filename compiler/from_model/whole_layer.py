"""A whole layer of a model as one workload, and its backward pass, as ``.mgs`` text.

Weights are sharded as in ``layer.py``. What is kept for the backward pass is what kernels other than row-wise ones
made; norms and activations are made again, and what they feed is gathered again (Korthikanti et al., "Reducing
Activation Recomputation in Large Transformer Models", 2022). So are queries, keys and values of compressed ones
(DeepSeek-V3, arXiv 2412.19437, section 3.2.3).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ..ir import DType
from .config import Latent, ModelConfig

LAYER, BACK = "layer", "layer_back"
_DENSE, _DENSE_BACK = "dense", "dense_back"
"""Layers without experts of a model that has others with them."""


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


def whole_layer(
    model: ModelConfig, kv_heads: int, nodes: int, *, sequence: bool, decodes: bool = False
) -> Iterator[str]:
    """Write the layer and its backward pass; ``kv_heads`` are those of all ranks together, which are in ``nodes``.

    One that ``decodes`` has a cache of K keys for each of M sequences, and no backward pass.
    """
    words = _Words(" shard rows", "all_gather({})", "reduce_scatter") if sequence else _Words("", "{}", "all_reduce")
    latent = model.latent
    attention = _heads(model, kv_heads, words, decodes) if latent is None else _latent(model, latent)
    sequences = "All M tokens are one sequence." if latent is None else "Each rank has a sequence of its own."
    sequences = "The cache holds keys and values of all ranks, the new ones too." if decodes else sequences
    blocks = (_experts(model, nodes), model.expert_layers), (_dense(model, words), model.dense_layers)
    kinds = [(mlp, count) for mlp, count in blocks if count]
    comment = f"# {sequences}\n"
    for (mlp, count), names in zip(kinds, ((LAYER, BACK), (_DENSE, _DENSE_BACK)), strict=False):
        of = (
            ""
            if count == model.layers
            else f"{' with experts' if mlp is blocks[0][0] else ''}, of {model.layers} in all"
        )
        yield comment + _workload(
            names[0],
            f'about "one of {count} layer{"s" if count > 1 else ""}{of}"',
            f"x = tensor {model.dtype.value}[M, {model.hidden}]{words.shard}",
            *attention.weights,
            *mlp.weights,
            "",
            *attention.statements,
            *mlp.statements,
            "",
            f"repeat {count} y as x",
        )
        comment = ""
        if decodes:
            continue
        kept = ", ".join((*attention.kept, *(() if model.parallel else ("r",)), *mlp.kept))
        yield _workload(
            names[1], 'about "its backward pass with weight gradients"', f"backward {names[0]}", f"keep {kept}"
        )


def _heads(model: ModelConfig, kv_heads: int, words: _Words, decodes: bool) -> _Block:
    """Attention by heads, which ranks share; one that ``decodes`` reads a cache."""
    dtype, hidden = model.dtype.value, model.hidden
    heads, packed = model.heads * model.head_dim, (model.heads + 2 * kv_heads) * model.head_dim
    weights: tuple[str, ...] = (
        f"wqkv = tensor {dtype}[{hidden}, {packed}] shard cols",
        f"wo = tensor {dtype}[{heads}, {hidden}] shard rows",
    )
    window = "" if model.window is None else f", window={model.window}"
    taken, batch = ("qkv, cache", ", batch=M") if decodes else ("qkv", "")
    if decodes:
        weights = (*weights, f"cache = tensor {dtype}[M * K, {2 * kv_heads * model.head_dim}] shard cols")
    statements = (
        f"qkv = {words.up('norm(x)', 'wqkv')}",
        f"a = attention({taken}, heads={model.heads}, kv_heads={kv_heads}{batch}, causal=yes{window})",
        f"r = add(x, {words.down('a', 'wo')})",
    )
    return _Block(weights, statements, ("qkv", "a"))


def _latent(model: ModelConfig, latent: Latent) -> _Block:
    """Compressed attention: each rank attends with all heads to its own rows.

    What turns with the position is left out, as a part of what keys and values are made of.
    """
    dtype, hidden = model.dtype.value, model.hidden
    keys, values = model.heads * latent.key, model.heads * latent.value
    query = f"tensor {dtype}[{latent.query_rank or hidden}, {keys}]"
    down = (f"wdq = tensor {dtype}[{hidden}, {latent.query_rank}]",) if latent.query_rank else ()
    weights = (
        *(*down, f"wq = {query}  # heads of {latent.key}, of values {latent.value}"),
        f"wdkv = tensor {dtype}[{hidden}, {latent.rank}]",
        f"wkv = tensor {dtype}[{latent.rank}, {keys + values}]",
        f"wo = tensor {dtype}[{values}, {hidden}]",
    )
    queries = ("cq = gemm(norm(x), wdq)", "q = gemm(norm(cq), wq)") if latent.query_rank else ("q = gemm(norm(x), wq)",)
    statements = (
        *(*queries, "ckv = gemm(norm(x), wdkv)", "kv = gemm(norm(ckv), wkv)"),
        f"a = attention(q, kv, heads={model.heads}, value_dim={latent.value}, causal=yes)",
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
    statements = (f"u = {words.up(_taken(model), 'wup')}", f"y = add(r, {words.down(f'{activation}(u)', 'wdn')})")
    return _Block(weights, statements, ("u",))


def _experts(model: ModelConfig, nodes: int) -> _Block:
    """Experts, which are dealt to the ranks; the router is left out."""
    dtype, hidden, inner, experts = model.dtype.value, model.hidden, model.expert_inner, model.experts
    width, activation = ("2 * ", "swiglu") if model.gated else ("", "gelu")
    there, back = (DType.FP8.value, f", type={dtype}") if model.stored_fp8 else (dtype, "")
    weights = (
        f"wup = tensor {there}[{experts} * {hidden}, {width}{inner}] shard rows",
        f"wdn = tensor {there}[{experts} * {inner}, {hidden}] shard rows",
    )
    some = f", nodes={min(model.groups_per_token, nodes)}" if model.groups_per_token and nodes > 1 else ""
    some += f", type={there}" if model.stored_fp8 else ""
    routed = (
        f"t = dispatch({_taken(model)}, experts={experts}, top={model.experts_per_token}{some})",
        "u = grouped_gemm(t, wup)",
    )
    results = f"combine(grouped_gemm({activation}(u), wdn){back})"
    if not model.shared_inner:
        return _Block(weights, (*routed, f"y = add(r, {results})"), ("u", "t"))
    shared = (
        f"sup = tensor {dtype}[{hidden}, {width}{model.shared_inner}]  # of the shared expert, whole on each rank",
        f"sdn = tensor {dtype}[{model.shared_inner}, {hidden}]",
    )
    own = (f"su = gemm({_taken(model)}, sup)", f"s = gemm({activation}(su), sdn)")
    return _Block((*weights, *shared), (*routed, *own, f"z = {results}", "y = add(r, add(z, s))"), ("u", "t", "su"))


def _taken(model: ModelConfig) -> str:
    """What the MLP takes: what attention leaves, or beside attention what that takes too."""
    return "norm(x)" if model.parallel else "norm(r)"


def _workload(name: str, *lines: str) -> str:
    inner = "".join(f"  {line}\n" if line else "\n" for line in lines)
    return f"workload {name} on node {{\n{inner}}}"
