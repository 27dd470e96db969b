"""What is said of results outside the region in which a profile was fitted."""

from dataclasses import replace

import pytest

from magus.advisor.answer.extrapolation import outside_calibration, outside_of_plan
from magus.compiler import compile_text
from magus.compiler.ir import DType, OpCase
from magus.compiler.planning.plan import build_plan
from magus.compiler.resolve.schedules.from_text import SERIAL, resolve_schedule

TEXT = """
use "{vendor}/{gpu}"
system node {{ gpus {ranks} x {name}; fabric {fabric} }}
workload w on node {{
  x = tensor {dtype}[{m}, 4096] shard rows
  w = tensor {dtype}[4096, {n}] shard cols
  y = gemm(all_gather(x), w)
}}
"""
NVIDIA = "switch(nvswitch, link=nvlink)"


def scenario(
    m: int = 8192, n: int = 8192, dtype: str = "bf16", gpu: str = "h100", ranks: int = 8, fabric: str = NVIDIA
) -> OpCase:
    vendor = "amd" if gpu.startswith("mi") else "nvidia"
    text = TEXT.format(vendor=vendor, gpu=gpu, name=gpu.upper(), ranks=ranks, fabric=fabric, dtype=dtype, m=m, n=n)
    return compile_text(text).scenario().case


def without_fp8(of: OpCase) -> OpCase:
    """The same on a GPU without constants of fp8."""
    gpu = replace(of.gpu, gemm=replace(of.gpu.gemm, fp8=None), calibrated=replace(of.gpu.calibrated, gemm_types=()))
    return replace(of, system=replace(of.system, gpu=gpu))


def said(of: OpCase, schedule: str = "serial") -> tuple[str, ...]:
    return outside_calibration(of, (resolve_schedule(of, schedule),))


def test_inside_nothing_is_said() -> None:
    assert said(scenario()) == ()
    assert said(scenario(dtype="fp16")) == () == said(scenario(dtype="fp8"))
    assert said(scenario(), "uniform_fused_1d(chunks=16, engine=sm(16))") == ()


def test_types_with_scales_have_their_own_region_and_narrower_weights_none() -> None:
    assert said(scenario(dtype="fp8_block")) == () == said(scenario(dtype="nvfp4", gpu="b200"))
    (of_mxfp8,) = said(scenario(dtype="mxfp8", gpu="b200"))
    assert of_mxfp8 == "mxfp8 GEMM: the constants of B200 were fitted to fp8"
    of = scenario(dtype="fp8")
    assert of.shape.gemm is not None
    narrow = replace(of, shape=replace(of.shape, gemm=replace(of.shape.gemm, weights=DType.MXFP4)))
    assert said(narrow) == (
        "fp8 GEMM with weights of mxfp4: the constants of H100 were fitted to weights of the type of the input",
        "H100 has no products of mxfp4: kernels widen such weights to fp8 on the way, whose time is not counted",
    )
    own = replace(narrow, system=replace(narrow.system, gpu=scenario(gpu="b200").gpu))
    assert not any("has no products" in each for each in said(own))


def test_every_kernel_is_judged_by_its_shape() -> None:
    wide = scenario(m=65536, n=128)

    assert said(wide) == (
        "GEMM of 65536 x 16 x 4096: the constants of H100 were fitted for m 1..32768, n 32..65536, k 32..65536",
    )
    (parts,) = said(wide, "hetero_fused_1d(chunks=8)")
    assert parts.startswith("GEMM of 8192 x 16 x 4096 and 1 other shape: ")


@pytest.mark.parametrize(
    ("of", "sentence"),
    [
        (without_fp8(scenario(dtype="fp8")), "fp8 GEMM: the constants of H100 were fitted to bf16"),
        (
            without_fp8(scenario(gpu="h200", dtype="fp8")),
            "fp8 GEMM: the constants of H200 (from a sibling) were fitted to bf16",
        ),
        (scenario(m=131072, n=2048), "1 GiB moved: collectives of H100 were fitted from 512 B to 512 MiB"),
        (scenario(m=8190, n=8190, ranks=6), "6 GPUs: collectives of H100 were fitted on 2, 4, 8"),
        (scenario(fabric="rails(nvswitch, link=nvlink, node=4, nic=nvlink)"), "between nodes"),
    ],
)
def test_types_sizes_and_numbers_of_gpus_are_named(of: OpCase, sentence: str) -> None:
    assert any(sentence in each for each in said(of)), said(of)


