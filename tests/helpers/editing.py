"""Texts with a mark where the cursor stands."""

from magus.compiler.services.document import Document, read_document

MARK = "|"
BEGINNING = """\
use "nvidia/h100" as nv
use "amd/mi300x"
let K = 4096
param M = 8192 in 16..65536 x2
gpu mine extends nv.H100 { clock 1 GHz @measured "a bench"; hbm { achieved 90 % * base.hbm.achieved } }
system node { gpus 8 x MI300X; fabric full_mesh(xgmi) }
workload up on node {
  x = tensor bf16[M, K] shard rows
  w = tensor bf16[K, 8 * 1024] shard cols
  y = gemm(all_gather(x), w)
}
schedule fine for up = uniform_fused_1d(chunks=64, engine=dma(7))
"""
"""A scenario to write on: 12 lines."""


def at_mark(text: str, path: str = "a.mgs") -> tuple[Document, int]:
    """Return the text without its last mark, and the place of the mark."""
    before, mark, after = text.rpartition(MARK)
    assert mark, "a text has a mark"
    return read_document(before + after, path), len(before)
