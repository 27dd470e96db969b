"""Workloads that are graphs: which ops they have, how tensors lie, what reads what."""

import pytest

from magus.compiler import CompileError, compile_text
from magus.compiler.ir import AttentionShape, ColumnPart, DType, Made, Pattern, Scenario, Shard, Workload
from tests.helpers.scenarios.compiled import cases_in, several_in

HEAD = 'use "nvidia/h100"\nsystem hgx { gpus 8 x H100; fabric switch(nvswitch, link=nvlink) }\n'
BACKWARD = """
  dy  = tensor bf16[4096, 1024] shard rows
  x   = tensor bf16[4096, 1024] shard rows
  u   = tensor bf16[4096, 8192] shard cols
  h   = tensor bf16[4096, 4096] shard cols
  wdn = tensor bf16[4096, 1024] shard rows
  wup = tensor bf16[1024, 8192] shard cols
  dyg   = all_gather(dy)
  dh    = gemm(dyg, wdn.t)
  d_wdn = gemm(h.t, dyg)
  du    = swiglu_back(u, dh)
  dx    = reduce_scatter(gemm(du, wup.t))
  xg    = all_gather(x)
  d_wup = gemm(xg.t, du)
"""
FORWARD = """
  x    = tensor bf16[4096, 1024] shard rows
  wqkv = tensor bf16[1024, 2048] shard cols
  wo   = tensor bf16[1024, 1024] shard rows
  qkv = gemm(all_gather(norm(x)), wqkv)
  a   = attention(qkv, heads=16, kv_heads=8, causal=yes)
  y   = add(x, reduce_scatter(gemm(a, wo)))
"""


def compiled(body: str, rest: str = "") -> Scenario:
    (found,) = compile_text(f"{HEAD}workload w on hgx {{\n{body}\n}}\n{rest}").workloads
    return found


def graph(body: str) -> Workload:
    return compiled(body).workload


def test_collectives_and_kernels_become_pairs() -> None:
    ops = {op.name: op for op in graph(BACKWARD).ops}

    assert {name: op.label for name, op in ops.items()} == {
        "dh": "AG+GEMM",
        "d_wdn": "GEMM",
        "du": "row_wise",
        "dx": "GEMM+RS",
        "xg": "all_gather",
        "d_wup": "GEMM",
    }
    shapes = {name: op.shape.gemm for name, op in ops.items() if op.shape.gemm is not None}
    assert {name: (gemm.m, gemm.n, gemm.k) for name, gemm in shapes.items()} == {
        "dh": (4096, 512, 1024),
        "d_wdn": (512, 1024, 4096),
        "dx": (4096, 1024, 1024),
        "d_wup": (1024, 1024, 4096),
    }


def test_a_pair_in_a_graph_is_the_pair_alone() -> None:
    alone = """
  x = tensor bf16[4096, 1024] shard rows
  w = tensor bf16[1024, 8192] shard cols
  y = gemm(all_gather(x), w)
"""
    (scenario,) = cases_in(compile_text(f"{HEAD}workload w on hgx {{\n{alone}\n}}\n"))
    (op, _) = graph(alone + "  z = norm(y)").ops

    assert op.shape.pattern is scenario.shape.pattern
    assert (op.shape.gemm, op.shape.kernel) == (scenario.shape.gemm, scenario.shape.kernel)
    moved, other = op.shape.moved, scenario.shape.moved
    assert moved is not None and other is not None
    assert (moved.rows, moved.cols, moved.shard) == (other.rows, other.cols, other.shard)


def test_reads_say_what_of_an_op_is_taken() -> None:
    ops = {op.name: op for op in graph(BACKWARD).ops}

    assert [(read.made_by, read.what) for read in ops["d_wdn"].reads] == [("", Made.OUTPUT), ("dh", Made.MOVED)]
    dx = ops["dx"].reads[0]
    assert (dx.tensor, dx.made_by, dx.by_rows, dx.moves) == ("du", "du", True, False)
    assert [read.moves for read in ops["dh"].reads] == [True, False]
    assert not any(read.by_rows for read in ops["d_wup"].reads)


def test_names_of_what_a_definition_does_beside_its_collective() -> None:
    assert [(op.name, op.label) for op in graph(FORWARD).ops] == [
        ("qkv_norm", "row_wise"),
        ("qkv", "AG+GEMM"),
        ("a", "attention"),
        ("y", "GEMM+RS"),
        ("y_add", "add"),
    ]


def test_kernels_take_the_part_of_a_rank() -> None:
    found = graph(FORWARD)
    attention = found.op("a").shape.kernel
    tensors = {tensor.name: tensor for tensor in found.tensors}

    assert attention == AttentionShape(1, 2, 1, 4096, 4096, 64, DType.BF16, causal=True)
    assert (tensors["a"].rows, tensors["a"].cols, tensors["a"].shard) == (4096, 1024, Shard.COLS)
    assert (tensors["y"].rows, tensors["y"].shard) == (4096, Shard.ROWS)
    norm = found.op("qkv_norm").shape.kernel
    assert norm is not None and norm.output_bytes == norm.operand_bytes == 4096 // 8 * 1024 * 2


