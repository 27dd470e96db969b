"""A grid of two dimensions, tiles by offsets of pointers, and parameters that the kernel assigns anew."""

import triton
import triton.language as tl


@triton.jit
def grid_kernel(
    a,
    b,
    c,
    M,
    N,
    K,
    lda,
    ldb,
    ldc,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    INNER: tl.constexpr,
):
    a = a + tl.program_id(0) * ROWS * lda
    b = b + tl.program_id(1) * COLS
    c = c + tl.program_id(0) * ROWS * ldc + tl.program_id(1) * COLS
    rows = tl.arange(0, ROWS)[:, None]
    cols = tl.arange(0, COLS)[None, :]
    inner = tl.arange(0, INNER)
    in_rows = rows < M - tl.program_id(0) * ROWS
    in_cols = cols < N - tl.program_id(1) * COLS
    acc = tl.zeros((ROWS, COLS), tl.float32)
    while K > 0:
        x = tl.load(a + rows * lda + inner[None, :], in_rows & (inner[None, :] < K), 0.0)
        w = tl.load(b + inner[:, None] * ldb + cols, (inner[:, None] < K) & in_cols, 0.0)
        acc += tl.dot(x, w, input_precision="ieee")
        a += INNER
        b += INNER * ldb
        K -= INNER
    tl.store(c + rows * ldc + cols, acc, in_rows & in_cols)
