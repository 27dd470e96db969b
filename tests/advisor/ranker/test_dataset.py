from random import Random

import numpy as np
import pytest

from magus.advisor.ranker import dataset, randomised
from magus.advisor.ranker.dataset import Dataset, build_dataset, sample_choices
from magus.advisor.ranker.features import NAMES
from magus.advisor.ranker.randomised import MAX_UNIT_BYTES, base_scenario, random_scenario
from magus.compiler.ir import Pattern
from magus.compiler.planning.build import reject_choice
from magus.simcore import PACKET_BYTES


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of a few thousand line-hops, three choices a scenario."""
    monkeypatch.setattr(randomised, "MAX_SERIAL_LINE_HOPS", 3000)
    monkeypatch.setattr(dataset, "CHOICES_PER_SCENARIO", 3)


def test_a_scenario_depends_on_seed_and_index_alone() -> None:
    assert random_scenario(1, 5) == random_scenario(1, 5)
    assert random_scenario(1, 5) != random_scenario(1, 6)
    assert random_scenario(1, 5) != random_scenario(2, 5)


def test_scenarios_cover_patterns_fabrics_and_sizes() -> None:
    drawn = [random_scenario(0, idx) for idx in range(40)]

    assert {scenario.workload.pattern for scenario, _ in drawn} == {Pattern.AG_GEMM, Pattern.GEMM_RS}
    assert {scenario.system.fabric.topology.name for scenario, _ in drawn} == {"full_mesh", "ring", "switch"}
    assert {scenario.num_ranks for scenario, _ in drawn} == {2, 4, 8}
    assert {scenario.gpu.name for scenario, _ in drawn} == {"MI300X", "H100"}
    rows = [scenario.workload.gemm.m for scenario, _ in drawn if scenario.workload.gemm is not None]
    assert min(rows) <= 64 and max(rows) >= 8192
    assert all(PACKET_BYTES <= unit <= MAX_UNIT_BYTES for _, unit in drawn)


def test_hardware_stays_near_the_shipped_profiles() -> None:
    for idx in range(20):
        scenario, _ = random_scenario(3, idx)
        shipped = base_scenario(scenario.gpu.name, "full_mesh(xgmi)", 8).gpu
        for moved, figure in (
            (scenario.gpu.sms, shipped.sms),
            (scenario.gpu.hbm.achieved_bytes_per_s, shipped.hbm.achieved_bytes_per_s),
            (scenario.gpu.gemm.tile_ticks, shipped.gemm.tile_ticks),
            (scenario.gpu.dma.setup_ticks, shipped.dma.setup_ticks),
        ):
            assert 0.69 * figure <= moved <= 1.31 * figure


def test_samples_are_feasible_and_hold_every_template_that_fits() -> None:
    scenario, _ = random_scenario(0, 1)

    found = sample_choices(scenario, Random(0), 24)

    assert len(found) == len(set(found)) <= 24
    assert all(reject_choice(scenario, choice) is None for choice in found)
    assert found[0].template == "serial"


@pytest.mark.usefixtures("quick")
def test_rows_are_simulated_choices() -> None:
    told: list[tuple[int, int]] = []

    found = build_dataset(0, 3, progress=lambda done, total: told.append((done, total)))

    assert found.features.shape == (len(found.simulated_ticks), len(NAMES))
    assert set(found.scenario_idx.tolist()) == {0, 1, 2}
    assert (found.simulated_ticks > 0).all()
    assert told == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.slow
def test_the_number_of_workers_does_not_matter() -> None:
    alone, together = build_dataset(0, 3, workers=1), build_dataset(0, 3, workers=2)

    assert np.array_equal(alone.features, together.features)
    assert np.array_equal(alone.simulated_ticks, together.simulated_ticks)
    assert np.array_equal(alone.scenario_idx, together.scenario_idx)


def test_of_takes_rows() -> None:
    whole = Dataset(np.eye(3), np.arange(3), np.array([0, 0, 1]))

    part = whole.of(whole.scenario_idx == 0)

    assert part.features.shape == (2, 3)
    assert part.simulated_ticks.tolist() == [0, 1]
