"""A tile for each program, by tensor descriptors that the host has made."""

import triton
import triton.language as tl


@triton.jit
def by_host_kernel(a_desc, b_desc, c_desc, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    tile = tl.program_id(axis=0)
    tiles_m = tl.cdiv(M, BM)
    m = tile % tiles_m
    n = tile // tiles_m
    at_m = m * BM
    at_n = n * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for step in tl.range(tl.cdiv(K, BK), warp_specialize=False):
        at_k = step * BK
        x = a_desc.load([at_m, at_k])
        w = b_desc.load([at_k, at_n])
        acc = tl.dot(x, w, acc, input_precision="ieee")
    c_desc.store([at_m, at_n], acc)
