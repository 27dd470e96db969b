"""A persistent kernel that makes tensor descriptors, and stores by a counter that is one step behind."""

import triton
import triton.language as tl


def name_of(grid, kernel, arguments):
    return {"name": f"{kernel.name} {arguments['M']}x{arguments['N']}x{arguments['K']}"}


@triton.jit
def place_of(tile, tiles_m, tiles_n, GROUP: tl.constexpr):
    first = tile // (GROUP * tiles_n) * GROUP
    rows = min(tiles_m - first, GROUP)
    return first + tile % rows, tile % (GROUP * tiles_n) // rows


@triton.jit(launch_metadata=name_of)
def described_kernel(
    a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, SMS: tl.constexpr
):
    first = tl.program_id(axis=0)
    tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
    left = tl.make_tensor_descriptor(a, shape=[M, K], strides=[K, 1], block_shape=[BM, BK])
    right = tl.make_tensor_descriptor(b, shape=[K, N], strides=[N, 1], block_shape=[BK, BN])
    out = tl.make_tensor_descriptor(c, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    behind = first - SMS
    for tile in tl.range(first, tiles_m * tiles_n, SMS, flatten=True):
        m, n = place_of(tile, tiles_m, tiles_n, GROUP)
        at_m = m * BM
        at_n = n * BN
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for step in range(tl.cdiv(K, BK)):
            x = left.load([at_m, step * BK])
            w = right.load([step * BK, at_n])
            acc = tl.dot(x, w, acc, input_precision="ieee")
        behind += SMS
        m, n = place_of(behind, tiles_m, tiles_n, GROUP)
        out.store([m * BM, n * BN], acc.to(c.dtype.element_ty))
