"""What is wrong with a workload is told by its true reason."""

import pytest

from magus.compiler import CompileError, compile_text

_TEXT = """use "nvidia/h100"
system s {{ gpus 8 x H100; fabric switch(nvswitch, link=nvlink) }}
workload w on s {{
  rows = tensor bf16[8192, 8192] shard rows
  cols = tensor bf16[8192, 8192] shard cols
  whole = tensor bf16[8192, 8192]
  short = tensor bf16[4096, 8192] shard cols
  other = tensor fp16[8192, 8192] shard cols
  q = tensor bf16[512, 1024] shard rows
  k = tensor bf16[512, 256] shard rows
  p = tensor nvfp4[4096, 8192] shard flat
  s = tensor mxfp4[64, 4096]
  {definitions}
}}
"""


def _errors(definitions: str) -> list[str]:
    with pytest.raises(CompileError) as caught:
        compile_text(_TEXT.format(definitions=definitions))
    return [each.message for each in caught.value.diagnostics if each.code.name != "MGS212"]


@pytest.mark.parametrize(
    ("definitions", "reason"),
    [
        ("y = reduce_scatter(gemm(all_gather(rows), cols))", "reduce_scatter needs partial sums to add"),
        ("y = all_reduce(gemm(all_gather(rows), cols))", "all_reduce needs partial sums to add"),
        ("y = reduce_scatter(reduce_scatter(gemm(cols, rows)))", "reduce_scatter needs partial sums to add"),
        ("y = gemm(gemm(all_gather(rows), cols), short)", "inner dimensions differ: y_gemm has 8192 columns"),
        ("h = gemm(all_gather(rows), cols); y = gemm(h, other)", "types differ: h is bf16, other is fp16"),
        ("y = all_gather(gemm(all_gather(rows), cols))", "all_gather joins rows, but y_gemm is sharded by cols"),
        ("y = all_gather(gemm(whole, cols))", "all_gather joins rows, but y_gemm is sharded by cols"),
        ("y = all_reduce(s)", "all_reduce of mxfp4, whose blocks have scales of their own, is not simulated"),
        ("t = tensor nvfp4[64, 200]; y = gelu(t)", "nvfp4 has a scale for each 16 elements, and 200 of t are"),
        ("t = tensor mxfp8[8, 8320] shard cols", "mxfp8 has a scale for each 32 elements, and 1040 of t are not whole"),
        ("t = tensor bf16[64, 200]; y = cast(t, type=fp8_block)", "fp8_block has a scale for each 128 elements"),
        ("t = tensor mxfp4[64, 32]; y = swiglu(t)", "mxfp4 has a scale for each 32 elements, and 16 of swiglu(t) are"),
        ("y = attention(q, heads=30, kv_heads=8)", "30 heads are no multiple of 8 kv_heads"),
        ("y = attention(q, heads=14, kv_heads=2)", "14 heads and 4 of keys and values do not divide 1024 columns of q"),
        ("y = attention(q, k, k, heads=12, kv_heads=2)", "12 heads do not divide 1024 columns of q"),
        ("t = tensor bf16[64, 200]; y = norm(t, rope=200)", "t has 200 columns, of which 200 of rope leave"),
        (
            "t = tensor nvfp4[9, 16] shard flat; y = all_gather(t)",
            "nvfp4 has a scale for each 16 elements, and 18 of a",
        ),
        ("y = all_gather(all_gather(rows))", "all_gather joins rows, but rows_gathered is replicated"),
        ("h = gemm(cols, rows); y = gemm(h, cols)", "h is a part of a sum on each rank"),
        ("y = gemm(gemm(all_gather(rows), cols), rows)", "y is a part of a sum on each rank, which nothing adds up"),
        ("y = gemm(cols, all_gather(rows))", "cols is sharded by cols and rows_gathered is replicated"),
        ('about "no operation"', "no operation is there to simulate"),
        ("y = attention(q, all_gather(k), all_gather(k), heads=8, kv_heads=2)", "keys and values are gathered as one"),
        ("y = gemm(cols, rows)", "y is a part of a sum on each rank, which nothing adds up"),
    ],
)
def test_the_true_reason_is_reported(definitions: str, reason: str) -> None:
    (reported,) = _errors(definitions)
    assert reported.startswith(reason)


def test_it_is_reported_beside_other_mistakes() -> None:
    reported = _errors("h = gemm(all_gather(rows), nobody); y = all_reduce(gemm(whole, cols))")
    assert reported == ["unknown tensor 'nobody'", "all_reduce needs partial sums to add"]
