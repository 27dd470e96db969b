"""``calibrated`` in a profile: what it says, what a child inherits, and that it changes no time."""

from dataclasses import replace

import pytest

from magus.compiler import compile_text, format_text
from magus.compiler.ir import Calibrated, CollectiveRegion, DType, GemmRegion, Gpu
from magus.compiler.resolve.devices.device_blocks import EXAMPLES

TEXT = """
use "nvidia/{library}" as library
{gpu}
system s {{ gpus 8 x {name}; fabric switch(library.nvswitch, link=library.nvlink) }}
workload g on s {{ a = tensor bf16[8, 8]; y = gemm(a, a) }}
"""


def child(blocks: str) -> Gpu:
    gpu = f"gpu G extends library.H100 {{ {blocks} }}"
    return compile_text(TEXT.format(library="h100", gpu=gpu, name="G")).scenario().case.gpu


def shipped(library: str) -> Gpu:
    name = f"library.{library.upper()}"
    return compile_text(TEXT.format(library=library, gpu="", name=name)).scenario().case.gpu


def test_each_block_says_its_region() -> None:
    found = child(
        "gemm { calibrated fp16 m 1..64, n 32..128, k 64..256; fp8 { calibrated fp8 m 1..8, n 1..8, k 1..8 } }\n"
        "sm_copy { calibrated 2..8 sms }\n"
        "collectives { calibrated 1 KiB..1 MiB on 8, 4, 4 gpus }"
    ).calibrated
    of_fp8, inherited = sorted(found.gemm_types, key=lambda region: region.m)

    assert inherited == shipped("h100").calibrated.gemm_types[1]
    assert replace(found, gemm_types=(of_fp8,)) == Calibrated(
        gemm=GemmRegion(DType.FP16, (1, 64), (32, 128), (64, 256)),
        sm_copy=(2, 8),
        collectives=CollectiveRegion((1024, 1 << 20), (4, 8)),
        gemm_types=(GemmRegion(DType.FP8, (1, 8), (1, 8), (1, 8)),),
    )


def test_the_library_says_where_its_tables_end() -> None:
    a100, h100 = shipped("a100").calibrated, shipped("h100").calibrated

    assert a100.gemm == GemmRegion(DType.BF16, (1, 8192), (32, 65536), (32, 65536)) and a100.sm_copy is None
    assert h100.gemm == GemmRegion(DType.BF16, (1, 32768), (32, 65536), (32, 65536)) and h100.sm_copy == (4, 24)
    assert h100.collectives == CollectiveRegion((512, 512 << 20), (2, 4, 8))
    assert a100.derived == h100.derived == frozenset()


@pytest.mark.parametrize(
    ("blocks", "derived"),
    [
        ("", set()),
        ("launch { kernel 1 us }", set()),
        ("sm_copy { setup 1 us }", {"sm_copy"}),
        ("hbm { latency 1 us }", {"gemm", "collectives"}),
        ("clock 1 GHz", {"gemm", "sm_copy", "collectives"}),
        ("clock 1 GHz; sm_copy { calibrated 4..8 sms }", {"gemm", "collectives"}),
    ],
)
def test_what_a_child_inherits_is_derived_if_it_differs(blocks: str, derived: set[str]) -> None:
    assert child(blocks).calibrated.derived == derived


def test_siblings_of_the_library_are_derived() -> None:
    assert shipped("h200").calibrated.derived == {"gemm", "collectives"}
    assert shipped("h200").calibrated.gemm == shipped("h100").calibrated.gemm


def test_it_is_no_part_of_what_times_are_kept_by() -> None:
    gpu = shipped("h100")

    assert hash(replace(gpu, calibrated=Calibrated())) == hash(gpu)


def test_the_examples_of_the_diagnostics_are_right_and_canonical() -> None:
    for block, example in EXAMPLES.items():
        assert getattr(child(f"{block} {{ {example} }}").calibrated, block) is not None
        text = f'mgs 1\n\nuse "nvidia/h100"\n\ngpu G extends H100 {{\n  {block} {{\n    {example}\n  }}\n}}\n'
        assert format_text(text) == text
