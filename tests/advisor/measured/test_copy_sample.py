"""A sample of measured copies by SMs, simulated and held against the closed form."""

import pytest

from magus.advisor.measured.tables.collectives import SmCopies
from magus.advisor.measured.tables.samples import sampled_copies, simulated_copies


def copies(gpu: str, *sms: int) -> list[SmCopies]:
    return [SmCopies(gpu, 8, count, f"copy {count}", 2.0e9, 1.0, "t.csv") for count in sms]


def test_each_gpu_has_a_sample_that_depends_on_the_seed_alone() -> None:
    found = copies("H100", *range(4, 12)) + copies("B200", 4, 8)
    first, again, other = (list(sampled_copies(found, 3, seed)) for seed in (5, 5, 6))

    assert [(each[0].gpu, len(each)) for each in first] == [("H100", 3), ("B200", 2)]
    assert first == again != other


@pytest.mark.parametrize("gpu", ["H100", "B200"])
def test_below_the_limit_the_simulator_agrees_with_the_closed_form(gpu: str) -> None:
    ticked: list[int] = []
    found = simulated_copies(copies(gpu, 4, 8, 12), lambda: ticked.append(1))

    assert found is not None and found.agrees
    assert (found.gpu, found.operation, found.rows, len(ticked)) == (gpu, "SM copy", 3, 3)


def test_beyond_the_limit_of_one_kernel_the_link_is_what_counts() -> None:
    found = simulated_copies(copies("H100", 24), lambda: None)

    assert found is not None and not found.agrees
    assert found.largest == pytest.approx(1 - 315 / 375, abs=0.02)
    assert found.worst == "copy 24, 24 SMs"


def test_without_copies_nothing_is_simulated() -> None:
    assert simulated_copies([], lambda: None) is None
