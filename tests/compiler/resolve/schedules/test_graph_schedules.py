"""Schedules of graphs in batches, with outlines of ops, collectives of their own, and parts of other layers."""

import pytest

from magus.compiler import CompileError, compile_text
from magus.compiler.ir import EngineChoice, EngineKind, OpChoice, Schedule, WrittenPlan
from magus.compiler.planning.build import schedule_block
from magus.compiler.planning.plan import build_plan

HEAD = """
use "nvidia/h100"
system hgx { gpus 4 x H100; fabric switch(nvswitch, link=nvlink) }
workload mlp on hgx {
  x  = tensor bf16[4096, 1024] shard rows
  wu = tensor bf16[1024, 4096] shard cols
  wd = tensor bf16[4096, 1024] shard rows
  wv = tensor bf16[1024, 1023]
  wt = tensor bf16[1023, 1024] shard flat
  g = all_gather(wt)
  u = gemm(all_gather(norm(x)), wu)
  y = add(x, reduce_scatter(gemm(gelu(u), wd)))
  z = add(y, gemm(gemm(y, wv), g))
  repeat 4 z as x
  batch x by 1024
}
"""


def choice(block: str) -> Schedule:
    (found,) = compile_text(f"{HEAD}schedule s for mlp {{\n{block}\n}}\n").workloads
    return found.schedules[0]


def issued(block: str, layers: int = 1) -> list[str]:
    (found,) = compile_text(f"{HEAD}schedule s for mlp {{\n{block}\n}}\n").workloads
    return [part.name for part in build_plan(found.system, found.workload, found.schedules[0], layers).parts]


def test_what_is_apart_may_be_carried_out_in_pieces() -> None:
    found = choice("separate u by direct(chunks=64, engine=dma(1))\nseparate y by dma(3)")

    assert [mode.separate for mode in found.modes] == [
        OpChoice("direct", 64, EngineChoice(EngineKind.DMA, 1)),
        OpChoice("serial", 4, EngineChoice(EngineKind.DMA, 3)),
    ]


def test_a_plain_name_is_the_op_of_every_batch() -> None:
    found = choice("batches 2\nseparate u by dma(3)\nu_norm = serial()\npriority y low")

    assert found.batches == 2
    assert [(mode.op, mode.separate is not None) for mode in found.modes] == [
        ("u[0]", True),
        ("u[1]", True),
        ("u_norm[0]", False),
        ("u_norm[1]", False),
    ]
    assert found.low == ("y[0]", "y[1]")


def test_batches_are_known_wherever_they_are_said() -> None:
    assert choice("u[1] = serial()\nbatches 2").modes == choice("batches 2\nu[1] = serial()").modes


def test_an_op_stands_beside_that_of_its_batch() -> None:
    assert choice("batches 2\nstart y with u").starts_with == (("y[0]", "u[0]"), ("y[1]", "u[1]"))
    assert choice("batches 2\nstart g with u[1]").starts_with == (("g", "u[1]"),)


def test_collectives_of_their_own_are_issued_where_they_are_listed() -> None:
    block = "batches 2\nseparate u, y by dma(3)\norder u[0], u[1].all_gather, y[0], u[1], y[0].reduce_scatter, y[1]"
    names = [name for name in issued(block) if name.startswith(("u[", "y["))]

    assert names == [
        *("u[0].all_gather", "u[0]", "u[1].all_gather", "y[0]", "u[1]"),
        *("y[0].reduce_scatter", "y[1]", "y[1].reduce_scatter"),
    ]


def test_what_is_gathered_ahead_comes_before_the_layer_in_front() -> None:
    assert [name for name in issued("prefetch 0", 3) if name.startswith(("g", "u_"))] == [
        *("g", "u_norm", "g@2", "u_norm@2", "g@3", "u_norm@3"),
    ]
    assert [name for name in issued("prefetch 1", 3) if name.startswith(("g", "u_"))] == [
        *("g", "g@2", "u_norm", "g@3", "u_norm@2", "u_norm@3"),
    ]


