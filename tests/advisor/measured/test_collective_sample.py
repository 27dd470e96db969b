"""A sample of measured collectives, simulated and held against the closed form."""

import pytest

from magus.advisor.measured.tables.collectives import MeasuredPoint
from magus.advisor.measured.tables.samples import Sample, collective_on, collective_samples
from magus.simcore.kernels.nccl import NcclCollective

SIZES = (512, 1 << 16, 1 << 20, 1 << 25)


def points(gpu: str, operation: NcclCollective) -> list[MeasuredPoint]:
    return [MeasuredPoint(gpu, operation, ranks, size, 1.0, "t.csv") for ranks in (2, 8) for size in SIZES]


def labels(all_points: list[MeasuredPoint], count: int, seed: int) -> dict[tuple[str, str], list[str]]:
    samples = collective_samples(all_points, count, seed)
    return {(each.gpu, each.operation): [label for label, _ in each.rows] for each in samples}


def test_each_gpu_and_operation_has_a_sample_that_depends_on_the_seed_alone() -> None:
    all_points = points("H100", NcclCollective.ALL_GATHER) + points("B200", NcclCollective.ALL_REDUCE)
    first, again = labels(all_points, 3, 5), labels(all_points[::-1], 3, 5)
    other = labels(all_points, 3, 6)

    assert [len(each) for each in first.values()] == [3, 3]
    assert {gpu for gpu, _ in first} == {"H100", "B200"}
    assert first == again != other
    assert [len(each) for each in labels(all_points, 200, 0).values()] == [8, 8]


@pytest.mark.quick(1)
@pytest.mark.parametrize("operation", NcclCollective)
def test_the_simulator_agrees_with_the_closed_form(operation: NcclCollective) -> None:
    ticked: list[int] = []
    (sample,) = collective_samples(points("H100", operation), 8, 0)
    found = sample.agreement(lambda: ticked.append(1))

    assert found is not None and found.agrees
    assert (found.gpu, found.operation, found.rows, len(ticked)) == ("H100", operation.value, 8, 8)
    assert found.counted == f"8 of {operation.value}"
    assert found.worst in [f"{ranks} GPUs, {size:,} B" for ranks in (2, 8) for size in SIZES]


def test_without_rows_nothing_is_simulated() -> None:
    assert list(collective_samples([], 8, 0)) == []
    assert Sample("H100", "all_gather", ()).agreement(lambda: None) is None


def test_a_node_is_that_of_the_shipped_library() -> None:
    node = collective_on("A100", 4).system

    assert (node.num_ranks, node.gpu.name, node.fabric.link.name) == (4, "A100", "nvlink")
