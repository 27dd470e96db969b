"""The workloads of one layer under tensor parallelism, and of its experts, as ``.mgs`` text.

A layer is written as a whole (``whole_layer.py``), or else as the pairs in it that may overlap in themselves, each
alone.

Linear layers are sharded as Megatron does it: queries, keys, values and the first half of the MLP by columns, what
follows by rows. With sequence parallelism activations are gathered before and reduce-scattered behind, else the result
is all-reduced (Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", 2022).
"""

from collections.abc import Iterator
from math import gcd

from ..codes import Code
from ..pipeline import Compiled, compile_text
from ..request.request import RequestError, ShippedGpu, shipped_gpu
from ..text.diagnostics import CompileError, Severity, printable
from ..text.rewriting import comment_lines
from .config import ModelConfig
from .frameworks import Experts, Parallelism, framework_named, frameworks, version_doubt
from .kinds import LONGEST
from .whole_layer import whole_layer

NIC = (
    "link nic {  # of each GPU, 400 Gb/s: say what yours have",
    '  source nominal "400 Gb/s"',
    "  bandwidth 50 GB/s",
    '  achieved 42 GB/s @reported "DeepEP, H800"',
    "  latency 2 us @assumed",
    "}",
    "",
)
"""The network between nodes, as a link of the file."""
_TOKENS = 8192
"""Tokens that the file begins with, or the nearest number that divides."""
_SEQUENCES, _MOST_SEQUENCES = 64, 1024
"""The same in decode, and the most there."""
_FEWEST = 16
_MOST_TP = 64
"""Ranks up to which a hint names those that a number divides among."""
_FIELDS = {
    Code.MGS203: "model",
    Code.MGS208: "implementations",
    Code.MGS401: "engines",
    Code.MGS404: "tp",
    Code.MGS405: "model",
    Code.MGS520: "implementations",
}


def layer_text(model: ModelConfig, parallel: Parallelism, *, whole: bool = True) -> str:
    """Return a file with a layer of ``model``, checked.

    If ``whole`` it is one workload, with its backward pass where one is derived; else there is a workload for each
    collective beside a GEMM.

    Raises
    ------
    RequestError
        If the GPU does not ship, or the layer does not divide among the ranks.
    """
    text = unchecked_layer_text(model, parallel, _token_range(model, parallel), whole=whole)
    compiled(text)
    return text


def compiled(text: str, file: str = "<model>") -> Compiled:
    """Compile the file of a layer; what is wrong with it is wrong with the request.

    Raises
    ------
    RequestError
        If the file has an error.
    """
    try:
        return compile_text(text, file)
    except CompileError as error:
        first = next(each for each in error.diagnostics if each.severity is Severity.ERROR)
        raise RequestError(first.code, _FIELDS.get(first.code, "tokens"), first.message, first.hint) from None


def unchecked_layer_text(model: ModelConfig, parallel: Parallelism, tokens: str, *, whole: bool = True) -> str:
    """Return the file of ``layer_text`` for ``tokens``, a number or a number with its range, without checking it."""
    gpu, facts = shipped_gpu(parallel.gpu), framework_named(parallel.framework) if parallel.framework else None
    if facts is not None and facts.dense and model.experts:
        with_experts = ", ".join(name for name, each in frameworks().items() if each.trains and not each.dense)
        message = f"layers of {facts.title} have no experts, and {model.name} has {model.experts}"
        raise RequestError(Code.MGS520, "for", message, f"ask for={with_experts}")
    head = [
        "mgs 1",
        "",
        *comment_lines(_about(model, parallel)),
        *(comment_lines(_as_shared(parallel.framework)) if parallel.framework else ()),
        *comment_lines(f"{number_text(model.parameters)} parameters{_of_what(model)}."),
        *comment_lines(f"{_about_tokens(parallel)}{_multiple(model, parallel)}."),
        *(line for what in model.doubts for line in comment_lines(f"In doubt: {printable(what)}.")),
        *(line for what in model.left_out for line in comment_lines(f"Left out: {printable(what)}.")),
        "",
        f'use "{gpu.library}"',
        "",
        f"param M = {tokens}",
        *(() if parallel.keys is None else (f"param K = {parallel.keys}  # keys of each sequence",)),
        "",
        *_system(gpu, parallel),
    ]
    if parallel.groups > 1 and not whole:
        raise RequestError(
            Code.MGS520, "pairs", "groups that share attention have no pairs of all ranks", "leave it out"
        )
    pairs = [*_attention(model, parallel), *_mlp(model, parallel)]
    if model.shared_inner:
        pairs.append("# Left out: shared experts.")
    if whole:
        kv_heads = model.kv_heads if parallel.own_tokens else _kv_heads(model, parallel.attention_ranks)
        blocks = [*whole_layer(model, kv_heads, parallel)]
    elif any(block.startswith("workload") for block in pairs):
        blocks = pairs
    else:
        hint = "leave --pairs out: the layer as a whole has its collectives"
        raise RequestError(Code.MGS520, "pairs", "no GEMM of the layer forms a pair with a collective", hint)
    return "\n".join([*head, *(f"\n{block}" for block in blocks)]) + "\n"


