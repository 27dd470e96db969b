"""A persistent kernel with a counter of its own."""

import triton
import triton.language as tl


@triton.jit
def counted_kernel(
    a, b, c, M, N, K, lda, ldb, ldc, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, ORDER: tl.constexpr
):
    tile = tl.program_id(0)
    across = tl.cdiv(N, BN)
    while tile < tl.cdiv(M, BM) * across:
        if ORDER == "rows":
            pid_m = tile // across
            pid_n = tile % across
        else:
            pid_m = tile % tl.cdiv(M, BM)
            pid_n = tile // tl.cdiv(M, BM)
        tile += tl.num_programs(0)
        rows = BM * pid_m + tl.arange(0, BM)
        cols = BN * pid_n + tl.arange(0, BN)
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(0, K, BK):
            inner = k + tl.arange(0, BK)
            x = tl.load(a + rows[:, None] * lda + inner[None, :], (rows[:, None] < M) & (inner[None, :] < K), 0.0)
            w = tl.load(b + inner[:, None] * ldb + cols[None, :], (inner[:, None] < K) & (cols[None, :] < N), 0.0)
            acc = tl.dot(x, w, acc, input_precision="ieee")
        tl.store(c + rows[:, None] * ldc + cols[None, :], acc, (rows[:, None] < M) & (cols[None, :] < N))
