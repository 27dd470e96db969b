"""Products that traces have by other names and types: which are read, which are counted, and by which reason."""

import json
from typing import Any

import pytest

from magus.advisor.measured.traces.chakra import read_chakra
from magus.advisor.measured.traces.run import PairShape, Product, find_pairs, is_product_kernel, product_of
from magus.compiler import compile_text
from magus.compiler.ir import DType, GroupedGemmShape, Pattern
from tests.advisor.measured.test_chakra import pieces as byte_pieces
from tests.advisor.measured.test_traces import refused, run_of, written
from tests.helpers import chakra
from tests.helpers.traces import BF16, HALF, Event, collective, gemm, trace

M, N, K = 4096, 3584, 8192
FP8 = "c10::Float8_e4m3fn"


def product(
    name: str, dims: list[Any], dtype: str | list[str] = BF16, kernel: str = "nvjet_tst_128x256", number: int = 1
) -> list[Event]:
    """An operation of any name with its inputs, and its kernel 200 us later."""
    types = [dtype] * len(dims) if isinstance(dtype, str) else dtype
    operation, run = gemm(number, (1, 1, 1), 200.0, 370.0)
    operation["name"], operation["args"] = name, {"External id": number, "Input Dims": dims, "Input type": types}
    run["name"] = kernel
    return [operation, run]


