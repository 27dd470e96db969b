"""Attention kernels of frameworks: which rows are compared, which half is held out, and the errors on the tables."""

import os
from collections import Counter
from pathlib import Path

import pytest

from magus.advisor.measured.tables.attention import attention_comparisons, attention_us
from magus.advisor.measured.tables.csv_rows import FIT, HELD_OUT, TableComparison
from magus.advisor.measured.tables.gemm import profile_of
from magus.advisor.measured.validate.report import summed_up
from magus.compiler.ir import AttentionShape, DType

DATA = os.environ.get("MAGUS_MEASURED_DATA", "")
HEADER = "gpu,op,phase,kernel,batch,q_len,kv_len,heads,kv_heads,head_dim,window,latency_us"


def read(folder: Path, *rows: str) -> tuple[list[TableComparison], list[str]]:
    (folder / "attention.csv").write_text("\n".join([HEADER, *rows, ""]))
    found = list(attention_comparisons(folder))
    return [each for each in found if isinstance(each, TableComparison)], [e for e in found if isinstance(e, str)]


@pytest.mark.parametrize(
    ("row", "group"),
    [
        ("H100-SXM,gqa,context,vllm_flash_attn_fa3,4,1024,1024,32,4,128,0,120.5", f"{HELD_OUT}, from 100 us"),
        ("H100-SXM,gqa,generation,vllm_flash_attn_fa3,4,1,1024,16,8,128,0,20.5", f"{FIT}, below 100 us"),
        ("H100-SXM,gqa,generation,trtllm,4,1,1024,16,8,128,0.0,20.5", f"{FIT}, below 100 us"),
        ("H100-SXM,gqa,generation,trtllm,4,1,1024,48,1,128,0,200", f"{FIT}, over 32 heads a key, from 100 us"),
        ("H100-SXM,gqa,generation,vllm_flash_attn_fa3,4,1,1024,48,1,128,0,20.5", f"{FIT}, below 100 us"),
        ("H100-SXM,gqa,context,trtllm,4,64,64,48,1,128,0,20.5", f"{FIT}, below 100 us"),
        ("H100-SXM,gqa,context,vllm_flash_attn_fa4,4,64,64,8,1,512,0,20.5", "heads over 256, below 100 us"),
        ("B200-SXM,gqa,context,vllm_flashinfer_trtllmprefill,4,64,64,16,8,128,0,20.5", f"{FIT}, below 100 us"),
        (
            "B200-SXM,gqa,context,vllm_flashinfer_trtllmprefill,4,64,64,16,8,512,0,20.5",
            f"{HELD_OUT}, heads over 256, below 100 us",
        ),
        ("B200-SXM,gqa,context,flashinfer,4,64,64,4,1,512,0,20.5", f"{HELD_OUT}, heads over 256, below 100 us"),
        ("B200-SXM,gqa,context,flashinfer,4,1,1,16,2,512,0,20.5", f"{FIT}, heads over 256, below 100 us"),
        ("B200-SXM,gqa,context,flashinfer,4,64,64,2,1,256,0,20.5", "below 100 us"),
    ],
)
def test_half_and_length_are_the_group_of_a_row(tmp_path: Path, row: str, group: str) -> None:
    (only,), texts = read(tmp_path, row)
    gpu, _, phase, kernel, *sizes = row.split(",")
    batch, q_len, kv_len, heads, kv_heads, head_dim = map(int, sizes[:6])
    profile = profile_of(gpu.partition("-")[0])

    assert texts == [] and (only.operation, only.group) == (f"attention {phase}, {kernel}", group)
    by = "trtllm" if kernel == "trtllm" or (kernel == "flashinfer" and head_dim > 256) else ""
    shape = AttentionShape(batch, heads, kv_heads, q_len, kv_len, head_dim, DType.BF16, causal=True, by=by)
    assert profile is not None and only.predicted_us == attention_us(profile, shape)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("H100-SXM,mla,context,trtllm,4,64,64,16,1,128,0,20", "other columns than 192"),
        ("H100-SXM,mha,context,trtllm,4,64,64,16,16,128,0,20", "none of gqa and mla"),
        ("H100-SXM,gqa,context,trtllm,4,64,64,16,16,128,all,20", "a window is not a number"),
        ("H100-SXM,gqa,context,trtllm,4,64,64,16,16,128,0.5,20", "not a whole number"),
        ("H100-SXM,gqa,other,trtllm,4,64,64,16,16,128,0,20", "phase"),
        ("H100-SXM,gqa,context,trtllm,4,64,64,16,3,128,0,20", "do not divide heads"),
        ("H100-SXM,gqa,context,trtllm,4,64.5,64,16,8,128,0,20", "not a whole number"),
        ("X9,gqa,context,trtllm,4,64,64,16,8,128,0,20", "no profile of X9"),
        (
            "H100-SXM,gqa,context,trtllm,4,8192,8192,16,8,128,0,1.1",
            "of 128 in 1.1 us: faster than the peak",
        ),
        ("H100-SXM,gqa,context,trtllm,4,64,64,16,8,128,0,0", "attention.csv:2: latency_us is '0'"),
    ],
)
def test_other_rows_are_left_out_with_the_reason(tmp_path: Path, row: str, reason: str) -> None:
    compared, (text,) = read(tmp_path, row)

    assert compared == [] and reason in text