def number_text(parameters: int) -> str:
    """A number of parameters: ``70.6 billion``."""
    return f"{parameters / 1e9:,.1f} billion" if parameters >= 10**9 else f"{parameters / 1e6:,.0f} million"


def _of_what(model: ModelConfig) -> str:
    rest = model.layers - model.dense_layers - model.expert_layers
    return f", without those of {rest} layers that are left out" if rest else ""


def _as_shared(framework: str) -> str:
    doubt = version_doubt(framework)
    return f"As {framework} shares it{doubt and f'; {doubt}'}."


def _about_tokens(parallel: Parallelism) -> str:
    if parallel.keys is None:
        return "M is the number of tokens that all ranks hold together"
    return "M is the number of sequences of all ranks together, each with one new token"


def _unit(model: ModelConfig, parallel: Parallelism) -> int:
    """Tokens of which each rank gets as many, and so does each expert that they are sent to: M is a multiple of it.

    Where ranks share no rows, a step of decode may have fewer tokens than there are ranks.
    """
    own = model.experts // parallel.ranks if parallel.sharing is Experts.SENT else 0
    ranks = parallel.ranks if parallel.by_rows else 1
    return ranks * (own // gcd(own, model.experts_per_token) if own else 1)


def _multiple(model: ModelConfig, parallel: Parallelism) -> str:
    unit = _unit(model, parallel)
    return f", a multiple of {unit}: experts get as many rows each" if unit > parallel.ranks else ""


def _token_range(model: ModelConfig, parallel: Parallelism) -> str:
    """A number of tokens and its range, in steps that divide; where experts have an odd factor, all have it."""
    low = _unit(model, parallel)
    while low < _FEWEST and low > 1:
        low *= 2
    tokens, most = (_TOKENS, LONGEST) if parallel.keys is None else (_SEQUENCES, _MOST_SEQUENCES)
    sizes = [low]
    while sizes[-1] * 2 <= most:
        sizes.append(sizes[-1] * 2)
    usual = min(sizes, key=lambda size: max(size / tokens, tokens / size))
    return f"{usual} in {low}..{sizes[-1]} x2" if len(sizes) > 1 else str(usual)


def _system(gpu: ShippedGpu, parallel: Parallelism) -> Iterator[str]:
    """One node, or several that rails join."""
    fabric = gpu.fabric()
    if parallel.ranks > parallel.node:
        if parallel.ranks % parallel.node:
            message = f"{parallel.ranks} GPUs do not fill nodes of {parallel.node}"
            raise RequestError(Code.MGS304, "node", message, "take another --tp or --node")
        fabric = gpu.rails(parallel.node, "nic")
        yield from NIC
    alone = parallel.ranks == 1  # a node has two GPUs at least
    groups = 2 if alone else parallel.groups
    mesh = f"; mesh tp {parallel.attention_ranks}, dp {groups}" if groups > 1 else ""
    yield f"system node {{ gpus {2 if alone else parallel.ranks} x {gpu.name}; fabric {fabric}{mesh} }}"


def _about(model: ModelConfig, parallel: Parallelism) -> str:
    both = model.dense_layers and model.expert_layers
    mlp = f", MLP {model.inner}" if model.dense_layers else ""
    experts = f", {model.experts} experts of {model.expert_inner}" if model.expert_layers else ""
    if both:
        mlp, experts = f"{mlp} (layers: {model.dense_layers})", f"{experts} (layers: {model.expert_layers})"
    what = "Layers" if both else "One layer"
    sizes = f"{what} of {printable(model.name)}: hidden {model.hidden}{mlp}, {model.heads} heads"
    if parallel.own_tokens:
        shared = "experts" if model.experts else "weights" if parallel.flat_weights else "the MLP"
        return f"{sizes}{experts}; on {parallel.ranks} GPUs, that share {shared} and attend each to its own tokens."
    if parallel.groups > 1:
        shared = f"in {parallel.groups} groups of {parallel.attention_ranks} that share attention; all share experts"
        return f"{sizes}{experts}; on {parallel.ranks} GPUs, {shared}."
    if model.latent is None:
        sizes = f"{sizes} of {model.head_dim} and {model.kv_heads} for keys and values"
    return f"{sizes}{experts}; TP={parallel.ranks}{' with sequence parallelism' * parallel.sequence}."


def _attention(model: ModelConfig, parallel: Parallelism) -> Iterator[str]:
    ranks = parallel.attention_ranks
    if parallel.own_tokens:
        return
    _check_divides("num_attention_heads", model.heads, ranks)
    if model.latent:
        yield "# Attention with compressed keys and values has other projections: they are left out."
        return
    kv_heads = _kv_heads(model, ranks)
    _check_divides("num_key_value_heads", kv_heads, ranks)
    qkv = (model.heads + 2 * kv_heads) * model.head_dim
    yield from _up(model, parallel, "qkv", "queries, keys and values", qkv)
    yield _down(model, parallel, "attention_out", "output projection of attention", model.heads * model.head_dim)


def _kv_heads(model: ModelConfig, ranks: int) -> int:
    """Heads of keys and values of all ranks; those that are fewer than the ranks are held several times."""
    return max(model.kv_heads, ranks)


def _mlp(model: ModelConfig, parallel: Parallelism) -> Iterator[str]:
    if parallel.flat_weights and model.expert_layers and parallel.sharing is Experts.SLICED:
        message = f"weights of {model.experts} experts that each GPU gathers are not simulated"
        raise RequestError(Code.MGS520, "ep", message, f"nearest is ep={parallel.ranks}: rows go to their experts")
    if (parallel.own_tokens or parallel.groups > 1) and not model.expert_layers and not parallel.flat_weights:
        message = f"{model.name} has no experts: where attention is by data, its layers share nothing"
        raise RequestError(Code.MGS520, "dp", message, f"take --tp {parallel.ranks}")
    if model.dense_layers and not parallel.own_tokens:
        _check_divides("intermediate_size", model.inner, parallel.attention_ranks)
        about, width = ("gate and up-projection", 2 * model.inner) if model.gated else ("up-projection", model.inner)
        yield from _up(model, parallel, "mlp_up", about, width)
        yield _down(model, parallel, "mlp_down", "down-projection", model.inner)
    if model.expert_layers and parallel.sharing is Experts.SLICED:
        _check_divides("the width of experts", model.expert_inner, parallel.ranks)
    elif model.expert_layers:
        _check_divides("the number of experts", model.experts, parallel.ranks)
        if parallel.sharing is Experts.SENT:
            yield from _experts(model, parallel.ranks)
    if model.expert_layers and parallel.sharing is not Experts.SENT:
        yield "# Experts of rows that all ranks hold form no pair with a collective: the layer as a whole has them."


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
    about, columns = ("gate and up-projection", 2) if model.gated else ("up-projection", 1)
    back = f", in {dtype}, and so are the products here" if model.sent is not model.dtype else ""
    there, stored = model.sent.value, (model.stored or model.dtype).value
    below = dtype if model.stored is model.sent else stored
    yield _block(
        "dispatch",
        f"tokens go to their experts, evenly; {about}",
        f"x = tensor {there}[sent, {model.hidden}]",
        f"w = tensor {stored}[{own} * {model.hidden}, {columns} * {model.expert_inner}]",
        f"h = grouped_gemm(all_to_all(x), w, rows=[{rows}])",
    )
    yield _block(
        "combine",
        f"down-projection; results go back{back}",
        f"h = tensor {dtype}[sent, {model.expert_inner}]",
        f"w = tensor {below}[{own} * {model.expert_inner}, {model.hidden}]",
        f"y = all_to_all(grouped_gemm(h, w, rows=[{rows}]))",
    )


def _block(name: str, about: str, *lines: str) -> str:
    inner = "".join(f"  {line}\n" for line in (f'about "{about}"', *lines))
    return f"workload {name} on node {{\n{inner}}}"


def _check_divides(field: str, number: int, ranks: int) -> None:
    if number % ranks:
        fitting = [str(each) for each in range(2, min(number, _MOST_TP) + 1) if number % each == 0]
        hint = f"take --tp {', '.join(fitting)}" if fitting else "no --tp divides it"
        raise RequestError(Code.MGS304, field, f"{number} do not divide among {ranks} ranks", hint)
