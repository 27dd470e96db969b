"""Operations of the shapes of kernels."""

from hypothesis import given
from hypothesis import strategies as st

from magus.compiler.ir import AttentionBackShape, AttentionShape, DType, ElementwiseShape, GemvShape, GroupedGemmShape

DT = DType.BF16


def test_operations_by_hand() -> None:
    assert GroupedGemmShape((3, 0, 5), 10, 7, DT).flops == 2 * 8 * 10 * 7
    assert GemvShape(10, 7, DT).flops == 140
    assert GemvShape(10, 7, DT, batch=3).flops == 420
    assert AttentionShape(2, 8, 2, 5, 7, 64, DT, causal=False).flops == 2 * 8 * 4 * 5 * 7 * 64
    assert AttentionBackShape(2, 8, 2, 5, 7, 64, DT, causal=False).flops == 2 * 8 * 10 * 5 * 7 * 64
    assert ElementwiseShape(100, 1, DT).flops == 100
    assert ElementwiseShape(100, 4, DT).flops == 300


@given(st.integers(1, 40), st.integers(1, 40))
def test_a_causal_mask_counts_the_pairs_that_see_each_other(q_len: int, kv_len: int) -> None:
    seen = sum(key <= query + kv_len - q_len for query in range(q_len) for key in range(kv_len))

    assert AttentionShape(1, 1, 1, q_len, kv_len, 64, DT, causal=True).pairs == seen