@pytest.mark.parametrize(
    ("row", "operation", "group", "shape"),
    [
        (
            "H100-SXM,mla,context,trtllm,4,64,64,16,1,192,0,20",
            "mla context, trtllm",
            f"{FIT}, below 100 us",
            AttentionShape(4, 16, 16, 64, 64, 192, DType.BF16, True, values=128),
        ),
        (
            "B200-SXM,mla,generation,trtllm,64,1,4096,32,1,576,0,120",
            "mla generation, trtllm",
            f"{HELD_OUT}, from 100 us",
            AttentionShape(64, 32, 1, 1, 4096, 576, DType.BF16, True, values=512, in_keys=True),
        ),
        (
            "H100-SXM,gqa,context,vllm_flash_attn_fa3,4,1024,1024,16,8,128,128,120",
            "attention context, vllm_flash_attn_fa3",
            f"{HELD_OUT}, window, from 100 us",
            AttentionShape(4, 16, 8, 1024, 1024, 128, DType.BF16, True, window=128),
        ),
    ],
)
def test_values_of_other_sizes_and_windows_are_compared(
    tmp_path: Path, row: str, operation: str, group: str, shape: AttentionShape
) -> None:
    (only,), texts = read(tmp_path, row)
    profile = profile_of(row[:4])

    assert texts == [] and (only.operation, only.group) == (operation, group)
    assert profile is not None and only.predicted_us == attention_us(profile, shape)


@pytest.mark.slow
@pytest.mark.skipif(not DATA, reason="needs the measured tables")
def test_held_out_rows_of_the_fitted_kernels_are_near() -> None:
    rows = [each for each in attention_comparisons(Path(DATA)) if isinstance(each, TableComparison)]
    held = {(each.gpu, each.operation, each.group): each.median for each in summed_up(rows) if HELD_OUT in each.group}

    most = {
        "heads a key, window": 12,
        "heads a key": 12,
        "heads over": 14,
        "trtllm": 20,
        "window": 16,
        "mla": 12,
        "": 10,
    }
    names = [f"{key[1]} {key[2]}".replace("vllm_flashinfer_trtllm", "vllm") for key in held]
    kinds = ["mla" if "mla" in name else next(word for word in most if word in name) for name in names]
    counts = {"": 10, "heads a key": 4, "heads a key, window": 4, "heads over": 9, "mla": 8, "trtllm": 16, "window": 9}
    assert Counter(kinds) == counts
    assert all(median < most[kind] for kind, median in zip(kinds, held.values(), strict=True))
