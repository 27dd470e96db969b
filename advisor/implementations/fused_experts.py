"""One kernel that dispatches rows to experts, multiplies, and combines: where a layer has such ops, and its time.

Its blocks of threads do all three at once, so that no SM is set aside for copies, and what row-wise kernels do is done
where rows are at hand. Its time is that of a pipelined roofline, after DeepGEMM's ``sm100_fp8_fp4_mega_moe``:
``start + rank * ranks + (products^p + weights^p + exchange^p)^(1/p)``.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from ...compiler.codes import Code
from ...compiler.ir import (
    TICKS_PER_US,
    ElementwiseShape,
    FusedExperts,
    GroupedGemmShape,
    Implementation,
    Made,
    Op,
    Rejection,
    System,
    Workload,
)


@dataclass(frozen=True, slots=True)
class ExpertChain:
    """The ``ops`` from a dispatch to what its combine leaves; ``products`` are up with gates, and down.

    A rank has ``tokens`` rows of its own. Of each row that goes to an expert ``row_bytes`` go there and back.
    """

    ops: tuple[Op, ...]
    products: tuple[GroupedGemmShape, GroupedGemmShape]
    tokens: int
    row_bytes: int


def chains_of(workload: Workload) -> Iterator[ExpertChain]:
    """Yield each dispatch with gated experts and their combine, of which nothing else takes what lies between.

    Backward passes take it, so that a kernel that keeps nothing of it does not do for them.
    """
    for op in workload.ops:
        if op.shape.routing is not None and not op.shape.back and op.shape.moved is not None:
            chain = _chain(workload, op)
            if chain is not None:
                yield chain


def _chain(workload: Workload, dispatch: Op) -> ExpertChain | None:
    ops = [dispatch]
    while len(readers := _readers(workload, ops[-1].name)) == 1 and not _is_end(ops):
        (follower,) = readers
        if any(read.made_by not in ("", ops[-1].name) for read in follower.reads):
            return None
        ops.append(follower)
    products = [op.shape.compute for op in ops if isinstance(op.shape.compute, GroupedGemmShape)]
    returned = ops[-2].shape if _is_end(ops) else None
    if len(products) != 2 or returned is None or returned.moved is None or dispatch.shape.moved is None:
        return None
    up, down = products
    routing, sent = dispatch.shape.routing, dispatch.shape.moved
    if routing is None or up.n != 2 * down.k or up.rows != down.rows or not _are_row_wise(ops):
        return None
    row_bytes = sent.dtype.bytes_of(sent.cols) + returned.moved.dtype.bytes_of(returned.moved.cols)
    return ExpertChain(tuple(ops), (up, down), routing.rows, row_bytes)


def _readers(workload: Workload, name: str) -> list[Op]:
    return [op for op in workload.ops if any(read.made_by == name and read.what is Made.OUTPUT for read in op.reads)]


def _is_end(ops: list[Op]) -> bool:
    """Whether the last op adds up what a combine has brought back."""
    return len(ops) > 1 and ops[-2].shape.back


def _are_row_wise(ops: list[Op]) -> bool:
    """Whether all kernels are products of experts or row-wise."""
    kernels = (GroupedGemmShape, ElementwiseShape)
    return all(op.shape.compute is None or isinstance(op.shape.compute, kernels) for op in ops)


def fused_us(kernel: FusedExperts, system: System, chain: ExpertChain) -> float:
    """Return the time of one kernel for ``chain`` in us; every expert of a rank has the rows that the chain says."""
    rows = chain.products[0].rows
    padded = sum(ceil(each / kernel.block_rows) * kernel.block_rows for each in rows)
    weights = sum(product.n * product.k for product in chain.products)
    moved = sum(rows) * chain.row_bytes * (system.num_ranks - 1) / system.num_ranks
    seconds = (
        2 * padded * weights / kernel.flops_per_s,
        sum(each > 0 for each in rows) * weights * float(kernel.weight_bytes) / kernel.hbm_bytes_per_s,
        moved / system.fabric.link.achieved_bytes_per_s,
    )
    power = float(kernel.exponent)
    together: float = sum(each**power for each in seconds) ** (1 / power)
    return (kernel.start_ticks + system.num_ranks * kernel.rank_ticks) / TICKS_PER_US + 1e6 * together


def saved_us(kernel: FusedExperts, system: System, chain: ExpertChain) -> float:
    """Return the time in us that memory needs for the bytes of weights of the file that the kernel does not read."""
    used = sum(each > 0 for each in chain.products[0].rows)
    weights = used * sum(product.n * product.k for product in chain.products)
    spared = max(0.0, chain.products[0].right.mean_bytes - float(kernel.weight_bytes))
    return 1e6 * weights * spared / system.gpu.hbm.achieved_bytes_per_s


def reject_chain(implementation: Implementation, system: System, chain: ExpertChain) -> Rejection | None:
    """Why the kernel of ``implementation`` is not known for ``chain``, None if it is."""
    kernel, dtype = implementation.experts, chain.products[0].dtype
    assert kernel is not None, "it has such a kernel"
    if system.gpu.name not in implementation.gpus:
        known = ", ".join(implementation.gpus) or "no GPU"
    elif dtype not in implementation.dtypes:
        known = ", ".join(each.value for each in implementation.dtypes)
    elif not kernel.least_ranks <= system.num_ranks <= kernel.most_ranks:
        known = f"{kernel.least_ranks} to {kernel.most_ranks} GPUs"
    elif system.fabric.node_size not in (None, 0, system.num_ranks):
        known = "GPUs of one node"
    elif chain.tokens > (kernel.most_rows or chain.tokens):
        known = f"up to {kernel.most_rows:,} rows of a rank"
    else:
        return None
    return Rejection(Code.MGS530, f"its kernel for experts is not known here: it is known for {known}")