LATE = "batches 2\norder u[0], z_gemm2[1], z[1], y[0], z[0], u[1], y[1], z_gemm[1]\ndeferred z_gemm2[1], z[1]"


def test_what_is_late_stands_in_the_order_of_the_next_layer() -> None:
    names = [name for name in issued(LATE, 3) if name.startswith(("u[", "z[", "z_gemm2[1]"))]

    assert names == [
        *("u[0]", "z[0]", "u[1]"),
        *("u[0]@2", "z_gemm2[1]", "z[1]", "z[0]@2", "u[1]@2"),
        *("u[0]@3", "z_gemm2[1]@2", "z[1]@2", "z[0]@3", "u[1]@3"),
        *("z_gemm2[1]@3", "z[1]@3"),
    ]


def test_outlines_of_ops() -> None:
    found = choice("batches 2\nu[1] {\n  split rows 256, 256\n  move by dma(3) put direct\n}")
    (mode,) = found.modes

    assert mode.op == "u[1]" and isinstance(mode.body, WrittenPlan)
    assert any(name.startswith("u[1]") for name in issued("batches 2\nu[1] { split rows 512 }"))


@pytest.mark.parametrize(
    "block",
    [
        "batches 2\nseparate u by dma(3)\ny[0] = serial(engine=dma(3))\norder u[0], u[1].all_gather, y[0], u[1]",
        "prefetch 2\nstart g with u",
        LATE,
        "batches 2\nstream 1 y_add[1]\nstart g with u[1]\npriority sums, y[0] low\nhandoff whole",
    ],
)
def test_what_is_written_means_the_same(block: str) -> None:
    found = choice(block)

    assert compile_text(HEAD + schedule_block(found, "mlp")).workloads[0].schedules == (found,)


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("order u[0]", "MGS203.*u is not in batches"),
        ("batches 2\norder u[2]", "MGS307"),
        ("batches 2\norder g[0]", "MGS203.*g is not in batches"),
        ("batches 3", "MGS304.*x by 1024 rows cannot be cut into 3 batches"),
        ("batches 9", "MGS307"),
        ("batches 2\nu[0] = serial()\nu = serial()", "MGS206"),
        ("batches 2\nstart g with u", "MGS116.*g is of no batch"),
        ("batches 2\norder u[0].all_gather", "MGS509.*no part of its own"),
        ("order u.reduce_scatter", "MGS203.*u has no collective"),
        ("order g.all_gather", "MGS203.*g has no collective"),
        ("separate u by dma(3)\norder u, u.all_gather", "MGS503"),
        ("u { split rows 3 }", "MGS5"),
        ("u { t = compute y.shard(0) }", "MGS116.*a plan begins with its engines"),
        ("prefetch 100", "MGS307"),
        ("deferred y", "MGS503.*y is deferred, and has no place in the order"),
        ("order u, y, z\ndeferred z", "MGS503.*needs"),
        ("deferred nobody", "MGS203"),
        ("order u + 1", "MGS116.*the name of an op is expected"),
    ],
)
def test_what_is_refused(block: str, message: str) -> None:
    with pytest.raises(CompileError, match=f"(?s){message}"):
        choice(block)


def test_nothing_is_late_without_a_next_layer() -> None:
    text = HEAD.replace("  repeat 4 z as x\n", "")

    with pytest.raises(CompileError, match=r"MGS509.*repeats no layers"):
        compile_text(f"{text}schedule s for mlp {{ order u, y, z; deferred z }}\n")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("apart y", "separate"),
        ("beside u y", "start"),
        ("seams whole", "handoff"),
        ("ahead 1", "prefetch"),
        ("late y", "deferred"),
        ("along y", "chained"),
    ],
)
def test_an_older_word_is_refused_by_the_new_one(old: str, new: str) -> None:
    with pytest.raises(CompileError, match=f"(?s)MGS201.*Magus says '{new}'"):
        choice(old)
