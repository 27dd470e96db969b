"""Graphs in batches: which rows are cut, what attention sees, and what is refused."""

import re

import pytest

from magus.compiler import CompileError, compile_text
from magus.compiler.ir import AttentionShape, Workload
from magus.compiler.planning.parts import PlanError, batch_counts, in_batches
from magus.compiler.planning.plan import layers_of

TEXT = """
use "nvidia/h100"
system hgx {{ gpus 8 x H100; fabric switch(nvswitch, link=nvlink) }}
workload w on hgx {{
  x    = tensor bf16[{rows}, 1024] shard rows
  wqkv = tensor bf16[1024, 2048] shard cols
  wo   = tensor bf16[1024, 1024] shard rows
  qkv = gemm(all_gather(norm(x)), wqkv)
  a   = attention(qkv, heads=16, kv_heads=8, causal=yes{attention})
  y   = add(x, reduce_scatter(gemm(a, wo)))
  repeat 4 y as x
  {batch}
}}
"""


def graph(batch: str = "batch x by 1024", rows: int = 4096, attention: str = "") -> Workload:
    (found,) = compile_text(TEXT.format(rows=rows, batch=batch, attention=attention)).workloads
    return found.workload


def attention_of(found: Workload, name: str = "a") -> AttentionShape:
    kernel = found.op(name).shape.kernel
    assert isinstance(kernel, AttentionShape)
    return kernel


def test_rows_are_one_sequence_unless_batch_says_so() -> None:
    assert (attention_of(graph("")).batch, attention_of(graph("")).q_len) == (1, 4096)
    cut = attention_of(graph())
    assert (cut.batch, cut.q_len, cut.heads) == (4, 1024, 2)
    assert attention_of(graph("batch x by 8192")) == attention_of(graph(""))  # one that is shorter
    assert attention_of(graph(attention=", batch=2")).batch == 2


def test_each_batch_has_ops_on_its_rows() -> None:
    found = in_batches(graph(), 2)

    assert [op.name for op in found.ops[:4]] == ["qkv_norm[0]", "qkv_norm[1]", "qkv[0]", "qkv[1]"]
    gemm, whole = found.op("qkv[1]").shape.gemm, graph().op("qkv").shape.gemm
    assert gemm is not None and whole is not None
    assert (gemm.m, gemm.n, gemm.k) == (whole.m // 2, whole.n, whole.k)
    assert (attention_of(found, "a[0]").batch, attention_of(found, "a[0]").q_len) == (2, 1024)
    assert [read.made_by for read in found.op("y_add[1]").reads] == ["", "y[1]"]
    assert [read.tensor for read in found.op("y[1]").reads] == ["a[1]", "wo"]
    assert {op.batch for op in found.ops} == {0, 1}


def test_each_batch_goes_on_with_its_own_rows() -> None:
    found = layers_of(in_batches(graph(), 2), 3)

    assert [read.made_by for read in found.op("qkv_norm[1]@3").reads] == ["y_add[1]@2"]


def test_what_is_made_of_weights_alone_is_shared() -> None:
    text = TEXT.format(rows=4096, batch="batch x by 1024", attention="").replace("gemm(a, wo)", "gemm(a, wn)")
    (found,) = compile_text(text.replace("  qkv = gemm", "  wn  = norm(wo)\n  qkv = gemm")).workloads
    names = [op.name for op in in_batches(found.workload, 2).ops]

    assert "wn" in names and "wn[0]" not in names
    assert [read.made_by for read in in_batches(found.workload, 2).op("y[1]").reads] == ["a[1]", "wn"]


@pytest.mark.parametrize(("rows", "counts"), [(4096, (1, 2, 4)), (3072, (1, 3)), (1024, (1,)), (512, (1,))])
def test_batches_have_whole_sequences(rows: int, counts: tuple[int, ...]) -> None:
    assert batch_counts(graph(rows=rows)) == counts


def test_batches_that_are_not_possible() -> None:
    with pytest.raises(PlanError, match="x by 1024 rows cannot be cut into 3 batches"):
        in_batches(graph(), 3)
    with pytest.raises(PlanError, match="w does not say which rows may be computed apart"):
        in_batches(graph(""), 2)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ("batch x by 1000", "MGS304.*x has 4096 rows, which are no whole sequences of 1000"),
        ("batch x, wqkv by 512", "MGS310.*wqkv has 1024 rows and x 4096"),
        ("batch y by 512", "MGS310.*'y' is no input of the workload"),
        ("batch v by 512", "MGS203.*unknown tensor 'v'"),
        ("batch x", "MGS116.*'by' and the rows of a sequence are missing"),
        ("batch x by 0", "MGS307"),
        ("batch x by 512\n  batch x by 512", "MGS206.*batch is said twice"),
        ("batch wo by 512", "MGS310"),
    ],
)
def test_what_cannot_be_cut(batch: str, message: str) -> None:
    with pytest.raises(CompileError) as error:
        graph(batch)
    assert re.search(message, str(error.value).replace("\n", " ")), str(error.value)
