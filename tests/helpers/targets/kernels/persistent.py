"""A persistent kernel: a loop through the tiles, whose place a helper finds."""

import triton
import triton.language as tl


@triton.jit
def place_of(tile, tiles_n, GROUP_M: tl.constexpr, tiles_m):
    in_group = GROUP_M * tiles_n
    first = tile // in_group * GROUP_M
    rows = min(tiles_m - first, GROUP_M)
    return first + tile % rows, tile % in_group // rows


@triton.jit(debug=False)
def persistent_kernel(
    A,
    B,
    C,
    M,
    N,
    K,
    lda,
    ldb,
    ldc,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP_M: tl.constexpr,
    NUM_SMS: tl.constexpr,
):
    start = tl.program_id(0)
    tiles_m = tl.cdiv(M, BM)
    tiles_n = tl.cdiv(N, BN)
    steps = tl.cdiv(K, BK)
    for tile in tl.range(start, tiles_m * tiles_n, NUM_SMS, flatten=True):
        m, n = place_of(tile, tiles_n, GROUP_M, tiles_m)
        rows, cols = m * BM + tl.arange(0, BM), n * BN + tl.arange(0, BN)
        total = tl.zeros([BM, BN], dtype=tl.float32)
        for step in range(steps):
            inner = step * BK + tl.arange(0, BK)
            left = tl.load(A + rows[:, None] * lda + inner[None, :], (rows[:, None] < M) & (inner[None, :] < K), 0.0)
            right = tl.load(B + inner[:, None] * ldb + cols[None, :], (inner[:, None] < K) & (cols[None, :] < N), 0.0)
            total += tl.dot(left, right, input_precision="ieee")
        tl.store(C + rows[:, None] * ldc + cols[None, :], total, (rows[:, None] < M) & (cols[None, :] < N))
