"""Backward passes are derivatives: what is derived, computed on numbers, against differences of the forward pass."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from magus.compiler.pipeline import written_out
from tests.helpers.backward import layers, text_of
from tests.helpers.marks import examples

SCALE = 128
"""Sizes of a text for each row or column here."""
EPS = 1e-5
DENSE = """
  x  = tensor bf16[M, 1024]
  w1 = tensor bf16[1024, 4096] shard cols
  w2 = tensor bf16[4096, 1024] shard rows
  h  = gelu(gemm(norm(x), w1))
  y  = add(x, all_reduce(gemm(h, w2)))
  repeat 4 y as x
"""
FSDP = """
  x  = tensor bf16[M, 1024] shard rows
  w1 = tensor bf16[1024, 4096] shard rows
  w2 = tensor bf16[1024, 4096] shard rows
  h  = gelu(gemm(x, all_gather(w1)))
  y  = add(x, gemm(h, all_gather(w2).t))
  repeat 4 y as x
"""


MOE = """
  x  = tensor bf16[M, 1024] shard rows
  w1 = tensor fp8[8 * 1024, 4096] shard rows
  w2 = tensor fp8[8 * 2048, 1024] shard rows
  t = dispatch(norm(x), experts=8, top=2, type=fp8)
  h = grouped_gemm(t, w1)
  y = add(x, combine(grouped_gemm(swiglu(h), w2), type=bf16))
  repeat 4 y as x
"""
LATENT = """
  x  = tensor bf16[M, 1024] shard rows
  w1 = tensor bf16[1024, 512]
  wq = tensor bf16[512, 1024]
  w2 = tensor bf16[1024, 256]
  wk = tensor bf16[256, 2048]
  wo = tensor bf16[1024, 1024]
  c = gemm(norm(x), w1)
  d = gemm(norm(x), w2)
  a = attention(gemm(norm(c), wq), gemm(norm(d), wk), heads=8)
  y = add(x, gemm(a, wo))
  repeat 4 y as x
"""
APART = """
  x  = tensor bf16[M, 1024] shard rows
  wq = tensor bf16[1024, 1024] shard cols
  wk = tensor bf16[1024, 1024] shard cols
  wo = tensor bf16[1024, 1024] shard rows
  g = all_gather(norm(x))
  k = gemm(g, wk)
  a = attention(gemm(g, wq), k, k, heads=8)
  y = add(x, reduce_scatter(gemm(a, wo)))
