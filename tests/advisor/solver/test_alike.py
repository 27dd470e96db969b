"""Ranks that are found alike are: the permutations map every link, and every route, onto one of the same kind."""

import pytest

from magus.advisor.solver.images import images_of_ranks
from magus.advisor.solver.trees import TreeFlow, graph_of
from tests.advisor.solver.test_forest import FABRICS, fabric_of

KINDS = {
    "bridged triangles": [4, 2],
    "a broken link": [2, 3],
    "two switches": [6],
    "torus": [8],
    "two boxes": [8],
    "three boxes": [9],
    "links of one way": [1] * 5,
}
"""How many ranks there are of each kind."""


@pytest.mark.parametrize("name", FABRICS)
@pytest.mark.parametrize("flow", [TreeFlow.DOWN, TreeFlow.UP, TreeFlow.BOTH])
def test_images_keep_what_edges_load(name: str, flow: TreeFlow) -> None:
    ranks, fabric = fabric_of(name)
    graph = graph_of(fabric, ranks, flow)

    assert sorted(len(images.ranks) for images in graph.images.values()) == sorted(KINDS[name])
    assert sorted(image[root] for root, images in graph.images.items() for image in images.ranks) == list(range(ranks))
    for images in graph.images.values():
        for image, links, edges in zip(images.ranks, images.links, images.edges, strict=True):
            assert sorted(image) == list(range(len(image)))
            assert (graph.loads[edges][:, links] == graph.loads).all()


def test_one_kind_of_link_more_parts_what_was_alike() -> None:
    ring = {(rank, (rank + 1) % 6): 1 for rank in range(6)}
    assert [len(each) for each in images_of_ranks(6, ring, lambda _: True).values()] == [6]
    assert len(images_of_ranks(6, ring | {(0, 1): 2}, lambda _: True)) == 6
    assert len(images_of_ranks(6, ring, lambda image: image[0] in (0, 3))) == 3, "routes that do not follow"
