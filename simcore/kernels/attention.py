"""Attention forward: blocks of queries and of keys, as in FlashAttention-2 and -3.

Each (batch, head, block of 128 queries) is a unit on one SM, 64 where there are no more queries. It walks over blocks
of 128 keys; with a causal mask it leaves out those that no query sees, so that units differ, and with a window those
before it:

    t_mma   = 2 * queries * 128 * (head_dim + value_dim) / (peak / S * mma)
    t_lat   = (ceil64(head_dim) + 128) / 64 * k_step
    t_exp   = queries * 128 / (16 * clock)
    t_unit  = max(tile + blocks of keys * (max(t_mma, t_lat) + t_exp), latency)
    T       = start + max(makespan of the units, bytes / achieved HBM rate, bytes through L2 / L2 rate)

The constants are those of the GEMM profile; a block costs as much where keys or queries fill it in part. Softmax stands
in series with the products, as if nothing hid it. Without mask, head_dim 128 and 16 Ki queries: H100 558 TFLOP/s,
FlashAttention-3 measured 621 (pytorch/benchmark#2391; 8 % mean error from 512 queries on), 740 at most by its paper
(arXiv 2407.08608); A100 237, FlashAttention-2 230 at most by its paper (arXiv 2307.08691). FlashAttention-4, which
computes exponentials on other units as well, is much faster on Blackwell. One query and few sequences look too slow:
neither are keys split among SMs (flash-decoding), nor query heads packed.

With ``attention`` in the profile of the GPU (``AttentionModel``; fitted to kernels of frameworks, docs/accuracy.md),
softmax and the products hide each other, and what a framework reads and writes stands in series with the blocks, which
have up to ``queries`` rows. Those of up to ``packed`` heads that share keys lie together: FlashAttention-3 always packs
sequences of several lengths (``should_pack_gqa``), TensorRT-LLM never. New keys and values pass memory three times,
since a kernel before this one reads them and writes them to the cache; MLA keeps what they are made of, which is small:

    t_block = max(t_mma, t_exp / softmax)
    T       = start + makespan of tile + blocks of keys * t_block + bytes / hbm + new positions * token

Up to 8 queries of a sequence (decode) are packed with those of the heads that share keys, 64 to a unit, and their keys
are dealt to all SMs (FlashDecoding; FlashAttention-3's PackGQA), at the achieved rate or at ``decode_hbm``:

    T = decode_start + decode_unit * ceil(units / S) + max(blocks of keys / S * decode_block, bytes / HBM rate)

TensorRT-LLM (``trtllm`` of the profile, ``by=trtllm`` of a call) packs up to ``decode_packed`` heads, and before
Blackwell only heads that share keys, where there are blocks of 128 keys for a fourth of the SMs, ``decode_least``
(``mayHavePerfGain`` of its decoderXQAImplJIT.cpp). All others take a kernel with a unit for each head, in which those
that share keys all read them, at the rate of its SM. Its threads read 2,048 elements of keys at a time. Where SMs are
left, 5 Mi elements of all heads and more are split among all, by all keys and not by those of a window, and fewer
where that is faster:

    t_read = bytes of keys of a head * S / decode_again
    T      = decode_start + max(ceil(heads / S) * (decode_alone + max(decode_first, t_read)), bytes / HBM rate)
    split  = decode_start + decode_split + max(decode_alone + heads / S * t_read, bytes / HBM rate)

Where values have other sizes than keys, ``mla`` of the profile has the constants, if it is there, and ``wide`` those of
heads over 256.

A group of tiles computes, by the rows of the moved tensor in its blocks: after an all_gather the queries of the rank
against the keys of the group, a partial result if these are not all; after an all_to_all all queries and keys of the
heads of the group; before an all_to_all the queries of the group against all keys. With a causal mask, frameworks deal
positions to ranks so that all see the same share: in stripes (Brandon et al., Striped Attention, arXiv 2311.09431), or
by one early and one late chunk for each rank (Llama 3, arXiv 2407.21783, section 3.3.2). A group that is a part then
counts each query as seeing the mean share of the keys of the group.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

from ...compiler.ir import (
    TICKS_PER_US,
    AttentionModel,
    AttentionShape,
    Gpu,
    OpCase,
    TileGroup,
    tile_cols,
    tile_rows,
)
from ...compiler.ir.operations.attention import TRTLLM
from .gemm import ROUNDING_TICKS, rounded_ticks
from .gemm_form import l2_bytes_per_s
from .work import KernelWork, WorkModel
from .working_set import hit_share

Q_ROWS = 128
SMALL_Q_ROWS = 64
KV_ROWS = 128
MAX_HEAD_DIM = 256  # wider heads have kernels of their own, whose constants are `wide` of a profile
MAX_WIDE_DIM = 512  # of those that these were fitted to
MAX_DECODE_QUERIES = 8
FIRST_ELEMENTS = 2048  # of keys, that 256 threads of TensorRT-LLM's kernel read in steps of 16 bytes
SPLIT_ELEMENTS = 5 << 20  # of keys of all heads, from which on it splits them, by the rows that it was fitted to
# Results of exp2 per clock and SM: NVIDIA CUDA Programming Guide, throughput of arithmetic instructions, compute
# capability 8.0 to 10.0; a quarter of the 64 lanes of a compute unit (AMD CDNA 3 ISA, transcendental instructions).
EXP_PER_CLOCK = 16


@dataclass(frozen=True, slots=True)
class EqualUnits:
    """``count`` equal units, each over so many ``rows`` of keys, backward of queries, for ``us``."""

    count: int
    rows: int
    us: float


@dataclass(frozen=True, slots=True)
class KernelTraffic:
    """Bytes that hit L2, are read from memory and written, at ``hbm_bytes_per_s`` or what the profile achieves."""

    l2_hit: int
    read: int
    written: int
    hbm_bytes_per_s: float = 0.0

    def us(self, gpu: Gpu) -> float:
        """The time in which memory and L2 serve it."""
        memory_us = (self.read + self.written) / (self.hbm_bytes_per_s or gpu.hbm.achieved_bytes_per_s) * 1e6
        return max(memory_us, (self.l2_hit + self.read + self.written) / l2_bytes_per_s(gpu) * 1e6)


@lru_cache(maxsize=8192)
def attention_work(gpu: Gpu, shape: AttentionShape, sms: int, accumulate: bool = False) -> KernelWork:
    """The kernel for ``shape`` on ``sms`` SMs; ``accumulate`` adds to what another kernel left of other keys.

    A kernel over some of the keys leaves the output in fp32 with the maximum and the sum of each row, and one that adds
    to such an output reads it first and rescales it (``AttentionShape.accumulator_bytes``); the rescaling itself is
    hidden, as it is in a kernel that walks over keys.

    Raises
    ------
    ValueError
        If a size or ``sms`` is not positive, ``kv_heads`` does not divide ``heads``, or the GPU has no peak for the
        element type.
    """
    check_sizes(gpu, shape, sms)
    model = attention_model(gpu, shape)
    # TensorRT-LLM runs the kernel of contexts where all keys are new, however few queries there are.
    decodes = shape.q_len <= MAX_DECODE_QUERIES and (shape.by != TRTLLM or shape.kv_len > shape.q_len)
    units = _units(gpu, model, shape) if model is None or not decodes else [_decode_units(gpu, model, shape)]
    traffic = _traffic(gpu, shape, units, sms)
    series_us = 0.0
    if model is not None:  # what is added up in fp32 was not measured, and is hidden as far as memory allows
        num_bytes = traffic.read + (0 if shape.partial else traffic.written + _cache_bytes(shape))
        series_us = num_bytes / (float(model.hbm_fraction) * gpu.hbm.peak_bytes_per_s) * 1e6
        series_us += 0 if shape.partial else shape.batch * shape.q_len * model.token_ticks / TICKS_PER_US
    if accumulate:
        traffic = replace(traffic, read=traffic.read + shape.accumulator_bytes)
    if model is not None and decodes:
        return _decode(gpu, model, shape, units[0], sms, traffic)
    label = f"attention {_q_block(model, shape)[0]}x{KV_ROWS}" + (" causal" if shape.causal else "")
    work = equal_units(gpu, units, sms, traffic, label, series_us)
    return work if model is None else replace(work, start_ticks=model.start_ticks)


def attention_model(gpu: Gpu, shape: AttentionShape) -> AttentionModel | None:
    """The constants of forward attention of ``shape``, None if the profile has none."""
    if shape.values is not None and gpu.mla is not None:
        return gpu.mla
    if shape.values is None and shape.head_dim > MAX_HEAD_DIM and not shape.in_keys and gpu.wide is not None:
        return gpu.wide  # fitted to keys and values apart
    return (gpu.trtllm if shape.by == TRTLLM else None) or gpu.attention


def _cache_bytes(shape: AttentionShape) -> int:
    """What a framework moves to have the new keys and values in its cache, before the kernel reads them there."""
    new = min(shape.q_len, shape.kv_len) if shape.values is None else 0
    return 2 * shape.dtype.bytes_of(shape.batch * shape.kv_heads * new * shape.key_cols)


def _decode_units(gpu: Gpu, model: AttentionModel, shape: AttentionShape) -> EqualUnits:
    """Few queries: those of heads that are packed lie together in blocks of 64; ``us`` is without overhead."""
    sharing = shape.heads // shape.kv_heads if _packs(gpu, model, shape) else 1
    blocks_of_keys, rows = -(-shape.keys_seen // KV_ROWS), shape.q_len * sharing
    count = shape.batch * shape.heads // sharing * -(-rows // SMALL_Q_ROWS)
    each_us = model.decode_block_ticks / TICKS_PER_US * shape.key_cols / 2 / KV_ROWS
    # No kernel is faster than its products.
    return EqualUnits(count, shape.keys_seen, blocks_of_keys * max(each_us, block_us(gpu, shape, SMALL_Q_ROWS, model)))


def _packs(gpu: Gpu, model: AttentionModel, shape: AttentionShape) -> bool:
    """Whether decode packs heads: no more than it can, and where it needs blocks of keys, heads that share enough."""
    sharing, needed = shape.heads // shape.kv_heads, model.decode_least_fraction * gpu.sms
    blocks = shape.batch * shape.kv_heads * max(1, shape.kv_len // KV_ROWS)
    return model.decode_packed is None or (
        sharing <= model.decode_packed and (not needed or (sharing > 1 and blocks >= needed))
    )


def _decode(
    gpu: Gpu, model: AttentionModel, shape: AttentionShape, units: EqualUnits, sms: int, traffic: KernelTraffic
) -> KernelWork:
    """The work of ``units`` whose blocks of keys are dealt to all SMs, or of a kernel with a unit for each head."""
    blocks, shares = units.count * -(-units.rows // KV_ROWS), shape.heads > shape.kv_heads
    label = f"attention {SMALL_Q_ROWS}x{KV_ROWS} split"
    if _packs(gpu, model, shape):
        body_us = max(1.0, blocks / sms) * units.us * units.count / blocks
        each_ticks = model.decode_unit_ticks if shares else model.decode_head_ticks or model.decode_unit_ticks
        traffic = replace(traffic, hbm_bytes_per_s=float(model.decode_hbm_fraction or 0) * gpu.hbm.peak_bytes_per_s)
    else:
        body_us, each_ticks, label = _alone_us(gpu, model, shape, sms, traffic), 0, "attention by head"
    work = equal_units(gpu, [EqualUnits(1, units.rows, body_us)], 1, traffic, label)
    return replace(
        work,
        num_units=min(sms, blocks),
        unit_ticks=work.unit_ticks + -(-units.count // sms) * each_ticks,
        start_ticks=model.decode_start_ticks,
    )


def _alone_us(gpu: Gpu, model: AttentionModel, shape: AttentionShape, sms: int, traffic: KernelTraffic) -> float:
    """Time of a kernel that has a unit for each head, each of which reads its keys at the rate of an SM.

    Whether it splits keys goes by the SMs that the GPU has, also where others hold some: more SMs are never slower.
    """
    heads = shape.batch * shape.heads
    start_us, first_us = model.decode_alone_ticks / TICKS_PER_US, model.decode_first_ticks / TICKS_PER_US
    rate = float(model.decode_again_fraction) * gpu.hbm.peak_bytes_per_s / gpu.sms
    read_us = shape.dtype.bytes_of(shape.keys_seen * shape.key_cols) / rate * 1e6
    first_us *= min(1.0, shape.keys_seen * shape.key_cols / 2 / FIRST_ELEMENTS)
    whole_us = -(-heads // sms) * (start_us + max(first_us, read_us))
    if heads > gpu.sms:
        return whole_us
    split_us = model.decode_split_ticks / TICKS_PER_US + max(start_us + read_us * heads / sms, traffic.us(gpu))
    return split_us if heads * shape.kv_len * shape.key_cols >= 2 * SPLIT_ELEMENTS else min(whole_us, split_us)


def equal_units(
    gpu: Gpu, units: Sequence[EqualUnits], sms: int, traffic: KernelTraffic, label: str, series_us: float = 0.0
) -> KernelWork:
    """The work of ``units`` as equal ones that end when those and ``series_us`` would, or when their traffic does."""
    body_us = max(makespan_us([(each.count, each.us) for each in units], sms) + series_us, traffic.us(gpu))
    total = sum(each.count for each in units)
    waves = -(-total // sms)
    return KernelWork(
        num_units=total if waves == 1 else waves * sms,
        unit_ticks=max(ROUNDING_TICKS, rounded_ticks(body_us / waves)),
        start_ticks=gpu.gemm.start_ticks,
        waves=waves,
        l2_hit_bytes=traffic.l2_hit,
        hbm_read_bytes=traffic.read,
        hbm_write_bytes=traffic.written,
        label=label,
    )


def makespan_us(units: Sequence[tuple[int, float]], sms: int) -> float:
    """Time of (count, us) units on ``sms`` SMs, heaviest first, by a lower bound; exact for equal units.

    It is no less than the mean load of an SM; and of the j * sms + 1 heaviest units one SM has j + 1, hence no less
    than (j + 1) times the lightest of them (Graham, SIAM J. Appl. Math. 17, 1969). Causal units, dealt one by one to
    132 SMs, end 6 % later on the mean with 2 to 4 blocks of queries (at worst 33 %), 2 % with 6 to 16, 0.3 % with more.
    """
    mean = sum(count * us for count, us in units) / sms
    longest, covered = 0.0, 0
    for count, us in sorted(units, key=lambda unit: -unit[1]):
        covered += count
        longest = max(longest, -(-covered // sms) * us)
    return max(mean, longest)


def check_sizes(gpu: Gpu, shape: AttentionShape, sms: int) -> None:
    """Raise ValueError where no kernel has such sizes, or ``gpu`` no peak for their type."""
    sizes = (shape.batch, shape.heads, shape.kv_heads, shape.q_len, shape.kv_len, shape.head_dim, sms)
    if min(sizes) < 1:
        raise ValueError(f"attention needs positive sizes and SMs, got {shape} on {sms}")
    if shape.heads % shape.kv_heads:
        raise ValueError(f"{shape.kv_heads} heads of keys cannot serve {shape.heads} heads of queries evenly")
    if gpu.peak(shape.dtype) <= 0:
        raise ValueError(f"{gpu.name} has no peak rate for {shape.dtype.value}")


def _q_block(model: AttentionModel | None, shape: AttentionShape) -> tuple[int, int]:
    """The rows of a block of queries, and the heads whose queries lie together in it."""
    sharing = shape.heads // shape.kv_heads
    sharing = 1 if model is None or sharing > model.packed else sharing
    rows, most = shape.q_len * sharing, Q_ROWS if model is None else model.queries
    return SMALL_Q_ROWS if rows <= SMALL_Q_ROWS else min(most, Q_ROWS) if rows <= Q_ROWS else most, sharing


def _units(gpu: Gpu, model: AttentionModel | None, shape: AttentionShape) -> list[EqualUnits]:
    """The units by block of queries; without a mask all are equal."""
    q_rows, sharing = _q_block(model, shape)
    each_us = block_us(gpu, shape, q_rows, model)
    num_heads, num_blocks = shape.batch * shape.heads // sharing, -(-shape.q_len * sharing // q_rows)
    if shape.causal:
        seen = [(num_heads * blocks, keys) for blocks, keys in seen_by_blocks(shape, q_rows, sharing)]
    else:
        seen = [(num_heads * num_blocks, shape.kv_len)]
    tile_us = (gpu.gemm.tile_ticks if model is None else model.unit_ticks) / TICKS_PER_US
    # No unit ends before its first operands are here.
    latency_us = (gpu.l2.latency_ticks + gpu.hbm.latency_ticks) / TICKS_PER_US
    return [EqualUnits(count, rows, max(latency_us, tile_us + -(-rows // KV_ROWS) * each_us)) for count, rows in seen]


def seen_by_blocks(shape: AttentionShape, q_rows: int, sharing: int) -> Iterator[tuple[int, int]]:
    """Yield (blocks of queries, keys that the last of them sees) of each group that walks over as many blocks of keys.

    A block has ``q_rows`` rows, ``sharing`` of each query; ``shape`` is causal.
    """
    rows, before = shape.q_len * sharing, shape.kv_len - shape.q_len
    queries = min(-(-q_rows // sharing), shape.q_len)
    most = shape.kv_len if shape.window is None else queries + shape.window - 1
    done, keys = 0, max(0, -(-(queries + before) // KV_ROWS)) * KV_ROWS
    while done * q_rows < rows:
        until = -(-rows // q_rows) if keys >= shape.kv_len else max(0, sharing * (keys - before) // q_rows)
        if until > done:
            last = -(-min(until * q_rows, rows) // sharing) + before
            yield until - done, min(most, max(0, last))
        done, keys = max(done, until), keys + KV_ROWS


def block_us(gpu: Gpu, shape: AttentionShape, q_rows: int, model: AttentionModel | None = None) -> float:
    """Time of one block of queries against one of keys."""
    pairs, fraction = q_rows * KV_ROWS, (gpu.gemm if model is None else model).mma_fraction
    rate = gpu.peak(shape.dtype) / gpu.sms * float(fraction)
    math_us, exp_us = 2 * pairs * shape.product_cols / rate * 1e6, pairs / (EXP_PER_CLOCK * gpu.clock_hz) * 1e6
    if model is not None:
        return max(math_us, exp_us / float(model.softmax_fraction))
    steps = -(-shape.head_dim // 64) + KV_ROWS // 64
    return max(math_us, steps * gpu.gemm.k_step_ticks / TICKS_PER_US) + exp_us


def _traffic(gpu: Gpu, shape: AttentionShape, units: Sequence[EqualUnits], sms: int) -> KernelTraffic:
    """Q is read and O written once. The units of one head of keys run side by side and share what they read.

    Where they take several passes over the SMs, later ones hit as far as L2 holds the heads that are at work together.
    """
    key_bytes = shape.dtype.bytes_of(shape.key_cols)
    queries = shape.dtype.bytes_of(shape.batch * shape.heads * shape.q_len * shape.head_dim)
    per_head, num_heads = shape.keys_seen * key_bytes, shape.batch * shape.kv_heads
    requested = sum(each.count * each.rows for each in units) * key_bytes
    units_per_head = sum(each.count for each in units) // num_heads
    at_work = min(num_heads, -(-sms // units_per_head))
    missed = 1 - hit_share(at_work * per_head, gpu.l2.instances * gpu.l2.size_bytes)
    passes = -(-units_per_head // sms)
    again = math.ceil(num_heads * per_head * (passes - 1) * missed)
    keys = min(requested, num_heads * per_head + again)
    return KernelTraffic(
        requested - keys, queries + keys, shape.accumulator_bytes if shape.partial else shape.output_bytes
    )


def _part(scenario: OpCase, whole: AttentionShape, group: TileGroup) -> AttentionShape:
    """The heads, queries and keys of ``group``."""
    workload, n = scenario.shape, scenario.num_ranks
    rows = sum(region.rows.size for region in group.regions)
    all_rows = sum(tile_rows(workload, n, owner) for owner in range(n))
    after = workload.pattern.consumes
    width, of = (
        (group.k.size, workload.moved_tensor.cols) if after else (group.regions[0].cols.size, tile_cols(workload))
    )
    part = replace(whole, heads=whole.heads * width // of, kv_heads=whole.kv_heads * width // of)
    if workload.pattern.gathers:
        keys = -(-rows // whole.batch)
        # All queries of the sequence, those of other ranks too, see as many on the mean as those of this rank.
        every = replace(whole, q_len=whole.kv_len)
        return replace(part, kv_len=_seen(every, keys), causal=False, partial=rows < all_rows)
    if rows == all_rows:
        return part
    seen = _seen(whole, whole.kv_len)
    return replace(part, q_len=-(-rows // whole.batch), kv_len=seen, causal=False, window=None)


def _seen(whole: AttentionShape, keys: int) -> int:
    """How many of ``keys`` a query of ``whole`` sees on the mean, rounded up."""
    return -(-keys * whole.pairs // (whole.q_len * whole.kv_len))


def least_sm_ticks(scenario: OpCase, shape: AttentionShape, share: Fraction) -> int:
    """Both products of each pair of a query and a key at the rate of the SMs, with softmax hidden behind them.

    Kernels are written that hide it (FlashAttention-3 and -4), and on long sequences beat the form above.
    """
    gpu, cuts_queries = scenario.gpu, scenario.shape.pattern.produces
    # Of a backward pass too, which has the constants of the GEMM profile.
    fraction = max(each.mma_fraction for each in (gpu.gemm, attention_model(gpu, shape)) if each is not None)
    per_pair = 2 * shape.product_cols / (gpu.peak(shape.dtype) / gpu.sms * float(fraction)) * 1e6
    heads, queries = shape.batch * shape.heads, int(shape.q_len * share) if cuts_queries else shape.q_len
    # A share of keys that a mask hides in part is rounded by less than one key.
    rounded = 0 if cuts_queries or share == 1 else queries
    us = float(max(Fraction(0), shape.pairs * share - rounded)) * heads * per_pair
    return math.floor(us * TICKS_PER_US * (1 - 1e-6))


MODEL = WorkModel(AttentionShape, attention_work, _part, least_sm_ticks)
