"""The callable for TorchInductor, with nodes that look like those of its graphs."""

from dataclasses import dataclass, field
from math import prod
from typing import Any

import pytest

from magus.advisor import Oracle
from magus.advisor.oracle.oracle import Estimator, torch_group_size

H100 = Oracle(gpu="H100", ranks=8)
ESTIMATE = Estimator(H100.collective_us, H100.kernel_us, {"0": 8, "pair": 2}.get)


@dataclass
class FakeTensor:
    shape: tuple[Any, ...]
    dtype: str = "torch.bfloat16"

    def numel(self) -> Any:
        return prod(self.shape)

    def element_size(self) -> int:
        return 2


@dataclass
class FakeNode:
    target: str
    val: FakeTensor | None = None
    args: tuple[object, ...] = ()
    kwargs: dict[str, object] = field(default_factory=dict)

    @property
    def meta(self) -> dict[str, object]:
        return {} if self.val is None else {"val": self.val}


def collective(name: str, rows: int, group: str = "0") -> FakeNode:
    return FakeNode(f"_c10d_functional.{name}.default", FakeTensor((rows, 4096)), ("input", group))


def product(m: int, k: int, n: int, dtype: str = "torch.bfloat16") -> FakeNode:
    left, right = (FakeNode("placeholder", FakeTensor(shape, dtype)) for shape in ((m, k), (k, n)))
    return FakeNode("aten.mm.default", FakeTensor((m, n), dtype), (left, right))


def us(milliseconds: float | None) -> Any:
    return None if milliseconds is None else pytest.approx(milliseconds * 1e3)


@pytest.mark.parametrize("name", ["all_gather_into_tensor", "all_gather_into_tensor_out", "all_reduce"])
def test_a_collective_is_requested_for_by_the_bytes_of_its_output(name: str) -> None:
    known = "all_reduce" if name == "all_reduce" else "all_gather"

    assert H100.collective_us(known, 4096 * 4096 * 2) == us(ESTIMATE(collective(name, 4096)))


def test_a_reduce_scatter_is_as_large_as_its_input() -> None:
    assert H100.collective_us("reduce_scatter", 8 * 512 * 4096 * 2) == us(
        ESTIMATE(collective("reduce_scatter_tensor", 512))
    )


def test_a_group_has_its_own_number_of_ranks() -> None:
    node = collective("all_to_all_single", 4096, "pair")
    by_name = FakeNode(node.target, node.val, ("input",), {"group_name": "pair"})

    assert H100.collective_us("all_to_all", 4096 * 4096 * 2, 2) == us(ESTIMATE(node)) == us(ESTIMATE(by_name))


def test_the_scheduler_may_ask_for_other_sizes_and_for_the_latency() -> None:
    node = collective("all_gather_into_tensor", 4096)

    assert H100.collective_us("all_gather", 1 << 20) == us(ESTIMATE(node, 1 << 20))
    assert H100.collective_us("all_gather", 512) == us(ESTIMATE(node, 0))


def test_a_product_is_requested_for_by_its_sizes() -> None:
    node = product(4096, 8192, 3584)
    with_bias = FakeNode("aten.addmm.default", node.val, ("bias", *node.args))

    assert H100.kernel_us(4096, 3584, 8192) == us(ESTIMATE(node)) == us(ESTIMATE(with_bias))


def test_waiting_takes_no_time_of_its_own() -> None:
    assert ESTIMATE(FakeNode("_c10d_functional.wait_tensor.default")) == 0.0


@pytest.mark.parametrize(
    "node",
    [
        FakeNode("aten.relu.default", FakeTensor((4096, 4096))),
        FakeNode("<built-in function getitem>", FakeTensor((4096, 4096))),
        FakeNode("add"),
        product(4096, 8192, 3584, "torch.float32"),
        FakeNode("aten.mm.default", None, product(64, 64, 64).args),
        FakeNode("aten.mm.default", FakeTensor(("s0", 64)), product(64, 64, 64).args),
        collective("all_gather_into_tensor_coalesced", 4096),
        collective("all_gather_into_tensor", 4096, "unknown"),
        collective("all_gather_into_tensor", 1 << 20),
        FakeNode("_c10d_functional.all_reduce.default", None, ("input", "sum", "0")),
    ],
    ids=lambda node: node.target,
)
def test_what_is_not_known_is_left_to_the_scheduler(node: FakeNode) -> None:
    assert ESTIMATE(node) is None


def test_without_torch_no_group_is_known() -> None:
    assert torch_group_size("no such group") is None
