from dataclasses import replace

import numpy as np
import pytest

from magus.advisor.estimate.makespan import estimate_ticks
from magus.advisor.ranker.features import FEATURES, LOG_ESTIMATE_US, NAMES, features_of, matrix
from magus.compiler.collectives import ALGORITHM_BY_NAME
from magus.compiler.ir import TICKS_PER_US, TOPOLOGIES, Choice, EngineChoice, EngineKind, Scenario
from magus.compiler.planning.build import build_schedule
from magus.compiler.templates import BY_NAME
from tests.helpers.scenarios import scenarios as make

DMA7, SM16 = EngineChoice(EngineKind.DMA, 7), EngineChoice(EngineKind.SM, 16)
CHOICES = (
    Choice("serial", 8, DMA7),
    Choice("uniform_fused_1d", 32, SM16),
    Choice("hetero_unfused_1d", 16, DMA7, streams=4),
    Choice("uniform_fused_2d", 16, DMA7),
)


def value(scenario: Scenario, choice: Choice, name: str) -> float:
    return features_of(scenario, build_schedule(scenario, choice))[NAMES.index(name)]


def test_names_are_distinct() -> None:
    assert len(set(NAMES)) == len(NAMES) == len(FEATURES)


@pytest.mark.parametrize(
    "scenario",
    [make.ag_gemm(2048, 8192, 4096), make.gemm_rs(2048, 4096, 8192), make.ag_gemm(512, 8192, 4096, gpu=make.h100())],
)
def test_matrix_has_a_finite_row_for_each_choice(scenario: Scenario) -> None:
    schedules = [build_schedule(scenario, choice) for choice in CHOICES]

    found = matrix(scenario, schedules)

    assert found.shape == (len(CHOICES), len(NAMES))
    assert found.dtype == np.float64
    assert np.isfinite(found).all()
    assert tuple(found[1]) == features_of(scenario, schedules[1])


def test_matrix_of_no_choices_has_no_rows() -> None:
    assert matrix(make.ag_gemm(2048, 8192, 4096), []).shape == (0, len(NAMES))


@pytest.mark.parametrize(
    "scenario", [make.lone_gather(1024, 4096), make.lone_scatter(1024, 4096), make.lone_gemm(512, 512, 512)]
)
def test_features_of_half_a_workload_are_finite(scenario: Scenario) -> None:
    found = features_of(scenario, build_schedule(scenario, Choice("serial", scenario.num_ranks, DMA7)))

    assert np.isfinite(found).all()


def test_the_estimate_is_a_feature() -> None:
    scenario = make.ag_gemm(2048, 8192, 4096)

    schedule = build_schedule(scenario, CHOICES[0])

    found = features_of(scenario, schedule)[LOG_ESTIMATE_US]

    ticks = estimate_ticks(scenario, schedule).makespan_ticks
    assert np.exp(found) == pytest.approx(ticks / TICKS_PER_US)


def test_decomposition_loss_is_one_for_serial_and_more_for_parts() -> None:
    scenario = make.ag_gemm(2048, 8192, 4096)

    assert value(scenario, CHOICES[0], "dil") == 1.0
    assert value(scenario, CHOICES[2], "dil") > 1.0


def test_no_feature_names_a_template_or_a_topology() -> None:
    words = {word for name in NAMES for word in (name, *name.split("_"))}

    assert words.isdisjoint({*BY_NAME, *ALGORITHM_BY_NAME, *(topology.name for topology in TOPOLOGIES)})


def test_equal_plans_have_equal_features_whatever_they_are_called() -> None:
    scenario = make.ag_gemm(2048, 8192, 4096)
    schedule = build_schedule(scenario, CHOICES[1])
    fabric = replace(scenario.system.fabric, topology=replace(scenario.system.fabric.topology, name="another"))
    elsewhere = replace(scenario, system=replace(scenario.system, fabric=fabric))

    found = features_of(elsewhere, replace(schedule, expression="another"))

    assert found == features_of(scenario, schedule)
