"""A grid of two dimensions that may be larger than the matrix: programs beyond its end return."""

import triton
import triton.language as tl


@triton.jit
def guarded_kernel(a, b, c, M, N, K, lda, ldb, ldc, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = tl.program_id(0), tl.program_id(1)
    if m * BM >= M or n * BN >= N:
        return
    rows = m * BM + tl.arange(0, BM)
    cols = n * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        inner = k + tl.arange(0, BK)
        x = tl.load(a + rows[:, None] * lda + inner[None, :], (rows[:, None] < M) & (inner[None, :] < K), 0.0)
        w = tl.load(b + inner[:, None] * ldb + cols[None, :], (inner[:, None] < K) & (cols[None, :] < N), 0.0)
        acc = tl.dot(x, w, acc, input_precision="ieee")
    tl.store(c + rows[:, None] * ldc + cols[None, :], acc, (rows[:, None] < M) & (cols[None, :] < N))
