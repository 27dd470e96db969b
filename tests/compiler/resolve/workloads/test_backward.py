"""Backward passes that are derived: what goes back through each operation, what is held, and what is made again."""

import pytest
from hypothesis import given

from magus.compiler import CompileError, compile_file, compile_text
from magus.compiler.codes import Code
from magus.compiler.ir import AttentionBackShape, ColumnPart, DType, Workload
from magus.compiler.pipeline import written_out
from magus.examples import path
from tests.helpers.backward import layers, text_of
from tests.helpers.marks import examples

MLP = """
  x   = tensor bf16[8192, 8192] shard rows
  wup = tensor bf16[8192, 57344] shard cols
  wdn = tensor bf16[28672, 8192] shard rows
  u = gemm(all_gather(x), wup)
  h = swiglu(u)
  y = reduce_scatter(gemm(h, wdn))
  repeat 80 y as x
"""
ATTENTION = """
  x    = tensor bf16[4096, 1024] shard rows
  wqkv = tensor bf16[1024, 2048] shard cols
  wo   = tensor bf16[1024, 1024] shard rows
  qkv = gemm(all_gather(norm(x)), wqkv)
  a   = attention(qkv, heads=16, kv_heads=8, causal=yes)
  y   = add(x, reduce_scatter(gemm(a, wo)))
"""


def graph(text: str, name: str = "back") -> Workload:
    found = compile_text(text).scenario(name)
    assert found is not None
    return found.workload


def made(forward: str, keep: str = "") -> dict[str, str]:
    """What is made in the backward pass of ``forward``, as it is written out."""
    (_, body) = written_out(text_of(forward, keep)).split("workload back on hgx {")
    lines = (line.split("#")[0].split(" = ") for line in body.splitlines() if " = " in line)
    return {name.strip(): value.strip() for name, value in lines if not value.startswith("tensor")}


def test_that_of_an_mlp_is_the_written_one_op_by_op() -> None:
    written = compile_file(path("layers/llama70b_backward")).workloads[0].workload
    derived = graph(text_of(MLP, "u, h"))
    names = {op.name: other.name for op, other in zip(derived.ops, written.ops, strict=True)}

    assert names == {
        "d_h": "dh",
        "d_wdn": "d_wdn",
        "d_u": "du",
        "d_x": "dx",
        "x_gathered": "xg",
        "d_wup": "d_wup",
    }
    for op, other in zip(derived.ops, written.ops, strict=True):
        mine, theirs = op.shape, other.shape
        assert (mine.pattern, mine.gemm, mine.kernel) == (theirs.pattern, theirs.gemm, theirs.kernel)
        assert [(each.dtype, each.rows, each.cols, each.shard) for each in (mine.moved,) if each] == [
            (each.dtype, each.rows, each.cols, each.shard) for each in (theirs.moved,) if each
        ]
        assert [(names.get(read.made_by, ""), read.what, read.by_rows, read.moves) for read in op.reads] == [
            (read.made_by, read.what, read.by_rows, read.moves) for read in other.reads
        ]
    assert derived.repeat is not None
    assert (derived.repeat.count, derived.repeat.result, derived.repeat.as_input) == (80, "d_x", "d_y")


def test_through_attention_norms_and_what_is_added() -> None:
    assert made(ATTENTION, "qkv, a") == {
        "d_y_gathered": "all_gather(d_y)",
        "d_a": "gemm(d_y_gathered, wo.t)",
        "d_wo": "gemm(a.t, d_y_gathered)",
        "d_qkv": "attention_back(qkv, a, d_a, heads=16, kv_heads=8, causal=yes)",
        "d_qkv_norm": "reduce_scatter(gemm(d_qkv, wqkv.t))",
        "qkv_norm": "norm(x)",
        "qkv_norm_gathered": "all_gather(qkv_norm)",
        "d_wqkv": "gemm(qkv_norm_gathered.t, d_qkv)",
        "d_x": "add(d_y, norm_back(x, d_qkv_norm))",
    }
    kernel = graph(text_of(ATTENTION, "qkv, a")).op("d_qkv").shape.kernel
    assert kernel == AttentionBackShape(1, 2, 1, 4096, 4096, 64, DType.BF16, causal=True)


