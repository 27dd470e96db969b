"""A whole layer of a model as one workload, and its backward pass, as ``.mgs`` text.

Weights are sharded as in ``layer.py``. What is kept for the backward pass is what kernels other than row-wise ones
made; norms and activations are made again, and what they feed is gathered again (Korthikanti et al., "Reducing
Activation Recomputation in Large Transformer Models", 2022). So are queries, keys and values of compressed ones
(DeepSeek-V3, arXiv 2412.19437, section 3.2.3).
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .config import Latent, ModelConfig
from .frameworks import Experts, Parallelism

LAYER, BACK = "layer", "layer_back"
DENSE = "dense"
"""Layers without experts of a model that has others with them."""
ATTENTION, EXPERTS = "attention", "experts"
"""A layer of groups of GPUs that share attention: what a group does, and what all do together."""


@dataclass(frozen=True, slots=True)
class _Block:
    """A half of a layer: its weights, its statements, and results that are kept for the backward pass."""

    weights: tuple[str, ...]
    statements: tuple[str, ...]
    kept: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Words:
    """How activations and weights lie, and what stands before and behind the products: gathers and sums."""

    shard: str
    before: str
    behind: str
    cols: str = " shard cols"
    rows: str = " shard rows"

    def taken(self, operand: str) -> str:
        """Rows as products take them."""
        return self.before.format(operand)

    def up(self, operand: str, weight: str) -> str:
        """A product whose weight is sharded by columns."""
        return f"gemm({self.taken(operand)}, {weight})"

    def summed(self, terms: str) -> str:
        """Terms of a sum on the ranks, added."""
        return f"{self.behind}({terms})" if self.behind else terms

    def down(self, operand: str, weight: str) -> str:
        """A product whose weight is sharded by rows."""
        return self.summed(f"gemm({operand}, {weight})")


_GATHERED = _Words(" shard rows", "all_gather({})", "reduce_scatter")
_WHOLE = _Words("", "{}", "all_reduce")
_OWN_ROWS = _Words(" shard rows", "{}", "", "", "")


def whole_layer(model: ModelConfig, kv_heads: int, parallel: Parallelism) -> Iterator[str]:
    """Write the layer and its backward pass, if one is derived; ``kv_heads`` are those of all ranks together."""
    shared = _GATHERED if parallel.by_rows else _WHOLE
    words = _OWN_ROWS if parallel.own_tokens else shared
    if model.latent is None:
        attention = _heads(model, kv_heads, words, parallel)
    else:
        attention = (_latent if parallel.keys is None else _absorbed)(model, model.latent, words, parallel)
    several = "" if parallel.own_sequences == 1 else f"{parallel.own_sequences} sequences"
    sequences = f"All M tokens are {several or 'one sequence'}."
    if parallel.own_tokens:
        sequences = f"Each rank has {several or 'a sequence'} of its own."
    sequences = sequences if parallel.keys is None else "The cache holds all keys and values, the new ones too."
    experts = _experts(model, parallel, shared)
    dense = _dense(model, words)
    if parallel.flat_weights:
        attention, dense = _gathered(attention), _gathered(dense)
        experts = _gathered(experts, kept=_EXPERT_WEIGHTS)
    blocks = (experts, model.expert_layers), (dense, model.dense_layers)
    kinds = [(mlp, count) for mlp, count in blocks if count]
    if parallel.groups > 1:
        yield from _in_groups(model, parallel, attention, kinds)
        return
    comment = f"# {sequences}\n"
    x = f"x = tensor {model.dtype.value}[M, {model.hidden}]{words.shard}"
    for (mlp, count), name in zip(kinds, (LAYER, DENSE), strict=False):
        of = "" if count == model.layers else f"{' with experts' if mlp is experts else ''}, of {model.layers} in all"
        about = f"one of {count} layer{'s' if count > 1 else ''}{of}"
        derives = parallel.trains and (mlp is not experts or parallel.sharing is Experts.SENT)  # of rows that are sent
        kept = (*attention.kept, *(() if model.parallel else ("r",)), *mlp.kept) if derives else ()
        forward, *back = _with_back(name, parallel.place, about, _both(x, attention, mlp, count), kept)
        yield comment + forward
        yield from back
        comment = ""


def _in_groups(
    model: ModelConfig, parallel: Parallelism, attention: _Block, kinds: Sequence[tuple[_Block, int]]
) -> Iterator[str]:
    """Write attention of a group of ranks, the experts of all, and layers of a group that have none."""
    dtype, hidden, (experts, layers) = model.dtype.value, model.hidden, kinds[0]
    x = f"x = tensor {dtype}[{parallel.rows}, {hidden}] shard rows"
    taken = (f"{name} = tensor {dtype}[M, {hidden}] shard rows" for name in ("r", "x")[: 1 + model.parallel])
    lines = (x, *attention.weights, "", *attention.statements, "", f"repeat {layers} r as x")
    kept = attention.kept if parallel.trains else ()
    yield from _with_back(ATTENTION, "node.tp", f"of {layers} layers with experts", lines, kept)
    lines = (*taken, *experts.weights, "", *experts.statements, "", f"repeat {layers} y as r")
    kept = experts.kept if parallel.trains else ()
    yield from _with_back(EXPERTS, "node", f"of {layers} layers", lines, kept)
    for mlp, count in kinds[1:]:
        kept = (*attention.kept, "r", *mlp.kept) if parallel.trains else ()
        about = f"one of {count} layers without experts"
        yield from _with_back(DENSE, "node.tp", about, _both(x, attention, mlp, count), kept)


def _both(x: str, attention: _Block, mlp: _Block, count: int) -> tuple[str, ...]:
    """The lines of a layer of both halves, with ``x`` its input, of which ``count`` follow each other."""
    weights, statements = (*attention.weights, *mlp.weights), (*attention.statements, *mlp.statements)
    return x, *weights, "", *statements, "", f"repeat {count} y as x"


def _with_back(name: str, place: str, about: str, lines: Sequence[str], kept: Sequence[str]) -> Iterator[str]:
    """Write a workload on ``place``, and its backward pass where something is ``kept`` for one."""
    yield _workload(name, place, about, *lines)
    if kept:
        lines = (f"backward {name}", f"keep {', '.join(kept)}")
        yield _workload(f"{name}_back", place, "its backward pass with weight gradients", *lines)


_EXPERT_WEIGHTS = ("wup", "wdn")
"""Those that are dealt to the ranks in a block with experts."""


def _gathered(block: _Block, kept: Sequence[str] = ()) -> _Block:
    """The block with weights in equal parts on all ranks, gathered before they are taken, but for those ``kept``."""
    weights, gathers, statements = [], [], "\n".join(block.statements)
    for line in block.weights:
        name = line.split(" ", 1)[0]
        if name not in kept:
            line, *comment = line.partition("  # ")
            line = f"{line.removesuffix(' shard cols').removesuffix(' shard rows')} shard flat{''.join(comment)}"
            gathers.append(f"{name}_all = all_gather({name})")
            statements = re.sub(rf"\b{name}\b", f"{name}_all", statements)
        weights.append(line)
    return _Block(tuple(weights), (*gathers, *statements.splitlines()), block.kept)


def _heads(model: ModelConfig, kv_heads: int, words: _Words, parallel: Parallelism) -> _Block:
    """Attention by heads, which ranks share, or each with its own rows; in decode it reads a cache."""
    dtype, hidden = model.dtype.value, model.hidden
    heads, packed = model.heads * model.head_dim, (model.heads + 2 * kv_heads) * model.head_dim
    weights: tuple[str, ...] = (
        f"wqkv = tensor {dtype}[{hidden}, {packed}]{words.cols}",
        f"wo = tensor {dtype}[{heads}, {hidden}]{words.rows}",
    )
    taken, batch = "qkv", _batch(parallel)
    window = "" if model.window is None else f", window={model.window}"
    if parallel.keys is not None:
        cache = f"cache = tensor {dtype}[{parallel.rows} * K, {2 * kv_heads * model.head_dim}]"
        weights = (*weights, f"{cache} shard {'rows' if parallel.own_tokens else 'cols'}")
        taken, batch = (
            "qkv, cache",
            f", batch=M / {parallel.ranks}" if parallel.own_tokens else f", batch={parallel.rows}",
        )
    by = f", by={parallel.attention_by}" if parallel.attention_by else ""
    statements = (
        f"qkv = {words.up('norm(x)', 'wqkv')}",
        f"a = attention({taken}, heads={model.heads}, kv_heads={kv_heads}{batch}, causal=yes{window}{by})",
        f"r = add(x, {words.down('a', 'wo')})",
    )
    return _Block(weights, statements, ("qkv", "a"))


def _batch(parallel: Parallelism) -> str:
    """The sequences of a prefill, as an argument of attention."""
    return "" if parallel.own_sequences == 1 else f", batch={parallel.own_sequences}"


def _latent(model: ModelConfig, latent: Latent, words: _Words, parallel: Parallelism) -> _Block:
    """Compressed attention: each rank attends with all heads to its own rows, or with its heads to all.

    Rows are compressed where they are and gathered so, as Megatron-Core's ``multi_latent_attention.py`` has it. The
    columns that turn with the position are in every head of ``wkv``, in place of a copy to each.
    """
    dtype = model.dtype.value
    keys, values = model.heads * latent.key, model.heads * latent.value
    down, queries = _queries(model, latent, words)
    rope = f", rope={latent.rope}" if latent.rope else ""
    weights = (
        *down,
        f"wdkv = tensor {dtype}[{model.hidden}, {latent.rank + latent.rope}]",
        f"wkv = tensor {dtype}[{latent.rank}, {keys + values}]{words.cols}",
        f"wo = tensor {dtype}[{values}, {model.hidden}]{words.rows}",
    )
    statements = (
        *(*queries, "ckv = gemm(norm(x), wdkv)", f"kv = {words.up(f'norm(ckv{rope})', 'wkv')}"),
        f"a = attention(q, kv, heads={model.heads}{_batch(parallel)}, value_dim={latent.value}, causal=yes)",
        f"r = add(x, {words.down('a', 'wo')})",
    )
    return _Block(weights, statements, ("cq" if latent.query_rank else "q", "ckv", "a"))


def _absorbed(model: ModelConfig, latent: Latent, words: _Words, parallel: Parallelism) -> _Block:
    """Compressed attention to a cache that stays so: projections of keys and values are at queries and results.

    All heads read the same cache, whole on each rank that has heads; vLLM and SGLang decode so (DeepSeek-V2,
    arXiv 2405.04434, section 2.1.2). Each head multiplies by a part of the projections of its own.
    """
    dtype, heads, cached = model.dtype.value, model.heads, latent.rank + latent.rope
    own = parallel.own_tokens
    down, queries = _queries(model, latent, words)
    weights = (
        *down,
        f"wdkv = tensor {dtype}[{model.hidden}, {cached}]",
        f"wuk = tensor {dtype}[{heads} * {latent.nope}, {latent.rank}]{words.rows}",
        f"wuv = tensor {dtype}[{heads} * {latent.rank}, {latent.value}]{words.rows}",
        f"wo = tensor {dtype}[{heads * latent.value}, {model.hidden}]{words.rows}",
        f"cache = tensor {dtype}[{parallel.rows} * K, {cached}]{words.shard if own else ''}",
    )
    batch = f"M / {parallel.ranks}" if own else parallel.rows
    rope = f", rope={latent.rope}" if latent.rope else ""
    statements = (
        *(*queries, "ckv = gemm(norm(x), wdkv)", f"qk = batched_gemm(q, wuk, heads={heads}{rope})"),
        f"c = attention(qk, cache, heads={heads}, kv_heads=1, batch={batch}, value_dim={latent.rank}, causal=yes)",
        f"a = batched_gemm(c, wuv, heads={heads})",
        f"r = add(x, {words.down('a', 'wo')})",
    )
    return _Block(weights, statements, ())


def _queries(model: ModelConfig, latent: Latent, words: _Words) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The weights and statements of the queries of compressed attention."""
    dtype, rank = model.dtype.value, latent.query_rank
    query = f"wq = tensor {dtype}[{rank or model.hidden}, {model.heads * latent.key}]{words.cols}"
    weights = (
        *((f"wdq = tensor {dtype}[{model.hidden}, {rank}]",) if rank else ()),
        f"{query}  # heads of {latent.key}, of values {latent.value}",
    )
    statements = ("cq = gemm(norm(x), wdq)",) if rank else ()
    return weights, (*statements, f"q = {words.up('norm(cq)' if rank else 'norm(x)', 'wq')}")


