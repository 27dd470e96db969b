"""The workloads of one layer under tensor parallelism, and of its experts, as ``.mgs`` text.

A layer is written as a whole (``whole_layer.py``), or else as the pairs in it that may overlap in themselves, each
alone.

Linear layers are sharded as Megatron does it: queries, keys, values and the first half of the MLP by columns, what
follows by rows. With sequence parallelism activations are gathered before and reduce-scattered behind, else the result
is all-reduced (Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", 2022).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ..codes import Code
from ..request.errors import RequestError
from ..request.shipped import ShippedGpu, shipped_gpu
from ..text.formatting.comments import comment_lines
from ..text.printable import printable
from ..text.vocabulary import MAX_LAYERS
from .config import ModelConfig
from .whole_layer import whole_layer

_NIC = (
    '  source nominal "400 Gb/s"',
    "  bandwidth 50 GB/s",
    '  achieved 42 GB/s @reported "DeepEP, H800"',
    "  latency 2 us @assumed",
)
TOKENS = "M = 8192 in 16..65536 x2"


@dataclass(frozen=True, slots=True)
class Parallelism:
    """``ranks`` GPUs named ``gpu`` that share each layer, with or without sequence parallelism; ``node`` are in one."""

    gpu: str
    ranks: int
    sequence: bool = True
    node: int = 8

    @property
    def nodes(self) -> int:
        """The number of nodes; GPUs that do not fill one are one."""
        return max(1, self.ranks // self.node)


def layer_text(model: ModelConfig, parallel: Parallelism, *, whole: bool = True) -> str:
    """Return a file with a layer of ``model``, if ``whole`` as a graph, with its backward pass where one is derived.

    Else, and where no graph says it, the file has a workload for each collective beside a GEMM.

    Raises
    ------
    RequestError
        If the GPU does not ship, or the layer does not divide among the ranks.
    """
    gpu = shipped_gpu(parallel.gpu)
    head = [
        "mgs 1",
        "",
        *comment_lines(_about(model, parallel)),
        *comment_lines("M is the number of tokens that all ranks hold together."),
        *(line for what in model.left_out for line in comment_lines(f"Left out: {what}.")),
        "",
        f'use "{gpu.library}"',
        "",
        f"param {TOKENS}",
        "",
        *_system(gpu, parallel),
    ]
    pairs = [*_attention(model, parallel), *_mlp(model, parallel)]
    if model.shared_inner:
        pairs.append("# Left out: shared experts.")
    why_not = why_not_whole(model, parallel)
    if not whole:
        blocks = pairs
    elif why_not:
        blocks = [*pairs, f"# The layer is not written as a whole: {why_not}."]
    else:
        blocks = [*whole_layer(model, _kv_heads(model, parallel.ranks), parallel.nodes, sequence=parallel.sequence)]
    return "\n".join([*head, *(f"\n{block}" for block in blocks)]) + "\n"


def _system(gpu: ShippedGpu, parallel: Parallelism) -> Iterator[str]:
    """One node, or several that rails join."""
    fabric = gpu.fabric()
    if parallel.ranks > parallel.node:
        if parallel.ranks % parallel.node:
            message = f"{parallel.ranks} GPUs do not fill nodes of {parallel.node}"
            raise RequestError(Code.MGS304, "node", message, "take another --tp or --node")
        fabric = gpu.rails(parallel.node, "nic")
        yield from ("link nic {  # of each GPU, 400 Gb/s: say what yours have", *_NIC, "}", "")
    yield f"system node {{ gpus {parallel.ranks} x {gpu.name}; fabric {fabric} }}"


def _about(model: ModelConfig, parallel: Parallelism) -> str:
    experts = f", {model.experts} experts of {model.expert_inner}" if model.experts else ""
    sizes = f"One layer of {printable(model.name)}: hidden {model.hidden}, MLP {model.inner}, {model.heads} heads"
    if model.latent is not None:
        shared = "experts" if model.experts else "the MLP"
        return f"{sizes}{experts}; on {parallel.ranks} GPUs, that share {shared} and attend each to its own tokens."
    return f"{sizes} of {model.head_dim} and {model.kv_heads} for keys and values{experts}; TP={parallel.ranks}" + (
        " with sequence parallelism." if parallel.sequence else "."
    )


def _attention(model: ModelConfig, parallel: Parallelism) -> Iterator[str]:
    ranks = parallel.ranks
    if model.latent:
        yield "# Attention with compressed keys and values has other projections: they are left out."
        return
    _check_divides("num_attention_heads", model.heads, ranks)
    kv_heads = _kv_heads(model, ranks)
    _check_divides("num_key_value_heads", kv_heads, ranks)
    qkv = (model.heads + 2 * kv_heads) * model.head_dim
    yield from _up(model, parallel, "qkv", "queries, keys and values", qkv)
    yield _down(model, parallel, "attention_out", "output projection of attention", model.heads * model.head_dim)


def _kv_heads(model: ModelConfig, ranks: int) -> int:
    """Heads of keys and values of all ranks; those that are fewer than the ranks are held several times."""
    return max(model.kv_heads, ranks)


def why_not_whole(model: ModelConfig, parallel: Parallelism) -> str:
    """Why the layer is no graph; empty if it is one."""
    if not parallel.sequence and (model.experts or model.latent):
        what = "experts take" if model.experts else "compressed attention takes"
        return f"{what} the rows of each rank, and here they are whole"
    return f"it repeats more than {MAX_LAYERS} times" if model.layers > MAX_LAYERS else ""


def _mlp(model: ModelConfig, parallel: Parallelism) -> Iterator[str]:
    if not model.experts:
        _check_divides("intermediate_size", model.inner, parallel.ranks)
        about, width = ("gate and up-projection", 2 * model.inner) if model.gated else ("up-projection", model.inner)
        yield from _up(model, parallel, "mlp_up", about, width)
        yield _down(model, parallel, "mlp_down", "down-projection", model.inner)
        return
    _check_divides("the number of experts", model.experts, parallel.ranks)
    yield from _experts(model, parallel.ranks)


def _up(model: ModelConfig, parallel: Parallelism, name: str, about: str, columns: int) -> Iterator[str]:
    """The GEMM behind an all_gather; without sequence parallelism there is none, and nothing to overlap."""
    if parallel.sequence:
        dtype = model.dtype.value
        yield _block(
            name,
            about,
            f"x = tensor {dtype}[M, {model.hidden}] shard rows",
            f"w = tensor {dtype}[{model.hidden}, {columns}] shard cols",
            "y = gemm(all_gather(x), w)",
        )


def _down(model: ModelConfig, parallel: Parallelism, name: str, about: str, columns: int) -> str:
    dtype, collective = model.dtype.value, "reduce_scatter" if parallel.sequence else "all_reduce"
    return _block(
        name,
        about,
        f"h = tensor {dtype}[M, {columns}] shard cols",
        f"w = tensor {dtype}[{columns}, {model.hidden}] shard rows",
        f"y = {collective}(gemm(h, w))",
    )


def _experts(model: ModelConfig, ranks: int) -> Iterator[str]:
    """Dispatch and combine of a mixture of experts whose experts are dealt to the ranks and get equally many tokens."""
    own, dtype = model.experts // ranks, model.dtype.value
    yield (
        "let sent = M * "
        + f"{model.experts_per_token} / {ranks}  # rows that a rank sends, one for each expert of a token"
    )
    yield f"let each = sent / {own}  # rows of an expert"
    rows = ", ".join(["each"] * own)
    yield _block(
        "dispatch",
        "tokens go to their experts, evenly; gate and up-projection",
        f"x = tensor {dtype}[sent, {model.hidden}]",
        f"w = tensor {dtype}[{own} * {model.hidden}, 2 * {model.expert_inner}]",
        f"h = grouped_gemm(all_to_all(x), w, rows=[{rows}])",
    )
    yield _block(
        "combine",
        "down-projection; results go back",
        f"h = tensor {dtype}[sent, {model.expert_inner}]",
        f"w = tensor {dtype}[{own} * {model.expert_inner}, {model.hidden}]",
        f"y = all_to_all(grouped_gemm(h, w, rows=[{rows}]))",
    )


def _block(name: str, about: str, *lines: str) -> str:
    inner = "".join(f"  {line}\n" for line in (f'about "{about}"', *lines))
    return f"workload {name} on node {{\n{inner}}}"


def _check_divides(field: str, number: int, ranks: int) -> None:
    if number % ranks:
        raise RequestError(Code.MGS304, field, f"{number} do not divide among {ranks} ranks", "take another --tp")