LATENT = """
  x  = tensor bf16[4096, 1024] shard rows
  wq = tensor bf16[1024, 2048]
  wk = tensor bf16[1024, 1024]
  q = gemm(norm(x), wq)
  kv = gemm(norm(x), wk)
  a = attention(q, kv, heads=16, kv_heads=4, causal=yes)
"""
APART = """
  q = tensor bf16[4096, 1024] shard cols
  k = tensor bf16[4096, 512] shard cols
  a = attention(norm(q), k, k, heads=16, kv_heads=8)
"""


NARROW = """
  x   = tensor bf16[8192, 8192] shard rows
  wup = tensor fp8[8192, 28672] shard cols
  wdn = tensor fp8[28672, 8192] shard rows
  u = gemm(all_gather(cast(norm(x), type=fp8)), wup, type=bf16)
  y = reduce_scatter(gemm(cast(gelu(u), type=fp8), wdn, type=bf16))
"""


def test_products_in_8_bits_have_gradients_in_them() -> None:
    """A gradient is cast once for both of its products, whose results are not cast back."""
    back = made(NARROW, "u")
    assert list(back) == [
        "d_y_gathered", "d_y_gathered_cast", "d_y_cast", "y_gelu", "y_cast", "d_wdn",
        "d_u", "d_u_cast", "d_u_cast2", "u_norm", "u_cast", "u_cast_gathered", "d_wup", "d_x",
    ]  # fmt: skip
    assert back["d_y_gathered_cast"] == "cast(d_y_gathered, type=fp8)"
    assert back["d_y_cast"] == "gemm(d_y_gathered_cast, wdn.t, type=bf16)"
    assert back["d_wdn"] == "gemm(y_cast.t, d_y_gathered_cast, type=bf16)"
    assert back["d_u"] == "gelu_back(u, d_y_cast)"
    assert back["d_u_cast2"] == "reduce_scatter(gemm(d_u_cast, wup.t, type=bf16))"
    assert back["d_x"] == "norm_back(x, d_u_cast2)"
    types = {op.name: (op.shape.gemm.dtype, op.shape.gemm.product) for op in graph(text_of(NARROW, "u")).ops
             if op.shape.gemm is not None}  # fmt: skip
    assert set(types.values()) == {(DType.FP8, DType.BF16)} and len(types) == 4


def test_gradients_of_two_types_are_not_added() -> None:
    """What was cast goes to a product, whose gradients have 16 bits, and to a kernel, whose gradients have 8."""
    both = NARROW.replace("u = gemm(", "c = cast(norm(x), type=fp8)\n  z = gelu(c)\n  u = gemm(").replace(
        "all_gather(cast(norm(x), type=fp8))", "all_gather(c)"
    )
    with pytest.raises(CompileError) as caught:
        made(both, "u")
    assert caught.value.first.code is Code.MGS310


def test_gradients_of_attention_that_are_apart_are_parts_of_one_result() -> None:
    found, back = made(LATENT, "q, kv"), graph(text_of(LATENT, "q, kv"))

    assert found["a"] == "attention(q, kv, heads=16, kv_heads=4, causal=yes)"
    assert found["a_back"] == "attention_back(q, kv, a, d_a, heads=16, kv_heads=4, causal=yes)"
    assert (found["d_q"], found["d_kv"]) == ("a_back.q", "a_back.kv")
    assert (found["d_q_norm"], found["d_wq"]) == ("gemm(d_q, wq.t)", "all_reduce(gemm(q_norm.t, d_q))")
    kernel = back.op("a_back").shape.kernel
    assert kernel == AttentionBackShape(1, 16, 4, 512, 512, 128, DType.BF16, causal=True)
    assert [op.name for op in back.ops if op.name in ("d_q", "d_kv")] == [], "what is taken of it is no op"
    gemm = back.op("d_kv_norm").shape.gemm
    assert gemm is not None and (gemm.m, gemm.n, gemm.k) == (512, 1024, 1024)
    reads = {op.name: read for op in back.ops for read in op.reads if read.made_by == "a_back"}
    assert reads["d_kv_norm"].part == ColumnPart("kv", 2048, 1024, 3072)
    assert reads["d_wk"].name == "a_back.kv"