def _dense(model: ModelConfig, words: _Words) -> _Block:
    """An MLP."""
    dtype, hidden, inner = model.dtype.value, model.hidden, model.inner
    width, activation = (2 * inner, "swiglu") if model.gated else (inner, "gelu")
    weights = (
        f"wup = tensor {dtype}[{hidden}, {width}]{words.cols}",
        f"wdn = tensor {dtype}[{inner}, {hidden}]{words.rows}",
    )
    statements = (f"u = {words.up(_taken(model), 'wup')}", f"y = add(r, {words.down(f'{activation}(u)', 'wdn')})")
    return _Block(weights, statements, ("u",))


def _experts(model: ModelConfig, parallel: Parallelism, words: _Words) -> _Block:
    """Experts, which are dealt to the ranks, or of which each has a part; the router is left out."""
    dtype, hidden, inner, experts = model.dtype.value, model.hidden, _inner(model, parallel), model.experts
    width, activation = ("2 * ", "swiglu") if model.gated else ("", "gelu")
    sent, sliced = parallel.sharing is Experts.SENT, parallel.sharing is Experts.SLICED
    there, casts = (model.stored or model.dtype).value, model.sent is not model.dtype
    back = f", type={dtype}" if casts else ""
    weights = (
        f"wup = tensor {there}[{experts} * {hidden}, {width}{inner}] shard {'cols' if sliced else 'rows'}",
        f"wdn = tensor {there}[{experts} * {inner}, {hidden}] shard rows",
    )
    groups = min(model.groups_per_token, parallel.nodes) if sent and parallel.nodes > 1 else 0
    some = f", nodes={groups}" if groups else ""
    some += (", ep=1" if sliced else "") + (f", type={there}" if casts else "")
    taken = _taken(model) if sent else words.taken(_taken(model))
    routed = (
        f"t = dispatch({taken}, experts={experts}, top={model.experts_per_token}{some})",
        "u = grouped_gemm(t, wup)",
    )
    results = f"combine(grouped_gemm({activation}(u), wdn){back})"
    if not model.shared_inner:
        summed = results if sent else words.summed(results)
        return _Block(weights, (*routed, f"y = add(r, {summed})"), ("u", "t"))
    whole = parallel.by_rows
    cols, rows = ("", "") if whole else (_WHOLE.cols, _WHOLE.rows)
    shared = (
        f"sup = tensor {dtype}[{hidden}, {width}{model.shared_inner}]{cols}  # of the shared expert"
        + (", whole on each rank" if whole else ""),
        f"sdn = tensor {dtype}[{model.shared_inner}, {hidden}]{rows}",
    )
    own = (f"su = gemm({_taken(model)}, sup)", f"s = gemm({activation}(su), sdn)")
    both = "add(z, s)" if whole else words.summed("add(z, s)")
    z = words.summed(results) if whole and not sent else results
    return _Block((*weights, *shared), (*routed, *own, f"z = {z}", f"y = add(r, {both})"), ("u", "t", "su"))


def _inner(model: ModelConfig, parallel: Parallelism) -> int:
    """The columns of an expert; parts of them are filled up to whole blocks of scales, as vLLM does for MXFP4."""
    parts, block = parallel.ranks if parallel.sharing is Experts.SLICED else 1, (model.stored or model.dtype).block
    return -(-model.expert_inner // (parts * block)) * parts * block


def _taken(model: ModelConfig) -> str:
    """What the MLP takes: what attention leaves, or beside attention what that takes too."""
    return "norm(x)" if model.parallel else "norm(r)"


def _workload(name: str, place: str, about: str, *lines: str) -> str:
    inner = "".join(f"  {line}\n" if line else "\n" for line in (f'about "{about}"', *lines))
    return f"workload {name} on {place} {{\n{inner}}}"