@pytest.mark.parametrize(
    ("schedule", "sentence"),
    [
        ("serial(engine=sm(2))", "copies by 2 SMs: the rate of H100 was fitted for 4..24 SMs"),
        ("serial(engine=sm(32))", "copies by 32 SMs"),
        ("shard_p2p(kernel=persistent)", "no constant is fitted to persistent kernels"),
        ("shard_p2p(engine=dma(7, prelaunched))", "what commands cost that were written before is not known of H100"),
        (
            "hetero_fused_1d(chunks=16, engine=dma(2, channels))",
            "set up a copy while they move another (dma(2, channels))",
        ),
        ("hetero_unfused_1d(chunks=16, streams=2)", "beside each other in several streams"),
    ],
)
def test_schedules_that_do_what_nobody_measured_are_named(schedule: str, sentence: str) -> None:
    (only,) = said(scenario(), schedule)

    assert sentence in only


def test_one_kernel_for_all_sums_of_a_collective_is_not_measured() -> None:
    text = 'use "nvidia/h100"\nsystem s { gpus 4 x H100; fabric switch(nvswitch, link=nvlink) }\n'
    text += "workload w on s { x = tensor bf16[1024, 1024]; y = reduce_scatter(x) }"
    alone = compile_text(text).scenario().case
    sentence = "one kernel that sums whatever copy engines have brought is not measured"

    assert sentence in said(alone, "ring(chunks=4, engine=dma(3), kernel=persistent)")
    assert sentence not in said(alone, "ring(chunks=4, engine=dma(3))")


def test_a_profile_that_does_not_say_where_it_was_fitted_has_no_outside() -> None:
    amd = scenario(gpu="mi300x", fabric="full_mesh(xgmi)", m=1 << 20, n=128)

    assert said(amd, "serial(engine=sm(2))") == ()
    assert len(said(amd, "shard_p2p(kernel=persistent)")) == 1


ONLY_GEMMS = "the constants of H100 were fitted to GEMMs, not to other kernels"
WIDE_HEADS = (
    "attention of heads of 512 columns: the constants of H100 were fitted to heads of up to 256, and wider ones have "
    "kernels of their own"
)


@pytest.mark.parametrize(
    ("kernel", "texts"),
    [
        ("add(a, b)", (ONLY_GEMMS,)),
        ("attention_back(a, a, b, b, b, heads=4)", (ONLY_GEMMS,)),
        ("attention(a, b, b, heads=4)", ()),
        ("attention(a, b, b, heads=2)", ()),
        ("attention(a, b, b, heads=1)", (WIDE_HEADS,)),
        ("grouped_gemm(a, b, rows=[512])", ()),
    ],
)
def test_kernels_without_constants_are_named(kernel: str, texts: tuple[str, ...]) -> None:
    lone = (
        compile_text(
            f'use "nvidia/h100"\nsystem s {{ gpus 8 x H100; fabric {NVIDIA} }}\n'
            f"workload w on s {{ a = tensor bf16[512, 512]; b = tensor bf16[512, 512]; y = {kernel} }}"
        )
        .scenario()
        .case
    )

    assert said(lone) == texts


@pytest.mark.parametrize(("cols", "texts"), [(512, ()), (520, (WIDE_HEADS.replace("512", "520"),))])
def test_heads_of_512_are_known_where_the_profile_has_constants_of_them(cols: int, texts: tuple[str, ...]) -> None:
    lone = compile_text(
        f'use "nvidia/b200"\nsystem s {{ gpus 8 x B200; fabric {NVIDIA.replace("_3", "_4")} }}\n'
        f"workload w on s {{ a = tensor bf16[512, {cols}]; y = attention(a, a, a, heads=1) }}"
    ).scenario()

    assert said(lone.case) == tuple(each.replace("H100", "B200").replace("256", "512") for each in texts)


def test_heads_that_no_constant_knows_are_named_first_of_a_layer() -> None:
    layer = compile_text(
        f'use "nvidia/h100"\nsystem s {{ gpus 8 x H100; fabric {NVIDIA} }}\n'
        "workload w on s { a = tensor bf16[512, 512]; b = tensor bf16[512, 512]; w1 = tensor bf16[512, 512]"
        "; y = gemm(attention(norm(a), b, b, heads=1), w1) }"
    ).scenario()

    assert outside_of_plan(layer.system, build_plan(layer.system, layer.workload, SERIAL))[:2] == (
        WIDE_HEADS,
        ONLY_GEMMS,
    )


def test_a_reason_is_given_once_for_all_schedules() -> None:
    of = without_fp8(scenario(dtype="fp8"))
    schedules = [resolve_schedule(of, each) for each in ("serial", "serial(engine=sm(2))", "serial(engine=sm(2))")]

    assert len(outside_calibration(of, schedules)) == 2
    assert outside_calibration(replace(of), ()) == ()
