"""Times of single kernels and collectives, where they are known, and nowhere else."""

import json
from pathlib import Path

import pytest

from magus.advisor import Oracle, RequestError
from magus.advisor.oracle.times import LATENCY
from magus.compiler.ir import DType, GemmShape
from magus.simcore.kernels.gemm import gemm_work
from magus.simcore.kernels.nccl import NcclCollective, collective_time
from tests.helpers.some import some

H100 = Oracle(gpu="H100", ranks=8)
MIB = 1 << 20


def test_a_collective_takes_what_the_form_of_the_profile_says() -> None:
    gpu = H100.machine.gpu

    for name in some([each.value for each in NcclCollective]):
        assert H100.collective_us(name, 32 * MIB) == collective_time(gpu, NcclCollective(name), 32 * MIB, 8).us
        assert H100.collective_us(name, 32 * MIB, ranks=4) == collective_time(gpu, NcclCollective(name), 32 * MIB, 4).us


def test_a_gemm_takes_what_the_form_of_the_profile_says() -> None:
    gpu = H100.machine.gpu
    ticks = gemm_work(gpu, GemmShape(4096, 3584, 8192, DType.BF16), gpu.sms).alone_ticks

    assert H100.kernel_us(4096, 3584, 8192) == pytest.approx(ticks / 1e8)
    assert H100.kernel_us(4096, 3584, 8192, "fp16") == H100.kernel_us(4096, 3584, 8192)


def test_a_latency_is_that_of_the_smallest_collective_known() -> None:
    assert H100.collective_us("all_gather", LATENCY) == H100.collective_us("all_gather", 512)


@pytest.mark.parametrize(
    ("name", "num_bytes", "ranks"),
    [
        ("all_gather", 1 << 30, 8),
        ("all_gather", 256, 8),
        ("all_gather", -1, 8),
        ("all_gather", MIB, 3),
        ("all_gather", MIB, 16),
        ("broadcast", MIB, 8),
        ("all_gatherv", MIB, 8),
    ],
)
def test_an_unmeasured_collective_has_no_time(name: str, num_bytes: int, ranks: int) -> None:
    assert H100.collective_us(name, num_bytes, ranks) is None


@pytest.mark.parametrize(
    ("m", "n", "k", "dtype"),
    [(1 << 17, 4096, 4096, "bf16"), (4096, 8, 4096, "bf16"), (0, 4096, 4096, "bf16"), (4096, 4096, 4096, "fp32")],
)
def test_an_unmeasured_gemm_has_no_time(m: int, n: int, k: int, dtype: str) -> None:
    assert H100.kernel_us(m, n, k, dtype) is None


def test_collectives_are_known_behind_one_switch_alone() -> None:
    assert Oracle(gpu="H100", ranks=8, topology="ring").collective_us("all_gather", MIB) is None
    assert Oracle(gpu="MI300X", ranks=8).collective_us("all_reduce", MIB) is None


def test_more_ranks_than_the_system_has_have_no_time() -> None:
    assert Oracle(gpu="H100", ranks=4).collective_us("all_gather", MIB, ranks=8) is None


def test_a_system_may_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "machine.mgs"
    file.write_text('use "nvidia/h100"\nsystem hgx { gpus 8 x H100; fabric switch(nvswitch, link=nvlink) }\n')

    assert Oracle(system_file=str(file)).kernel_us(4096, 4096, 4096) == H100.kernel_us(4096, 4096, 4096)


@pytest.mark.parametrize("where", [{"gpu": "H10", "ranks": 8}, {"gpu": "H100", "ranks": 0}, {"ranks": 8}])
def test_an_unknown_machine_is_an_error(where: dict[str, str | int]) -> None:
    with pytest.raises(RequestError):
        Oracle(**where)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", ["fp8", "fp32", "int3"])
def test_a_trace_has_the_types_of_the_measurements(dtype: str) -> None:
    with pytest.raises(RequestError):
        H100.kineto_trace([(4096, 4096, 4096)], dtype)


def test_a_trace_has_every_gemm_in_four_layouts_and_collectives_of_all_sizes() -> None:
    trace = json.loads(H100.kineto_trace([(4096, 3584, 8192), (4096, 3584, 8192), (1 << 17, 64, 64)]))
    events = trace["traceEvents"]

    products = [event for event in events if event["name"] == "aten::mm"]
    assert len(products) == 4
    assert {str(event["args"]["Input Strides"]) for event in products} == {
        str([left, right]) for left in ([8192, 1], [1, 4096]) for right in ([3584, 1], [1, 8192])
    }
    known_us = H100.kernel_us(4096, 3584, 8192)
    kernels = {event["args"]["External id"]: event["dur"] for event in events if event["name"] == "gemm"}
    assert all(kernels[event["args"]["External id"]] == pytest.approx(known_us, rel=1e-5) for event in products)
    gathers = [event for event in events if event["args"].get("Collective name") == "_allgather_base"]
    assert [event["args"]["Out msg nelems"] for event in gathers] == [256 << shift for shift in range(21)]
    assert trace["magus"]["gpu"] == "H100"
    assert trace["magus"]["hash"].startswith("sha256:")


def test_a_scattered_sum_is_counted_by_what_a_rank_keeps() -> None:
    events = json.loads(H100.kineto_trace([]))["traceEvents"]
    args = next(event["args"] for event in events if event["args"]["Collective name"] == "_reduce_scatter_base")

    assert (args["In msg nelems"], args["Out msg nelems"]) == (256, 32)