def test_gelu_is_the_end_of_its_gemm_unless_others_read_it() -> None:
    ends = "x = tensor bf16[512, 512]; w = tensor bf16[512, 512]; u = gemm(x, w); h = gelu(u); y = norm(h)"
    kernels = f"{ends}; z = norm(u)"

    assert [op.name for op in graph(ends.replace("; ", "\n")).ops] == ["u", "y"]
    assert [op.name for op in graph(kernels.replace("; ", "\n")).ops] == ["u", "h", "y", "z"]


def test_a_kernel_that_needs_what_is_gathered_twice_is_no_pair() -> None:
    """The product would wait for the norm, which needs what the same op gathers."""
    found = graph("""
  x = tensor bf16[4096, 1024] shard rows
  g = all_gather(x)
  n = norm(g)
  y = gemm(g, n.t)
""")

    assert [(op.name, op.shape.pattern) for op in found.ops] == [
        ("g", Pattern.ALL_GATHER),
        ("n", Pattern.KERNEL),
        ("y", Pattern.GEMM),
    ]


PARTS = """
  q = tensor bf16[4096, 1024] shard cols
  k = tensor bf16[4096, 1024] shard cols
  a = tensor bf16[4096, 1024] shard cols
  r = tensor bf16[4096, 1024] shard rows
  d = attention_back(norm(q), k, k, a, a, heads=8)
"""


def test_parts_of_a_result_and_what_is_transposed_may_have_names() -> None:
    named = graph(f"{PARTS}g = all_gather(r)\nv = d.v\nt = v.t\ny = gemm(t, g)")
    in_line = graph(f"{PARTS}g = all_gather(r)\ny = gemm(d.v.t, g)")

    assert named.ops == in_line.ops and [op.name for op in named.ops] == ["d_norm", "d", "g", "y"]
    taken, _ = named.op("y").reads
    assert (taken.tensor, taken.seen, taken.part) == ("d", "d.v.t", ColumnPart("v", 2048, 1024, 3072))
    gemm = named.op("y").shape.gemm
    assert gemm is not None and (gemm.m, gemm.n, gemm.k) == (128, 1024, 4096)
    assert list(named.results[-2:]) == [("v", "d", Made.OUTPUT), ("t", "d", Made.OUTPUT)]


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("y = norm(d.x)", r"MGS203[^\n]*d has no part 'x'\n[^\n]*\n[^\n]*\n[^\n]*it has: q, k, v"),
        ("y = norm(q.q)", r"MGS203[^\n]*q has no part 'q'"),
        ("y = norm(d.q.q)", r"MGS203[^\n]*d.q has no part 'q'"),
        ("y = norm(d.t.q)", r"MGS203[^\n]*d.t has no part 'q'"),
        ("v = d.v\nrepeat 2 v as a", r"MGS310[^\n]*'v' is d.v, and no tensor of its own"),
        ("v = d.v\nv = d.k", r"MGS206[^\n]*'v' is defined twice"),
    ],
)
def test_parts_that_are_none(said: str, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        graph(f"{PARTS}{said}\n")


@pytest.mark.parametrize(
    ("operands", "message"),
    [
        ("q, k, a, a, heads=8", "k is \\[4096, 128\\]; 1 kv_heads of 128 need \\[4096, 256\\]"),
        ("q, s, s, a, a, heads=8", "q has 4096 rows and s 2048"),
        ("q, k, k, s, a, heads=8", "s is \\[2048, 128\\]; 1 heads of 128 beside q need \\[4096, 128\\]"),
    ],
)
def test_gradients_of_attention_that_do_not_fit(operands: str, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        graph(f"{PARTS}s = tensor bf16[2048, 1024] shard cols\ny = attention_back({operands})\n")


def test_layers() -> None:
    found = graph(f"{BACKWARD}  repeat 80 dx as dy")

    assert found.repeat is not None
    assert (found.repeat.count, found.repeat.result, found.repeat.as_input) == (80, "dx", "dy")


def test_what_is_a_pair_stays_one() -> None:
    text = f"{HEAD}workload w on hgx {{ x = tensor bf16[512, 512]; w = tensor bf16[512, 512]; y = gemm(x, w) }}\n"
    found = compile_text(text)

    assert [scenario.name for scenario in cases_in(found)] == ["w"]
    assert several_in(found) == ()


@pytest.mark.parametrize("layers", [0, 5000])
def test_layers_have_a_range(layers: int) -> None:
    with pytest.raises(CompileError, match="MGS307"):
        graph(f"{BACKWARD}  repeat {layers} dx as dy")


def test_a_file_may_hold_both() -> None:
    pair = "x = tensor bf16[512, 512]; w = tensor bf16[512, 512]; y = gemm(x, w)"
    found = compile_text(f"{HEAD}workload w on hgx {{\n{BACKWARD}\n}}\nworkload p on hgx {{ {pair} }}\n")

    assert ([one.name for one in cases_in(found)], [one.name for one in several_in(found)]) == (["p"], ["w"])
    assert found.scenario() is found.workloads[0] and found.scenario("p") is found.workloads[1]
