"""A whole layer of a model as a graph, and its backward pass, as ``.mgs`` text.

Weights are sharded as in ``layer.py``. What is kept for the backward pass is what kernels other than row-wise ones
made; norms and activations are made again, and what they feed is gathered again (Korthikanti et al., "Reducing
Activation Recomputation in Large Transformer Models", 2022).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .config import ModelConfig

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


def whole_layer(model: ModelConfig, kv_heads: int, sequence: bool) -> Iterator[str]:
    """Write the layer and its backward pass; ``kv_heads`` are those of all ranks together."""
    words = _Words(" shard rows", "all_gather({})", "reduce_scatter") if sequence else _Words("", "{}", "all_reduce")
    dtype, hidden = model.dtype.value, model.hidden
    heads, packed = model.heads * model.head_dim, (model.heads + 2 * kv_heads) * model.head_dim
    weights, mlp = _experts(model) if model.experts else _dense(model, words)
    yield "# All M tokens are one sequence.\n" + _block(
        LAYER,
        f'about "one of {model.layers} layers"',
        f"x = tensor {dtype}[M, {hidden}]{words.shard}",
        f"wqkv = tensor {dtype}[{hidden}, {packed}] shard cols",
        f"wo = tensor {dtype}[{heads}, {hidden}] shard rows",
        *weights,
        "",
        f"qkv = {words.up('norm(x)', 'wqkv')}",
        f"a = attention(qkv, heads={model.heads}, kv_heads={kv_heads}, causal=true)",
        f"r = add(x, {words.down('a', 'wo')})",
        *mlp,
        "",
        f"repeat {model.layers} y as x",
    )
    about = 'about "its backward pass with weight gradients"'
    kept = (*KEPT, "t") if model.experts else KEPT
    yield _block(BACK, about, f"backward {LAYER}", f"keep {', '.join(kept)}")


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


def _experts(model: ModelConfig) -> tuple[Sequence[str], Sequence[str]]:
    """Weights and statements of experts, which are dealt to the ranks; the router is left out."""
    dtype, hidden, inner, experts = model.dtype.value, model.hidden, model.expert_inner, model.experts
    weights = (
        f"wup = tensor {dtype}[{experts} * {hidden}, 2 * {inner}] shard rows",
        f"wdn = tensor {dtype}[{experts} * {inner}, {hidden}] shard rows",
    )
    return weights, (
        f"t = dispatch(norm(r), experts={experts}, top={model.experts_per_token})",
        "u = grouped_gemm(t, wup)",
        "y = add(r, combine(grouped_gemm(swiglu(u), wdn)))",
    )


def _block(name: str, *lines: str) -> str:
    inner = "".join(f"  {line}\n" if line else "\n" for line in lines)
    return f"workload {name} on node {{\n{inner}}}"