def test_columns_that_a_norm_leaves_out_have_a_gradient_in_its_input() -> None:
    body = "x = tensor bf16[64, 576]; w = tensor bf16[512, 1024]; y = gemm(norm(x, rope=64), w)"
    found, back = made(body), graph(text_of(body))

    assert found["d_x"] == "norm_back(x, d_y_norm, rope=64)"
    kernel, before = back.op("d_x").shape.kernel, back.op("y_norm").shape.kernel
    assert kernel is not None and (kernel.operand_bytes, kernel.output_bytes) == (2 * 64 * 1024, 2 * 64 * 576)
    assert before is not None and (before.operand_bytes, before.output_bytes) == (2 * 64 * 512, 2 * 64 * 512)


def test_keys_that_are_values_too_have_both_gradients() -> None:
    found, back = made(APART), graph(text_of(APART))

    assert found["a_back"] == "attention_back(a_norm, k, k, a, d_a, heads=16, kv_heads=8)"
    assert (found["d_a_norm"], found["d_k"]) == ("a_back.q", "add(a_back.k, a_back.v)")
    kernel = back.op("a_back").shape.kernel
    assert kernel == AttentionBackShape(1, 2, 1, 4096, 4096, 64, DType.BF16, causal=False)
    assert [read.part for read in back.op("d_k").reads] == [
        ColumnPart("k", 1024, 512, 2048),
        ColumnPart("v", 1536, 512, 2048),
    ]


def test_batches_of_attention_that_is_apart() -> None:
    back = graph(text_of(f"{LATENT}  batch x by 256\n", "q, kv, a"))

    kernel = back.op("a_back").shape.kernel
    assert kernel == AttentionBackShape(2, 16, 4, 256, 256, 128, DType.BF16, causal=True)
    assert back.batch is not None and [count for count, _ in back.batch.cuts] == [2]


def test_keys_of_other_rows_have_no_gradient() -> None:
    forward = "q = tensor bf16[4096, 1024]; k = tensor bf16[8192, 1024]; y = norm(attention(q, k, k, heads=8))"
    with pytest.raises(CompileError, match=r"MGS520.*gradients of queries and of keys with other rows"):
        compile_text(text_of(forward))


@pytest.mark.parametrize(
    ("forward", "made"),
    [
        ("h = grouped_gemm(t, w1)\ny = combine(grouped_gemm(swiglu(h), w2))", "h"),
        ("y = combine(grouped_gemm(swiglu(grouped_gemm(t, w1)), w2))", "y_grouped_gemm"),
    ],
)
def test_rows_of_experts_are_not_those_of_a_tensor_that_was_kept(forward: str, made: str) -> None:
    tensors = "x = tensor bf16[4096, 1024] shard rows\nw1 = tensor bf16[16384, 1024] shard rows\n"
    sent = f"{tensors}w2 = tensor bf16[8192, 1024] shard rows\nt = dispatch(x, experts=16, top=2)\n{forward}"

    with pytest.raises(CompileError, match=rf"MGS520[^\n]*{made} is made again from t, which is kept without the rows"):
        compile_text(text_of(sent, "t"))
    assert compile_text(text_of(sent))


def test_a_layer_does_not_hand_on_a_part() -> None:
    forward = "x = tensor bf16[4096, 1024]\nk = tensor bf16[4096, 2048]\ny = attention(x, k, heads=8)\nrepeat 4 y as x"
    with pytest.raises(CompileError, match=r"MGS520[^\n]*the gradient of x is a part of what one kernel makes"):
        compile_text(text_of(forward))


def test_what_is_not_kept_is_made_again_before_it_is_needed() -> None:
    found = made(ATTENTION)

    assert list(found)[2:6] == ["qkv_norm", "qkv_norm_gathered", "qkv", "a"]
    assert found["a"] == "attention(qkv, heads=16, kv_heads=8, causal=yes)"


def test_products_whose_sums_are_wanted_stay_whole() -> None:
    twice = f"{ATTENTION}  z = norm(y)"

    assert made(twice, "qkv, a")["y"] == "add(x, y_reduce_scatter)"
    assert made(twice, "qkv, a")["y_reduce_scatter"] == "reduce_scatter(gemm(a, wo))"
    assert "y" not in made(twice, "qkv, a, y")


def test_parts_of_a_sum_are_added_before_they_are_scattered() -> None:
    both = """
  x = tensor bf16[4096, 1024] shard rows
  wq = tensor bf16[1024, 4096] shard cols
  wk = tensor bf16[1024, 4096] shard cols
  g = all_gather(x)
  y = add(gemm(g, wq), gemm(g, wk))
"""
    found = made(both)
    assert found["d_x"] == "reduce_scatter(add(gemm(d_y, wk.t), gemm(d_y, wq.t)))"
    assert [op.label for op in graph(text_of(both)).ops if op.name.startswith("d_x")] == [
        "GEMM",
        "GEMM",
        "add",
        "reduce_scatter",
    ]