"""
EXPERTS, TOP = 8, 2


class Matrix(np.ndarray[Any, np.dtype[np.float64]]):
    """An array with ``.t``; ``turned`` is whether it is one. ``q``, ``k``, ``v`` and ``kv`` are parts of some."""

    turned = False
    q: "Matrix"
    k: "Matrix"
    v: "Matrix"
    kv: "Matrix"

    @property
    def t(self) -> "Matrix":
        transposed = matrix(self.T)
        transposed.turned = True
        return transposed


def matrix(values: Any) -> Matrix:
    return np.asarray(values, dtype=np.float64).view(Matrix)


def norm(x: Matrix) -> Matrix:
    return matrix(x / np.sqrt((x**2).mean(1, keepdims=True) + 1))


def norm_back(x: Matrix, dy: Matrix) -> Matrix:
    size = np.sqrt((x**2).mean(1, keepdims=True) + 1)
    return matrix(dy / size - x * (x * dy).mean(1, keepdims=True) / size**3)


def gelu(x: Matrix) -> Matrix:
    return matrix(x / (1 + np.exp(-1.702 * x)))


def gelu_back(x: Matrix, dy: Matrix) -> Matrix:
    share = 1 / (1 + np.exp(-1.702 * x))
    return matrix(dy * share * (1 + 1.702 * x * (1 - share)))


def swiglu(u: Matrix) -> Matrix:
    gate, up = map(matrix, np.split(u, 2, axis=1))
    return matrix(gelu(gate) * up)


def swiglu_back(u: Matrix, dh: Matrix) -> Matrix:
    gate, up = map(matrix, np.split(u, 2, axis=1))
    return matrix(np.hstack([gelu_back(gate, matrix(dh * up)), dh * gelu(gate)]))


def _heads(tensors: tuple[Matrix, ...], heads: int) -> Iterator[tuple[Matrix, ...]]:
    """Queries, keys, values and the weights of each head; packed tensors have them side by side."""
    q, k, v = (np.split(part, heads, axis=1) for part in np.split(np.hstack(tensors), 3, axis=1))
    for each in zip(q, k, v, strict=True):
        scores = np.exp(each[0] @ each[1].T)
        yield tuple(map(matrix, (*each, scores / scores.sum(1, keepdims=True))))


def attention(*tensors: Matrix, heads: int) -> Matrix:
    return np.hstack([weights @ v for _, _, v, weights in _heads(tensors, heads)]).view(Matrix)


def attention_back(*tensors: Matrix, heads: int) -> Matrix:
    *operands, a, da = tensors
    assert np.allclose(a, attention(*operands, heads=heads)), "the result is that of the forward pass"
    parts: list[list[Matrix]] = [[], [], []]
    for (q, k, v, weights), of_head in zip(_heads(tuple(operands), heads), np.split(da, heads, axis=1), strict=True):
        seen = of_head @ v.T
        scores = weights * (seen - (seen * weights).sum(1, keepdims=True))
        for part, gradient in zip(parts, (scores @ k, scores.T @ q, weights.T @ of_head), strict=True):
            part.append(gradient)
    made = np.hstack([each for part in parts for each in part]).view(Matrix)
    made.q, made.k, made.v = map(matrix, np.split(made, 3, axis=1))
    made.kv = matrix(np.hstack([made.k, made.v]))
    return made


def routed(rows: int) -> list[int]:
    """The row that each row of the experts comes from, expert by expert."""
    by_expert = sorted((copy % EXPERTS, copy // TOP) for copy in range(rows * TOP))
    return [row for _, row in by_expert]


def dispatch(x: Matrix, experts: int, top: int, type: None = None) -> Matrix:
    assert (experts, top) == (EXPERTS, TOP)
    return matrix(x[routed(len(x))])


def combine(y: Matrix, type: None = None) -> Matrix:
    total = np.zeros((len(y) // TOP, y.shape[1]))
    np.add.at(total, routed(len(total)), y)
    return matrix(total)


def grouped_gemm(x: Matrix, w: Matrix) -> Matrix:
    if x.turned:  # a sum over the rows of each expert
        parts = zip(np.split(x, EXPERTS, axis=1), np.split(w, EXPERTS), strict=True)
    else:
        parts = zip(np.split(x, EXPERTS), np.split(w, EXPERTS, axis=int(w.turned)), strict=True)
    return matrix(np.vstack([one @ other for one, other in parts]))


def whole(x: Matrix) -> Matrix:
    """What collectives do to a tensor of all ranks: parts of sums are sums here."""
    return x


OPERATIONS = {
    "gemm": lambda a, b: matrix(a @ b),
    "add": lambda a, b: matrix(a + b),
    **dict.fromkeys(("all_gather", "reduce_scatter", "all_reduce"), whole),
    "norm": norm,
    "norm_back": norm_back,
    "gelu": gelu,
    "gelu_back": gelu_back,
    "swiglu": swiglu,
    "swiglu_back": swiglu_back,
    "attention": attention,
    "attention_back": attention_back,
    "dispatch": dispatch,
    "combine": combine,
    "grouped_gemm": grouped_gemm,
    **dict.fromkeys(("bf16", "fp8")),
}


def statements(text: str, workload: str) -> dict[str, str]:
    """Definitions of a workload in order."""
    body = text.split(f"workload {workload} on hgx {{")[1].split("\n}")[0]
    body = re.sub(r",\n +", ", ", body)  # a statement on several lines
    lines = (line.split("#")[0].partition(" = ") for line in body.splitlines() if " = " in line)
    return {name.strip(): value.strip() for name, _, value in lines}


def shape(declaration: str) -> tuple[int, int] | None:
    found = re.search(r"\[(.*), (.*)\]", declaration)
    if not declaration.startswith("tensor") or found is None:
        return None
    rows, cols = (eval(size, {"M": 2048}) for size in found.groups())
    return rows // SCALE, cols // SCALE


def computed(definitions: Mapping[str, str], given: Mapping[str, Matrix]) -> dict[str, Matrix]:
    """Run definitions; a declared tensor is among those that are given."""
    values: dict[str, Matrix] = {}
    for name, text in definitions.items():
        values[name] = given[name] if text.startswith("tensor") else eval(text, {**OPERATIONS, **values})
    return values


def check(text: str) -> None:
    written, rng = written_out(text), np.random.default_rng(7)
    forward, back = statements(written, "layer"), statements(written, "back")
    shapes = {name: found for name, value in forward.items() if (found := shape(value))}
    inputs = {name: matrix(rng.normal(size=found) / 4) for name, found in shapes.items()}
    results = computed(forward, inputs)
    last = list(results)[-1]
    d_last = matrix(rng.normal(size=results[last].shape))
    gradients = computed(back, {**results, f"d_{last}": d_last})

    checked = [name for name in shapes if f"d_{name}" in gradients]
    assert checked
    for name in checked:
        way = matrix(rng.normal(size=inputs[name].shape))
        ends = [
            float((computed(forward, {**inputs, name: matrix(inputs[name] + sign * EPS * way)})[last] * d_last).sum())
            for sign in (1, -1)
        ]
        assert (ends[0] - ends[1]) / (2 * EPS) == pytest.approx(
            float((gradients[f"d_{name}"] * way).sum()), rel=1e-4, abs=1e-5
        )


@pytest.mark.parametrize("forward", [DENSE, FSDP])
def test_whole_activations_and_gathered_weights(forward: str) -> None:
    check(text_of(forward))


@pytest.mark.parametrize("keep", ["", "t, h"])
def test_rows_that_go_to_experts(keep: str) -> None:
    check(text_of(MOE, keep))


@pytest.mark.parametrize(("forward", "keep"), [(LATENT, ""), (LATENT, "c, d, a"), (APART, "k")])
def test_attention_whose_queries_keys_and_values_are_apart(forward: str, keep: str) -> None:
    check(text_of(forward, keep))


@given(layers())
@examples(15)
def test_drawn_layers(layer: tuple[str, str]) -> None:
    check(text_of(*layer))
