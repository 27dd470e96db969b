"""What uneven routing costs in products of experts, and what other places and copies would buy."""

import pytest

from magus.advisor import AdviceOptions, recommend_workload
from magus.advisor.answer.extrapolation import imbalance_lines, imbalance_of
from magus.advisor.solver.memory import check_workload_memory
from magus.compiler import compile_text
from magus.compiler.ir import TICKS_PER_US, GroupedGemmShape, Scenario
from magus.compiler.planning.build import ScheduleError
from magus.simcore.kernels.dispatch import work_of

TEXT = """use "nvidia/h100"
system s {{ gpus 8 x H100; fabric switch(nvswitch, link=nvlink) }}
workload w on s {{
  x = tensor bf16[8192, 7168] shard rows
  w1 = tensor fp8[{experts} * 7168, 4096] shard rows
  w2 = tensor fp8[{experts} * 2048, 7168] shard rows
  h = grouped_gemm(dispatch(x, experts=256, top=8, type=fp8, routing={law}), w1)
  y = combine(grouped_gemm(swiglu(h), w2), type=bf16){more}
}}
"""


def scenario(law: str, experts: int = 256, more: str = "", rows: int = 8192) -> Scenario:
    text = TEXT.replace("8192", str(rows)).format(law=law, experts=experts, more=more)
    return compile_text(text).scenario("w")


def products_us(law: str, experts: int = 256) -> float:
    """The products of experts, each alone, of a workload that is written so."""
    found = scenario(law, experts)
    kernels = [case.shape.kernel for case in found.cases]
    products = [each for each in kernels if isinstance(each, GroupedGemmShape)]
    return sum(work_of(found.gpu, each, found.gpu.sms).alone_ticks for each in products) / TICKS_PER_US


def test_even_rows_cost_nothing() -> None:
    assert not any(list(imbalance_lines(scenario(law))) for law in ("uniform", "stride"))


@pytest.mark.quick(1)
@pytest.mark.parametrize("law", ["power_law(1.2, seed=1)", "sampled(1.9, seed=1)"])
def test_what_other_places_and_copies_buy_is_what_they_take_if_they_are_written(law: str) -> None:
    found = imbalance_of(scenario(law))
    assert found is not None and found.hot > 1.3
    document = found.document

    assert document["products_us"] == products_us(law)
    assert document["uniform_us"] == products_us("uniform")
    assert document["placed_greedy_us"] == products_us(f"{law}, placed=greedy")
    assert [count for count, _ in found.replicas] == [8, 32]
    for count, ticks in found.replicas:
        assert ticks / TICKS_PER_US == products_us(f"{law}, replicas={count}", 256 + count)


def test_it_is_told_in_a_sentence() -> None:
    (said,) = imbalance_lines(scenario("power_law(1.2, seed=1)"))

    assert said.startswith("The hottest rank has 1.63 times the mean rows of experts") and "32 replicas 1." in said


def test_an_answer_begins_its_reasons_with_it() -> None:
    advice = recommend_workload(scenario("power_law(1.2, seed=1)", rows=512), AdviceOptions(verify=False))

    assert advice.reasons[:1] == tuple(imbalance_lines(advice.scenario))


@pytest.mark.slow
def test_replicas_beyond_memory_are_named() -> None:
    with pytest.raises(ScheduleError) as caught:
        check_workload_memory(scenario("power_law(1.2), replicas=1792", 2048, "\n  repeat 61 y as x"))

    assert caught.value.rejection.hint.startswith("fewer replicas of experts, ")
