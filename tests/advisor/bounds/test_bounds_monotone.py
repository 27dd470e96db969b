"""A better machine never raises the bound, a larger problem never lowers it."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magus.advisor.bounds.lower_bound import lower_bound
from magus.compiler.ir import OpCase, Pattern
from tests.helpers.marks import examples, thinned
from tests.helpers.oracle.lowering import on_gpu
from tests.helpers.scenarios.drawn import SYSTEMS, scenario_of

OVERLAPPED = (Pattern.AG_GEMM, Pattern.GEMM_RS, Pattern.GEMM_AR, Pattern.A2A_GEMM)
scenarios = st.builds(
    scenario_of,
    st.sampled_from([*OVERLAPPED, Pattern.ALL_GATHER, Pattern.ALL_REDUCE]),
    st.sampled_from(SYSTEMS[:3]),
    st.sampled_from([2, 4]),
    *(st.sampled_from([128, 512, 1024]) for _ in range(3)),
)
factors = st.integers(2, 5)
few = examples(4)


@few
@given(scenarios, factors)
def test_faster_links_never_raise_it(scenario: OpCase, factor: int) -> None:
    fabric = scenario.system.fabric
    link = replace(fabric.link, achieved_bytes_per_s=factor * fabric.link.achieved_bytes_per_s)
    faster = replace(scenario, system=replace(scenario.system, fabric=replace(fabric, link=link)))

    assert lower_bound(faster).ticks <= lower_bound(scenario).ticks


@pytest.mark.slow
@few
@given(scenarios, factors)
def test_faster_engines_and_memory_never_raise_it(scenario: OpCase, factor: int) -> None:
    gpu, bound = scenario.gpu, lower_bound(scenario).ticks
    dma = replace(gpu.dma, bytes_per_s=factor * gpu.dma.bytes_per_s, setup_ticks=gpu.dma.setup_ticks // factor)
    copies = replace(gpu.sm_copy, bytes_per_s=factor * gpu.sm_copy.bytes_per_s)
    memory = replace(gpu.hbm, achieved_bytes_per_s=factor * gpu.hbm.achieved_bytes_per_s)

    for better in (replace(gpu, dma=dma), replace(gpu, sm_copy=copies), replace(gpu, hbm=memory)):
        assert lower_bound(on_gpu(scenario, better)).ticks <= bound


@few
@given(scenarios, factors)
def test_slower_launches_never_lower_it(scenario: OpCase, factor: int) -> None:
    gpu = scenario.gpu
    launch = replace(gpu.launch, kernel_ticks=factor * gpu.launch.kernel_ticks, event_ticks=2 * gpu.launch.event_ticks)

    assert lower_bound(on_gpu(scenario, replace(gpu, launch=launch))).ticks >= lower_bound(scenario).ticks


@pytest.mark.quick(1)
@pytest.mark.parametrize("case", thinned(product(OVERLAPPED, SYSTEMS[:3]), 8))
def test_eight_times_the_rows_take_longer(case: tuple[Pattern, str]) -> None:
    pattern, system = case
    bounds = [lower_bound(scenario_of(pattern, system, 4, rows, 1024, 1024)).ticks for rows in (512, 4096, 32768)]

    assert bounds == sorted(bounds)
    assert bounds[2] > 4 * bounds[1]
