"""A sample of measured copies by SMs, simulated and held against the closed form."""

import pytest

from magus.advisor.measured.tables.collectives import SmCopies
from magus.advisor.measured.tables.samples import Agreement, copy_samples


def copies(gpu: str, *sms: int) -> list[SmCopies]:
    return [SmCopies(gpu, 8, count, f"copy {count}", 2.0e9, 1.0, "t.csv") for count in sms]


def agreement(found: list[SmCopies], ticked: list[int]) -> Agreement | None:
    (sample,) = copy_samples(found, len(found), 0)
    return sample.agreement(lambda: ticked.append(1))


def test_each_gpu_has_a_sample_that_depends_on_the_seed_alone() -> None:
    found = copies("H100", *range(4, 12)) + copies("B200", 4, 8)
    first, again, other = (
        {each.gpu: [label for label, _ in each.rows] for each in copy_samples(found, 3, seed)} for seed in (5, 5, 6)
    )

    assert {gpu: len(labels) for gpu, labels in first.items()} == {"H100": 3, "B200": 2}
    assert first == again != other


@pytest.mark.parametrize("gpu", ["H100", "B200"])
def test_below_the_limit_the_simulator_agrees_with_the_closed_form(gpu: str) -> None:
    ticked: list[int] = []
    found = agreement(copies(gpu, 4, 8, 12), ticked)

    assert found is not None and found.agrees
    assert (found.gpu, found.operation, found.rows, len(ticked)) == (gpu, "SM copy", 3, 3)


def test_beyond_the_limit_of_one_kernel_the_link_is_what_counts() -> None:
    found = agreement(copies("H100", 24), [])

    assert found is not None and not found.agrees
    assert found.largest == pytest.approx(1 - 315 / 375, abs=0.02)
    assert found.worst == "copy 24, 24 SMs"


def test_without_copies_nothing_is_simulated() -> None:
    assert list(copy_samples([], 3, 0)) == []
