"""An autotuned kernel of one configuration, with block pointers."""

import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BM": rows, "BN": 16, "BK": 32}, num_stages=stages, num_warps=4) for rows in (16,) for stages in [3]
]


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"])
@triton.jit
def tuned_kernel(a, b, c, M, N, K, lda, ldb, ldc, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    tile = tl.program_id(0)
    m, n = tile // tl.cdiv(N, BN), tile % tl.cdiv(N, BN)
    left = tl.make_block_ptr(a, (M, K), (lda, 1), (m * BM, 0), (BM, BK), (1, 0))
    right = tl.make_block_ptr(b, (K, N), (ldb, 1), (0, n * BN), (BK, BN), (1, 0))
    acc = tl.full((BM, BN), 0.0, dtype=tl.float32)
    for _ in range(0, K, BK):
        x, w = tl.load(left, boundary_check=(0, 1)), tl.load(right, boundary_check=(0, 1))
        acc += tl.dot(x, w, input_precision="ieee")
        left, right = tl.advance(left, (0, BK)), tl.advance(right, (BK, 0))
    out = tl.make_block_ptr(c, (M, N), (ldc, 1), (m * BM, n * BN), (BM, BN), (1, 0))
    tl.store(out, acc.to(c.dtype.element_ty), boundary_check=(0, 1))
