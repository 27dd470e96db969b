"""``calibrate`` recovers constants of attention and of experts, and refuses rows that are none of their kernels."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest

from magus.advisor.measured.calibrate.kernel_parts import kernel_parts
from magus.advisor.measured.calibrate.parts import ProfilePart
from magus.advisor.measured.calibrate.run import Calibration, FitRequest, calibrate, profile_text
from magus.advisor.measured.tables.attention import attention_us
from magus.advisor.measured.tables.csv_rows import MeasuredError
from magus.advisor.measured.tables.experts import expert_rows
from magus.advisor.measured.tables.gemm import profile_of
from magus.compiler import compile_text, format_text
from magus.compiler.ir import TYPES_WITH_CONSTANTS, AttentionShape, DType, Gpu

ATTENTION = "gpu,op,phase,kernel,batch,q_len,kv_len,heads,kv_heads,head_dim,window,latency_us"
EXPERTS = "gpu,dtype,kernel,hidden,inter,topk,experts,tp,ep,distribution,tokens,latency_us"
SYSTEM = """
link none { bandwidth 1 GB/s; achieved 1 GB/s; latency 1 ns }
system one { gpus 1 x H100; fabric full_mesh(none) }
workload lone on one { x = tensor bf16[64, 64]; y = gemm(x, x) }
"""


def h100() -> Gpu:
    gpu = profile_of("H100")
    assert gpu is not None
    return gpu


def attention_lines(gpu: Gpu, kernel: str = "vllm_flash_attn_fa3") -> Iterator[str]:
    for batch in (1, 4, 16):
        for length in (512, 2048, 8192):
            for heads, kv_heads in ((32, 8), (16, 16), (8, 1)):
                for phase, q_len in (("context", length), ("generation", 1)):
                    shape = AttentionShape(batch, heads, kv_heads, q_len, length, 128, DType.BF16, causal=True)
                    sizes = f"{batch},{q_len},{length},{heads},{kv_heads},128,0"
                    yield f"H100-SXM,gqa,{phase},{kernel},{sizes},{attention_us(gpu, shape)}"


def expert_lines(folder: Path, gpu: Gpu) -> Iterator[str]:
    """Rows that take what ``gpu`` says."""
    path = folder / "moe_grouped_gemm.csv"
    rows = [
        f"H100-SXM,bf16,cutlass,{hidden},{inter},{top},64,1,{ep},balanced,{tokens}"
        for hidden, inter in ((2048, 768), (4096, 2048))
        for top, ep in ((8, 1), (4, 8))
        for tokens in (1, 16, 1024, 8192)
    ]
    path.write_text("\n".join([EXPERTS, *(f"{row},1" for row in rows)]))
    for row, found in zip(rows, expert_rows(path), strict=True):
        assert not isinstance(found, str)
        yield f"{row},{found.us(gpu, found.even_rows)}"


def write(folder: Path, name: str, head: str, lines: Sequence[str]) -> None:
    (folder / name).write_text("\n".join([head, *lines]))


def largest_error(found: Calibration, part: str) -> float:
    fitted = found.part(part)
    assert fitted is not None
    return max(each.after for each in fitted.errors)


@pytest.mark.slow
def test_constants_of_attention_are_recovered(tmp_path: Path) -> None:
    own = h100().attention
    assert own is not None
    changed = replace(own, start_ticks=own.start_ticks * 2 // 3, mma_fraction=own.mma_fraction / 2)
    truth = replace(h100(), attention=changed)
    write(tmp_path, "attention.csv", ATTENTION, list(attention_lines(truth)))

    found = calibrate(tmp_path, FitRequest("H100"))

    assert largest_error(found, "attention") < 2
    text = profile_text(found)
    assert format_text(text) == text
    gpu = compile_text(text + SYSTEM).scenario().case.gpu
    assert gpu.attention == found.gpu.attention != own and gpu.attention is not None
    assert gpu.attention.start_ticks == pytest.approx(own.start_ticks * 2 / 3, rel=0.05)


def test_constants_of_experts_are_recovered(tmp_path: Path) -> None:
    own = h100().grouped
    assert own is not None
    truth = replace(h100(), grouped=replace(own, tile_ticks=own.tile_ticks * 2, start_ticks=own.start_ticks * 3 // 2))
    write(tmp_path, "moe_grouped_gemm.csv", EXPERTS, list(expert_lines(tmp_path, truth)))

    found = calibrate(tmp_path, FitRequest("H100", sample=12))

    assert largest_error(found, "grouped") < 2
    gpu = compile_text(profile_text(found) + SYSTEM).scenario().case.gpu
    types = dict.fromkeys(TYPES_WITH_CONSTANTS)
    assert gpu.grouped is not None and found.gpu.grouped is not None
    assert gpu.grouped.with_types(types) == found.gpu.grouped.with_types(types) != own.with_types(types)


def rows_of(folder: Path) -> tuple[dict[str, int], list[str]]:
    """How many rows each part has, and why others are left out."""
    left_out: list[str] = []
    parts: list[ProfilePart] = list(kernel_parts(folder, "H100", h100(), left_out))
    return {part.name: len(part.rows) for part in parts if part.rows}, left_out


def test_rows_of_other_kernels_are_refused(tmp_path: Path) -> None:
    others = [list(attention_lines(h100(), kernel))[:3] for kernel in ("flashinfer", "trtllm")]
    lines = [*attention_lines(h100()), *chain(*others)]
    write(tmp_path, "attention.csv", ATTENTION, lines)
    write(
        tmp_path,
        "moe_grouped_gemm.csv",
        EXPERTS,
        [
            "H100-SXM,bf16,cutlass,2048,768,8,128,1,1,balanced,1,30",
            "H100-SXM,bf16,own_kernel,2048,768,8,128,1,1,balanced,1,30",
            "H100-SXM,nvfp4,cutlass,2048,768,8,128,1,1,balanced,1,30",
        ],
    )

    assert rows_of(tmp_path) == (
        {"attention": 54, "trtllm": 3, "grouped": 1},
        [
            "attention.csv: 3 rows: of the kernel flashinfer; constants are those of vllm_flash_attn_fa3",
            "moe_grouped_gemm.csv: 1 row: of the kernel own_kernel, whose constants are not known",
            "moe_grouped_gemm.csv: 1 row: H100 has no peak rate for nvfp4",
        ],
    )


def test_of_two_kernels_that_nothing_was_fitted_to_none_is_taken(tmp_path: Path) -> None:
    one, other = (list(attention_lines(h100(), kernel)) for kernel in ("mine", "yours"))
    write(tmp_path, "attention.csv", ATTENTION, one)
    assert rows_of(tmp_path) == ({"attention": 54}, [])

    write(tmp_path, "attention.csv", ATTENTION, [*one, *other])
    found, left_out = rows_of(tmp_path)
    assert found == {} and left_out[0] == "attention.csv: 54 rows: of the kernel mine; keep the rows of one kernel"


def test_rows_in_another_unit_and_above_the_peak_are_refused(tmp_path: Path) -> None:
    sizes = "16,8192,8192,32,8,128,0"
    more = [f"H100,gqa,context,vllm_flash_attn_fa3,{sizes},{us}" for us in (1, 4000)]
    write(tmp_path, "attention.csv", ATTENTION, [*attention_lines(h100()), *more])

    found = calibrate(tmp_path, FitRequest("H100"))

    unit, peak = found.left_out[-2:]
    assert "in 1 us and 0 more: more than 100 times as long or short as predicted, as in another unit" in unit
    assert "in 4000 us and 0 more: faster than the peak of H100" in peak
    write(tmp_path, "attention.csv", ATTENTION, list(attention_lines(h100()))[:6])
    with pytest.raises(MeasuredError, match=r"attention, 5 rows to fit 9 constants"):
        calibrate(tmp_path, FitRequest("H100"))