def gathered(events: list[Event], elements: int = M * K) -> str:
    """A trace in which an all_gather, which brings so many elements, stands before the events."""
    return trace([collective("_allgather_base", (elements // 8, elements), 0, 190), *events])


@pytest.mark.parametrize(
    ("name", "dims", "types", "expected"),
    [
        ("aten::mm", [[M, K], [K, N]], BF16, Product(M, N, K, DType.BF16)),
        ("aten::_scaled_mm", [[M, K], [K, N], [], []], [FP8, FP8, "float", "float"], Product(M, N, K, DType.FP8)),
        ("aten::_addmm_activation", [[N], [M, K], [K, N]], HALF, Product(M, N, K, DType.FP16)),
        ("aten::linear", [[2, M // 2, K], [N, K], []], BF16, Product(M, N, K, DType.BF16)),
        ("aten::bmm", [[4, 512, K], [4, K, N]], BF16, Product(2048, N, K, DType.BF16, 4)),
        ("aten::_grouped_mm", [[M, K], [16, K, N], [16]], [BF16, BF16, "int"], Product(M, N, K, DType.BF16, 16)),
        ("_C::cutlass_scaled_mm", [[M, N], [M, K], [K, N]], [BF16, FP8, FP8], Product(M, N, K, DType.FP8)),
        ("vllm::rocm_unquantized_gemm", [[M, K], [N, K], []], BF16, Product(M, N, K, DType.BF16)),
        ("vllm::apply_w8a8_block_fp8_linear", [[M, K], [N, K]], [BF16, FP8], Product(M, N, K, DType.FP8)),
        ("sgl_kernel::fp8_blockwise_scaled_mm", [[M, K], [K, N]], FP8, Product(M, N, K, DType.FP8)),
        ("_LayerNormLinear", [[M // 2, 2, K], [K], [], [N, K]], BF16, Product(M, N, K, DType.BF16, gathers=True)),
        ("_LayerNormLinear", [[M, K], [K], [N, K]], BF16, Product(M, N, K, DType.BF16, gathers=True)),
        ("_Linear", [[N, K], [M, 1, K], []], BF16, Product(M, N, K, DType.BF16, gathers=True)),
        ("_Linear", [[N, K], [], [], [M, K], []], BF16, Product(M, N, K, DType.BF16, gathers=True)),
        ("aten::mm", [[M, K], [K, N]], "float", "in float32, for which no GPU of the library has a rate"),
        ("aten::_int_mm", [[M, K], [K, N]], "signed char", "in int8, for which no GPU of the library has a rate"),
        ("aten::mm", None, None, "without shapes"),
        ("aten::mm", [[], []], ["", ""], "without shapes"),
        ("aten::mm", [[M, K], [M, N]], BF16, "whose sizes do not meet"),
        ("aten::mm", [[0, K], [K, N]], BF16, "with a size of 0, or above 16,777,216"),
        ("_LayerNormMLP", [[M, K]], BF16, "of TransformerEngine, several products in one operation"),
        ("vllm::moe_forward", [[M, K]], BF16, "of a fused mixture of experts, two products in one operation"),
        ("_C::gptq_marlin_gemm", [[M, K]], BF16, "with weights of 4 bits, a type that is not simulated"),
        ("aten::add", [[M, K], [M, K]], BF16, None),
    ],
)  # fmt: skip
def test_what_an_operation_is(name: str, dims: Any, types: Any, expected: object) -> None:
    listed = [types] * len(dims) if isinstance(types, str) else types

    assert product_of(name, dims, listed) == expected


def test_float32_is_counted_and_nothing_is_said_of_shapes() -> None:
    many = [
        event for number in range(1092) for event in product("aten::mm", [[M, K], [K, N]], "float", number=number + 1)
    ]
    code, message = refused(gathered([*many, *product("_LayerNormMLP", [[M, K]], number=5000)]))

    assert code == "MGS631" and "record_shapes" not in message
    assert "1,092 GEMMs in float32, for which no GPU of the library has a rate; 1 GEMM of Trans" in message


def test_what_is_not_used_stands_beside_what_is() -> None:
    text = gathered([*product("aten::mm", [[M, K], [K, N]]), *product("aten::mm", [[8, 8], [8, 8]], "float", number=2)])

    assert "not used: 1 GEMM in float32" in written(text)


def test_a_product_under_an_unknown_name_is_counted_under_it() -> None:
    _, message = refused(gathered(product("mine::special", [[M, K], [N, K]])))
    assert "1 GEMM of mine::special, which is no known product" in message
    graphs = product("aten::mm", [[M, K], [K, N]])[1:]
    _, message = refused(gathered([*graphs, *product("aten::add", [[8]], kernel="vectorized_add", number=9)]))
    assert "1 GEMM whose operation the trace does not have, as in CUDA graphs" in message


@pytest.mark.parametrize(
    ("kernel", "found"),
    [
        ("nvjet_qqtst_128x192", True),
        ("Cijk_Ailk_Bljk_HHS", True),
        ("triton_tem_fused_addmm_relu_2", True),
        ("triton_tem_fused_flex_attention_0", False),
        ("ampere_bf16_s16816gemm_bf16", True),
        ("void cutlass::device_kernel<flash::FlashAttnFwdSm90>", False),
        ("void at::native::vectorized_elementwise_kernel", False),
    ],
)
def test_kernels_that_are_products(kernel: str, found: bool) -> None:
    assert is_product_kernel(kernel) is found


def test_transformer_engine_has_the_time_of_its_gemm_and_the_type_of_its_kernel() -> None:
    events = product("_LayerNormLinear", [[M, K], [K], [], [N, K]], kernel="nvjet_qqtst_128x256")
    norm = {**events[1], "name": "void transformer_engine::rmsnorm_fwd_kernel", "ts": 195.0, "dur": 4.0}
    (found,) = run_of(gathered([events[0], norm, events[1]])).gemms

    assert (found.start_us, found.end_us, found.dtype) == (200.0, 570.0, DType.FP8)


@pytest.mark.parametrize("rows", [M, M // 8])
def test_transformer_engine_gathers_the_rows_of_its_rank(rows: int) -> None:
    """With sequence parallelism the operation has the rows of this rank, and gathers those of all."""
    (pair,) = find_pairs(run_of(gathered(product("_LayerNormLinear", [[rows, 1, K], [K], [], [N, K]]))))

    assert pair.shape == PairShape("all_gather", M, N, K, DType.BF16, 8)


def test_experts_before_and_behind_an_all_to_all() -> None:
    events = [
        collective("all_to_allv", (M * K, M * K), 0, 190),
        *product("aten::_grouped_mm", [[M, K], [24, K, N], [24]]),
        *product("aten::_grouped_mm", [[M, N], [24, N, K], [24]], number=2),
        collective("all_to_allv", (M * K, M * K), 600, 200),
    ]
    events[4]["ts"] = 580.0
    text = written(trace(events))
    first, second = (compile_text(text).scenario(name).case for name in ("a2a_experts_1", "experts_a2a_2"))

    assert (first.shape.pattern, second.shape.pattern) == (Pattern.A2A_GEMM, Pattern.GEMM_A2A)
    shapes = [each.shape.compute for each in (first, second)]
    assert [
        (shape.n, shape.k, len(shape.rows), sum(shape.rows)) for shape in shapes if isinstance(shape, GroupedGemmShape)
    ] == [(N, K, 24, M), (K, N, 24, M)]
    assert "get as many rows in an all_to_all" in text and "not predicted" not in text


@pytest.mark.parametrize(
    ("name", "shapes", "types", "says"),
    [
        ("aten::_scaled_mm", [[M, K], [K, N]], FP8, "1 all_gather in bf16 beside a GEMM in fp8: a pair has one type"),
        ("aten::bmm", [[4, M // 4, K], [4, K, N]], BF16, "1 all_gather beside the products of several experts"),
        ("aten::mm", [[M * K // 100, 100], [100, N]], BF16, "beside a GEMM of 335544 rows"),
    ],
)
def test_sizes_that_fit_and_are_no_pair_hear_why(name: str, shapes: Any, types: str, says: str) -> None:
    elements = shapes[0][0] * shapes[0][1] * (shapes[0][2] if len(shapes[0]) > 2 else 1)
    ranks = 7 if "335544" in says else 8
    moved = collective("_allgather_base", (elements // ranks, elements), 0, 190, ranks)

    assert says in refused(trace([moved, *product(name, shapes, types)]))[1]


def test_the_all_reduce_of_vllm_has_its_ranks_in_its_name() -> None:
    kernel = {
        "ph": "X",
        "cat": "kernel",
        "name": "void vllm::cross_device_reduce_2stage<__nv_bfloat16, 8>(x)",
        "ts": 600,
        "dur": 90,
        "args": {"External id": 7},
    }
    events = [*product("aten::mm", [[M, K], [K, N]]), kernel]
    launch = {
        "ph": "X",
        "cat": "cpu_op",
        "name": "_C_custom_ar::all_reduce",
        "ts": 590,
        "dur": 9,
        "args": {"External id": 7, "Input Dims": [[], [M, N], [M, N]], "Input type": ["Scalar", BF16, BF16]},
    }

    assert "1 all_reduce of vLLM's own kernel without its size" in refused(trace(events))[1]
    assert "y = all_reduce(gemm(x, w))" in written(trace([*events, launch]))


@pytest.mark.parametrize("name", ["void multimem_all_reduce_kernel<bf16>", "userbuffers_fp16_sum", "deep_ep::dispatch"])
def test_collectives_by_other_kernels_are_counted(name: str) -> None:
    kernel = {"ph": "X", "cat": "kernel", "name": name, "ts": 600, "dur": 90, "args": {"External id": 7}}
    message = refused(trace([*product("aten::mm", [[M, K], [K, N]]), kernel]))[1]

    assert "1 collective by a kernel that is none of NCCL" in message


def test_collectives_of_other_kinds_are_counted() -> None:
    events = [
        *product("aten::mm", [[M, K], [K, N]]),
        collective("broadcast", (8, 8), 0, 1),
        collective("allreduce", (8, 8), 5, 1),
    ]
    del events[3]["args"]["Group size"]
    message = refused(trace(events))[1]

    assert "1 all_reduce without its size and ranks; 1 collective that no pair has (broadcast)" in message


def test_chakra_counts_alike() -> None:
    inputs = {"shapes": [[M, K], [K, N]], "types": ["Tensor(float)"] * 2, "values": [[1], [2]]}
    operation = chakra.node(11, "aten::mm", chakra.COMPUTE, 1, **inputs, is_cpu_op=True)
    nodes = [chakra.groups(("0", 8)), operation, chakra.gemm(11, (M, N, K), 370)[1]]
    run = read_chakra(byte_pieces(chakra.trace(nodes)))

    assert run.unused == ("1 GEMM in float32, for which no GPU of the library has a rate",)


@pytest.mark.parametrize(
    "value", [None, True, -1, "8", [], {}, [[True, 1], [1, 1]], [[10**30, 2], [2, 2]], [1, 2], [None, [2, 2]]]
)
def test_inputs_of_every_kind(value: Any) -> None:
    for name in ("aten::mm", "_Linear", "aten::_grouped_mm", "_C_custom_ar::all_reduce"):
        for key in ("Input Dims", "Input type"):
            events = product(name, [[8, 8], [8, 8]])
            events[0]["args"][key] = value
            assert json.dumps(run_of(trace(events)).unused)