def test_whole_activations_have_sums_for_all() -> None:
    found = made("""
  x  = tensor bf16[4096, 1024]
  w1 = tensor bf16[1024, 4096] shard cols
  w2 = tensor bf16[4096, 1024] shard rows
  h  = gelu(gemm(norm(x), w1))
  y  = add(x, all_reduce(gemm(h, w2)))
""")
    assert found["d_h"] == "gemm(d_y, w2.t)", "what was summed for all has its gradient on all"
    assert found["d_h_norm"] == "all_reduce(gemm(d_h_gemm, w1.t))"
    assert found["h_gemm"] == "gemm(h_norm, w1)", "gelu_back reads what was before the gelu"


def test_gathered_weights_have_scattered_gradients() -> None:
    found = made("""
  x = tensor bf16[4096, 1024] shard rows
  w = tensor bf16[4096, 1024] shard rows
  y = gemm(x, all_gather(w).t)
""")
    assert found == {
        "d_w": "reduce_scatter(gemm(d_y.t, x))",
        "w_gathered": "all_gather(w)",
        "d_x": "gemm(d_y, w_gathered)",
    }


def test_a_pair_has_one_too() -> None:
    up = (
        "\nx = tensor bf16[4096, 1024] shard rows\nw = tensor bf16[1024, 4096] shard cols\ny = gemm(all_gather(x), w)\n"
    )
    assert made(up) == {
        "d_x": "reduce_scatter(gemm(d_y, w.t))",
        "x_gathered": "all_gather(x)",
        "d_w": "gemm(x_gathered.t, d_y)",
    }


def test_names_that_are_taken_get_numbers() -> None:
    taken = f"let d_wo = 1\n{text_of(ATTENTION)}"
    assert "d_wo2" in {op.name for op in graph(taken).ops}


def test_what_is_kept_for_nothing_is_a_warning() -> None:
    warnings = compile_text(text_of(ATTENTION, "qkv, a, y, x")).warnings

    assert [(each.code, each.span.text) for each in warnings] == [(Code.MGS212, "y"), (Code.MGS212, "x")]


def test_batches_are_those_of_the_forward_pass() -> None:
    text = written_out(text_of(f"{ATTENTION}  batch x by 2048\n", "qkv, a"))
    back = graph(text_of(f"{ATTENTION}  batch x by 2048\n", "qkv, a"))

    assert "  batch d_y, x, qkv, a by 2048\n" in text
    assert back.batch is not None and [count for count, _ in back.batch.cuts] == [2]
    kernel = back.op("d_qkv").shape.kernel
    assert kernel == AttentionBackShape(2, 2, 1, 2048, 2048, 64, DType.BF16, causal=True)


def test_mistakes_of_the_forward_pass_are_reported_once() -> None:
    with pytest.raises(CompileError) as caught:
        written_out(text_of(ATTENTION.replace("norm(x)", "norm(z)")))
    assert [each.code for each in caught.value.diagnostics] == [Code.MGS203]


@pytest.mark.slow
@given(layers())
@examples(12)
def test_what_is_written_out_means_the_same(layer: tuple[str, str]) -> None:
    text = text_of(*layer)

    again = written_out(text)
    assert "backward" not in again and "shard" in again.split("workload back")[1]
    assert graph(again) == graph(text)
    assert written_out(again) == again


@given(layers())
@examples(12)
def test_every_input_has_a_gradient_of_its_form(layer: tuple[str, str]) -> None:
    text = text_of(*layer)
    forward, back = graph(text, "layer"), graph(text)
    tensors = {tensor.name: tensor for tensor in back.tensors}
    declared = [each for each in forward.tensors if each.name not in {name for name, _, _ in forward.results}]
    read = {read.tensor for op in forward.ops for read in op.reads}

    assert [
        (gradient.rows, gradient.cols, gradient.shard)
        for gradient in (tensors[f"d_{each.name}"] for each in declared if each.name in read)
    ] == [(each.rows, each.cols, each.shard) for each in declared if each.name in read]
