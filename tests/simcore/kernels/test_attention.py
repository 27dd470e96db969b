"""Attention kernels in blocks."""

import heapq
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magus.compiler.ir import TICKS_PER_SECOND, AttentionModel, AttentionShape, DType, Gpu
from magus.simcore.kernels.attention import attention_work, makespan_us, seen_by_blocks
from magus.simcore.kernels.gemm import ROUNDING_TICKS, ticks_for
from tests.helpers.scenarios.scenarios import T, h100, mi300x, ticks
from tests.helpers.some import some

DT = DType.BF16
shapes = st.builds(
    lambda batch, group, kv_heads, q_len, kv_len, dim, causal, values, window: AttentionShape(
        batch,
        group * kv_heads,
        kv_heads,
        q_len,
        kv_len,
        dim,
        DT,
        causal,
        values=values,
        window=window if causal else None,
    ),
    *(st.integers(1, 4), st.integers(1, 8), st.integers(1, 8), st.integers(1, 3000), st.integers(1, 3000)),
    *(st.integers(1, 256), st.booleans(), st.none() | st.integers(1, 256), st.none() | st.integers(1, 4000)),
)


@cache
def fitted() -> Gpu:
    """An H100 with constants of attention."""
    model = AttentionModel(
        start_ticks=ticks(12),
        mma_fraction=Fraction(80, 100),
        softmax_fraction=Fraction(50, 100),
        hbm_fraction=Fraction(40, 100),
        unit_ticks=ticks(0.5),
        queries=256,
        decode_start_ticks=ticks(8),
        decode_unit_ticks=ticks(2),
        decode_block_ticks=ticks(1.5),
    )
    return replace(h100(), attention=model)


def packing() -> Gpu:
    """The same, whose kernel packs heads that share keys and whose framework takes 1 ns for each position."""
    model = fitted().attention
    assert model is not None
    return replace(fitted(), attention=replace(model, queries=128, packed=128, token_ticks=ticks(0.001)))


def square(length: int, batch: int = 1, *, causal: bool = False, head_dim: int = 128) -> AttentionShape:
    return AttentionShape(batch, 16, 16, length, length, head_dim, DT, causal)


gpus = st.sampled_from((mi300x(), h100(), fitted(), packing()))


def tflops(gpu: Gpu, shape: AttentionShape) -> float:
    return shape.flops / attention_work(gpu, shape, gpu.sms).alone_ticks * TICKS_PER_SECOND / 1e12


# pytorch/benchmark#2391: FlashAttention-3, forward, fp16 on H100, no mask, 16 heads of 128, in TFLOP/s.
MEASURED = {
    (512, 32): 430.3,
    (1024, 16): 517.1,
    (2048, 8): 565.5,
    (4096, 4): 590.2,
    (8192, 2): 614.2,
    (16384, 1): 620.7,
}


def test_rates_are_near_those_measured_on_h100() -> None:
    errors = [abs(tflops(h100(), square(*each)) / rate - 1) for each, rate in MEASURED.items()]

    assert max(errors) < 0.16
    assert sum(errors) / len(errors) < 0.09


def test_the_best_rate_is_near_that_of_flash_attention_2_on_a100() -> None:
    # FlashAttention-2, arXiv 2307.08691: up to 230 of 312 TFLOP/s forward; the GEMM constants are those of the library.
    gemm = replace(h100().gemm, mma_fraction=Fraction("0.946"), tile_ticks=ticks(3.39), k_step_ticks=ticks(0.229))
    gpu = replace(h100(), sms=108, clock_hz=1_410_000_000, peak_flops=((DT, 312 * T),), gemm=gemm)

    assert tflops(gpu, square(16384)) == pytest.approx(230, rel=0.05)


def test_one_unit_by_hand() -> None:
    gpu = h100()
    work = attention_work(gpu, AttentionShape(1, 1, 1, 128, 256, 128, DT, False), gpu.sms)
    math_us = 4 * 128 * 128 * 128 / (989e6 / 132 * 0.801)
    exp_us = 128 * 128 / (16 * 1980)

    assert (work.num_units, work.waves, work.label) == (1, 1, "attention 128x128")
    assert work.unit_ticks == pytest.approx(ticks(0.879 + 2 * (math_us + exp_us)), abs=ROUNDING_TICKS)
    assert (work.hbm_read_bytes, work.hbm_write_bytes) == (128 * 128 * 2 * (1 + 4), 128 * 128 * 2)
    assert work.l2_hit_bytes == 0


