"""A persistent kernel that finds its tile again before it stores, by a counter that is one step behind."""

import triton
import triton.language as tl


@triton.jit
def find(tile, in_group, tiles_m, GROUP: tl.constexpr):
    first = tile // in_group * GROUP
    rows = min(tiles_m - first, GROUP)
    return first + tile % rows, tile % in_group // rows


@triton.jit
def twice_kernel(
    a, b, c, M, N, K, lda, ldb, ldc, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
    SMS: tl.constexpr,
):  # fmt: skip
    start = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
    in_group = GROUP * tiles_n
    stored = start - SMS
    for tile in tl.range(start, tiles_m * tiles_n, SMS, flatten=True):
        m, n = find(tile, in_group, tiles_m, GROUP)
        rows = m * BM + tl.arange(0, BM)
        cols = n * BN + tl.arange(0, BN)
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(tl.cdiv(K, BK)):
            inner = k * BK + tl.arange(0, BK)
            x = tl.load(a + rows[:, None] * lda + inner[None, :], (rows[:, None] < M) & (inner[None, :] < K), 0.0)
            w = tl.load(b + inner[:, None] * ldb + cols[None, :], (inner[:, None] < K) & (cols[None, :] < N), 0.0)
            acc = tl.dot(x, w, acc, input_precision="ieee")
        stored += SMS
        m_out, n_out = find(stored, in_group, tiles_m, GROUP)
        rows = m_out * BM + tl.arange(0, BM)
        cols = n_out * BN + tl.arange(0, BN)
        tl.store(c + rows[:, None] * ldc + cols[None, :], acc, (rows[:, None] < M) & (cols[None, :] < N))