def test_few_queries_take_small_blocks_that_latency_bounds() -> None:
    gpu = h100()
    work = attention_work(gpu, AttentionShape(1, 8, 8, 1, 4096, 128, DT, True), gpu.sms)
    exp_us = 64 * 128 / (16 * 1980)

    assert (work.num_units, work.label) == (8, "attention 64x128 causal")
    assert work.unit_ticks == pytest.approx(ticks(0.879 + 32 * (max(0.7, 4 * 0.092) + exp_us)), rel=0.01)


def test_a_fitted_unit_by_hand() -> None:
    work = attention_work(fitted(), AttentionShape(1, 1, 1, 256, 256, 128, DT, False), 132)
    math_us, softmax_us = 4 * 256 * 128 * 128 / (989e6 / 132 * 0.8), 256 * 128 / (16 * 1980 * 0.5)
    memory_us = 2 * 128 * 256 * (2 + 3 * 2) / (0.4 * 3.35e6)  # keys and values: read, into the cache, and from it

    assert math_us > softmax_us and work.label == "attention 256x128"
    assert (work.num_units, work.start_ticks) == (1, ticks(12))
    assert work.unit_ticks == pytest.approx(ticks(0.5 + 2 * math_us + memory_us), abs=ROUNDING_TICKS)


def test_queries_of_heads_that_share_keys_lie_in_one_block() -> None:
    shape = AttentionShape(1, 8, 1, 32, 32, 128, DT, True)  # 256 rows: two blocks of 16 queries
    work = attention_work(packing(), shape, 132)
    math_us, memory_us = 4 * 128**3 / (989e6 / 132 * 0.8), 2 * 128 * 32 * (2 * 8 + 3 * 2) / (0.4 * 3.35e6)

    assert work.num_units == 2
    assert work.unit_ticks == pytest.approx(ticks(0.5 + math_us + memory_us + 0.032), abs=ROUNDING_TICKS)
    assert attention_work(fitted(), shape, 132).num_units == 8


@given(st.integers(1, 700), st.integers(1, 700), st.integers(1, 12), st.none() | st.integers(1, 900))
def test_blocks_walk_over_the_keys_that_their_queries_see(
    queries: int, keys: int, sharing: int, window: int | None
) -> None:
    shape = AttentionShape(1, sharing, 1, queries, keys, 64, DT, True, window=window)
    lasts = [min(-(-(start + 128) // sharing), queries) for start in range(0, queries * sharing, 128)]
    span = min(-(-128 // sharing), queries)
    seen = [max(0, last + keys - queries) for last in lasts]
    expected = [-(-(each if window is None else min(each, span + window - 1)) // 128) for each in seen]
    groups = list(seen_by_blocks(shape, 128, sharing))

    assert sum(count for count, _ in groups) == len(lasts)
    assert sum(count * -(-each // 128) for count, each in groups) == sum(expected)


def test_few_queries_are_packed_and_their_keys_dealt_to_all_sms() -> None:
    gpu = fitted()
    shape = AttentionShape(4, 32, 8, 1, 12800, 128, DT, True)  # 32 heads of keys of 100 blocks: 3200 blocks
    work = attention_work(gpu, shape, 100)

    assert (work.num_units, work.waves, work.start_ticks) == (100, 1, ticks(8))
    assert work.unit_ticks == pytest.approx(ticks(2 + max(32 * 1.5, 2 * 4 * 8 * 12800 * 256 / 3e6)), rel=0.01)
    assert (work.label, work.l2_hit_bytes) == ("attention 64x128 split", 0)
    assert attention_work(gpu, replace(shape, batch=1, kv_len=100), 132).num_units == 8
    assert "split" not in attention_work(gpu, replace(shape, q_len=9), 132).label


def by_trtllm() -> Gpu:
    """An H100 with constants of TensorRT-LLM: it packs up to 32 heads, and more read their keys at twice the rate."""
    model = fitted().attention
    assert model is not None
    again = replace(model, queries=64, decode_packed=32, decode_again_fraction=Fraction(2))
    again = replace(again, decode_head_ticks=ticks(0.5), decode_alone_ticks=ticks(1.25))
    return replace(fitted(), trtllm=replace(again, decode_first_ticks=ticks(0.5), decode_split_ticks=ticks(14)))


@pytest.mark.parametrize(("heads", "own_us"), [(32, 2), (1, 0.5)])
def test_trtllm_packs_as_many_heads_as_it_can(heads: int, own_us: float) -> None:
    gpu, shape = by_trtllm(), AttentionShape(4, heads, 1, 1, 12800, 128, DT, True, by="trtllm")
    work = attention_work(gpu, shape, 100)
    keys = 2 * 4 * 12800 * 256

    assert work.unit_ticks == pytest.approx(ticks(own_us + max(4 * 1.5, keys / 3e6)), rel=0.01)
    assert work.hbm_read_bytes == 2 * 4 * heads * 128 + keys


@pytest.mark.parametrize(
    ("batch", "keys", "us"),
    [
        (22, 2, 8 * (1.25 + 0.5 / 8)),  # 1,056 heads are 8 to an SM, and an eighth of 2,048 elements
        (22, 16, 8 * 1.75),
        (22, 12800, 8 * (1.25 + 12800 * 512 * 132 / 6.7e6)),
        (2, 426, 1.25 + 426 * 512 * 132 / 6.7e6),  # 96 heads, 5 Mi elements: from 427 keys on they are split
        (2, 427, 14 + 1.25 + 427 * 512 * 96 / 6.7e6),
    ],
)
def test_more_heads_than_trtllm_packs_all_read_their_keys(batch: int, keys: int, us: float) -> None:
    """One reads them at the rate of its SM, 128 columns of keys and of values."""
    gpu, shape = by_trtllm(), AttentionShape(batch, 48, 1, 1, keys, 128, DT, True, by="trtllm")
    work = attention_work(gpu, shape, 132)

    assert work.unit_ticks == pytest.approx(ticks(us), rel=0.001)
    assert (work.label, work.start_ticks) == ("attention by head", ticks(8))
    assert work.hbm_read_bytes == 2 * batch * (48 * 128 + keys * 256)


def test_a_window_saves_reading_keys_and_not_splitting_them() -> None:
    gpu, shape = by_trtllm(), AttentionShape(2, 48, 1, 1, 427, 128, DT, True, by="trtllm", window=100)
    work = attention_work(gpu, shape, 132)

    assert work.unit_ticks == pytest.approx(ticks(14 + 1.25 + 100 * 512 * 96 / 6.7e6), rel=0.001)


def test_the_keys_of_a_lone_head_are_split_where_that_is_faster() -> None:
    model = by_trtllm().trtllm
    assert model is not None
    gpu = replace(by_trtllm(), trtllm=replace(model, decode_least_fraction=Fraction(1, 4)))
    work = attention_work(gpu, AttentionShape(1, 1, 1, 1, 32768, 128, DT, True, by="trtllm"), 132)

    assert ticks(14) < work.unit_ticks < ticks(21)


@pytest.mark.parametrize(("heads", "keys"), [(48, 1000), (128, 1000), (128, 300), (132, 1000), (133, 1000)])
def test_whether_keys_are_split_goes_by_the_sms_of_the_gpu(heads: int, keys: int) -> None:
    """A kernel does not see which SMs others hold, and none is faster on fewer."""
    gpu, shape = by_trtllm(), AttentionShape(1, heads, 1, 1, keys, 128, DT, True, by="trtllm")
    times = [attention_work(gpu, shape, sms).alone_ticks for sms in range(1, gpu.sms + 1)]

    assert gpu.sms == 132 and all(more <= fewer for fewer, more in some(list(pairwise(times))))


def test_heads_over_256_have_constants_of_their_own() -> None:
    model = fitted().attention
    assert model is not None
    gpu = replace(by_trtllm(), wide=replace(model, start_ticks=ticks(99), decode_start_ticks=ticks(98)))
    shape = AttentionShape(4, 8, 1, 512, 512, 512, DT, True)

    for by in ("", "trtllm"):
        wide = replace(shape, by=by)
        assert attention_work(gpu, wide, 132).start_ticks == ticks(99)
        assert attention_work(gpu, replace(wide, q_len=1), 132).start_ticks == ticks(98)
        assert attention_work(gpu, replace(wide, head_dim=256), 132).start_ticks == ticks(12)
    assert attention_work(by_trtllm(), shape, 132).start_ticks == ticks(12)
    assert attention_work(gpu, replace(shape, in_keys=True), 132).start_ticks == ticks(12)


@pytest.mark.parametrize(("batch", "keys", "packs"), [(1, 128, False), (33, 2, True), (32, 2, False), (3, 1408, True)])
def test_trtllm_packs_no_heads_where_too_few_blocks_of_keys_are_there(batch: int, keys: int, packs: bool) -> None:
    """It does from 33 blocks of 128 keys on for 132 SMs, also where only a window of the keys is read."""
    model = by_trtllm().trtllm
    assert model is not None
    gpu = replace(by_trtllm(), trtllm=replace(model, decode_least_fraction=Fraction(1, 4)))
    for window in (None, 100):
        shape = AttentionShape(batch, 16, 1, 1, keys, 128, DT, True, by="trtllm", window=window)
        packed, found = (attention_work(each, shape, 132) for each in (by_trtllm(), gpu))
        assert (found == packed) is packs
        assert found.start_ticks == packed.start_ticks and found.hbm_read_bytes == packed.hbm_read_bytes


def test_trtllm_takes_its_kernel_for_contexts_where_all_keys_are_new() -> None:
    shape = AttentionShape(4, 8, 1, 1, 1, 128, DT, True, by="trtllm")

    assert attention_work(by_trtllm(), shape, 132).start_ticks == ticks(12)
    assert attention_work(by_trtllm(), replace(shape, kv_len=2), 132).start_ticks == ticks(8)
    assert attention_work(by_trtllm(), replace(shape, by=""), 132).start_ticks == ticks(8)


def test_a_causal_mask_halves_long_sequences_and_the_longest_unit_decides_short_ones() -> None:
    long = [attention_work(h100(), square(16384, 4, causal=mask), 132).body_ticks for mask in (True, False)]
    short = [attention_work(h100(), square(1024, causal=mask), 132).body_ticks for mask in (True, False)]

    assert long[0] == pytest.approx(long[1] / 2, rel=0.02)
    assert short[0] == short[1]


def test_heads_that_share_keys_read_them_once() -> None:
    shape = AttentionShape(2, 32, 4, 2048, 2048, 128, DT, False)
    work = attention_work(h100(), shape, 132)

    assert work.hbm_read_bytes == 2 * 128 * 2048 * (2 * 32 + 2 * 2 * 4)
    assert work.hbm_read_bytes + work.l2_hit_bytes == 2 * 128 * 2048 * (2 * 32 + 2 * 32 * 2 * 16)


def test_keys_that_do_not_fit_l2_are_read_in_every_pass() -> None:
    # 4 Mi keys of 256 bytes, twice, are 2 GiB; 32768 / 128 units on 132 SMs are two passes.
    shape = AttentionShape(1, 1, 1, 32768, 1 << 22, 128, DT, False)
    work = attention_work(h100(), shape, 132)

    assert work.hbm_read_bytes == 32768 * 256 + 2 * (2 << 30)


@given(gpus, shapes, st.integers(1, 132))
def test_math_and_compulsory_traffic_bound_it_from_below(gpu, shape, sms) -> None:  # type: ignore[no-untyped-def]
    work = attention_work(gpu, shape, sms)
    queries = shape.batch * shape.heads * shape.q_len * 2
    keys = shape.batch * shape.kv_heads * shape.keys_seen * (shape.head_dim + shape.value_dim) * 2

    assert work.num_units * work.unit_ticks >= shape.flops * gpu.sms * TICKS_PER_SECOND // gpu.peak(DT)
    assert work.hbm_read_bytes >= queries * shape.head_dim + keys
    assert work.hbm_write_bytes == queries * shape.value_dim
    assert work.l2_hit_bytes >= 0
    assert work.body_ticks >= ticks_for(work.hbm_read_bytes + work.hbm_write_bytes, gpu.hbm.achieved_bytes_per_s)
    assert (work.waves - 1) * sms < work.num_units <= work.waves * sms


@given(gpus, shapes, st.integers(1, 131))
def test_it_grows_with_every_size_and_shrinks_with_sms(gpu, shape, sms) -> None:  # type: ignore[no-untyped-def]
    work = attention_work(gpu, shape, sms)
    rounding = 2 * (work.waves + 1) * ROUNDING_TICKS
    larger = [
        replace(shape, batch=shape.batch + 1),
        replace(shape, heads=shape.heads + shape.kv_heads),
        replace(shape, kv_len=shape.kv_len + 1),
        replace(shape, head_dim=shape.head_dim + 1),
        replace(shape, causal=False),
    ]

    assert attention_work(gpu, shape, sms + 1).alone_ticks <= work.alone_ticks + rounding
    for each in larger:
        assert attention_work(gpu, each, sms).alone_ticks >= work.alone_ticks - rounding


def heaviest_first(units: list[tuple[int, float]], sms: int) -> float:
    """The makespan when every unit goes to the SM that is free first, the heaviest units first."""
    free = [0.0] * sms
    for count, us in sorted(units, key=lambda unit: -unit[1]):
        for _ in range(count):
            heapq.heapreplace(free, free[0] + us)
    return max(free)


@given(st.lists(st.tuples(st.integers(1, 40), st.floats(0.5, 50)), min_size=1, max_size=8), st.integers(1, 40))
def test_heaviest_first_ends_between_the_makespan_and_the_bound_of_graham(
    units: list[tuple[int, float]], sms: int
) -> None:
    bound, reached = makespan_us(units, sms), heaviest_first(units, sms)

    assert bound <= reached * (1 + 1e-9)
    assert reached <= bound * (2 - 1 / sms + 1e-9)  # holds for any units; causal ones are below


@pytest.mark.parametrize("heads", [1, 8, 16, 40, 128])
@pytest.mark.parametrize("blocks", [4, 16, 64])
def test_causal_units_heaviest_first_nearly_reach_the_makespan(heads: int, blocks: int) -> None:
    units = [(heads, 1.0 + 2.0 * block) for block in range(1, blocks + 1)]

    assert heaviest_first(units, 132) == pytest.approx(makespan_us(units, 132), rel=0.1)


def test_equal_units_go_in_rounds() -> None:
    assert makespan_us([(264, 2.0)], 132) == 4.0
    assert makespan_us([(265, 2.0)], 132) == 6.0


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="positive"):
        attention_work(h100(), replace(square(8), kv_len=0), 8)
    with pytest.raises(ValueError, match="evenly"):
        attention_work(h100(), replace(square(8), kv_heads=3), 8)
    with pytest.raises(ValueError, match="no peak"):
        attention_work(h100(), replace(square(8), dtype=DType.FP32), 8)


@pytest.mark.parametrize(("queries", "keys", "window"), [(7, 7, 3), (5, 9, 4), (9, 5, 2), (1, 20, 6), (6, 6, 50)])
def test_pairs_in_a_window_are_those_of_a_mask(queries: int, keys: int, window: int) -> None:
    shape = AttentionShape(1, 1, 1, queries, keys, 64, DT, True, window=window)
    last = [row + keys - queries for row in range(queries)]

    assert shape.pairs == sum(max(0, 1 + end - max(0, end - window + 1)) for end in last)


@pytest.mark.parametrize("queries", [1, 4096])
def test_a_window_is_never_slower(queries: int) -> None:
    whole = AttentionShape(8, 16, 8, queries, 4096, 128, DT, True)
    times = [attention_work(h100(), replace(whole, window=keys), h100().sms).alone_ticks for keys in (128, 1024, 4096)]

    assert times[0] < times[1] <= times[2] == attention_work(h100(), whole, h100().sms).alone_ticks
