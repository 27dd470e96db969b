"""TorchInductor's overlap scheduler with Magus' times: the callable, and the trace for profile-guided estimates."""

import copy
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from magus.advisor import Oracle
from tests.helpers.paths import ROOT

torch: Any = pytest.importorskip("torch", minversion="2.13")
RANKS, WIDTH, LAYERS = 8, 4096, 4


def part(name: str) -> Any:
    """A module of torch."""
    return import_module(name)


@pytest.fixture(scope="module")
def group() -> Iterator[str]:
    """The name of a process group of eight ranks, of which this process plays one."""
    store = part("torch.testing._internal.distributed.fake_pg").FakeStore()
    torch.distributed.init_process_group("fake", rank=0, world_size=RANKS, store=store)
    with pytest.MonkeyPatch.context() as patch:
        # Without a GPU the scheduler's own estimate, which it makes first, asks a driver for its rates.
        patch.setattr("torch.utils._runtime_estimation.get_gpu_dram_gbps", lambda: 3350)
        patch.setattr("torch.utils._runtime_estimation.get_device_tflops", lambda dtype: 989.0)
        yield str(torch.distributed.group.WORLD.group_name)
    torch.distributed.destroy_process_group()


def layers(group: str, rows: int) -> Any:
    """A graph of layers, each of which gathers its weights and multiplies."""
    ops = torch.ops._c10d_functional

    def forward(x: Any, *shards: Any) -> Any:
        for shard in shards:
            x = torch.mm(x, ops.wait_tensor(ops.all_gather_into_tensor(shard, RANKS, group)))
        return x

    with part("torch._subclasses.fake_tensor").FakeTensorMode():
        weights = [torch.empty(WIDTH // RANKS, WIDTH, dtype=torch.bfloat16) for _ in range(LAYERS)]
        return part("torch.fx.experimental.proxy_tensor").make_fx(forward)(
            torch.empty(rows, WIDTH, dtype=torch.bfloat16), *weights
        )


def scheduled(graph: Any, **options: object) -> str:
    """The order of the operations after the overlap scheduler has run with ``options``."""
    config, passes = part("torch._inductor.config"), part("torch._inductor.fx_passes.overlap_scheduling")
    said = {"collective_bucketing": False, "insert_overlap_deps": False, **options}
    with config.patch({f"aten_distributed_optimizations.{name}": value for name, value in said.items()}):
        return order_of(passes.schedule_overlap_bucketing_from_inductor_configs(copy.deepcopy(graph)))


def order_of(graph: Any) -> str:
    words = {"all_gather": "AG", "wait": "wait", "mm": "mm"}
    calls = [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]
    return " ".join(next(word for part, word in words.items() if part in call) for call in calls)


def test_nodes_of_torch_have_the_times_of_the_oracle(group: str) -> None:
    oracle = Oracle(gpu="H100", ranks=RANKS)
    estimate = oracle.inductor()
    found = {str(node.target): estimate(node) for node in layers(group, 4096).graph.nodes}

    gather_us, product_us = oracle.collective_us("all_gather", WIDTH * WIDTH * 2), oracle.kernel_us(4096, WIDTH, WIDTH)
    assert found["_c10d_functional.all_gather_into_tensor.default"] == pytest.approx((gather_us or 0) / 1e3)
    assert found["aten.mm.default"] == pytest.approx((product_us or 0) / 1e3)
    assert found["_c10d_functional.wait_tensor.default"] == 0.0


def test_the_order_of_collectives_follows_the_times(group: str) -> None:
    estimate, ahead = Oracle(gpu="H100", ranks=RANKS).inductor(), []
    for rows in (512, 4096, 16384):
        graph = layers(group, rows)
        assert order_of(graph) == " ".join(["AG wait mm"] * LAYERS)
        ahead.append(scheduled(graph, custom_runtime_estimation=estimate).partition("mm")[0].count("AG"))

    assert ahead == [2, 3, 4], "the longer a product, the more weights are gathered beside it"


def test_profile_guided_estimates_read_the_trace(group: str, tmp_path: Path) -> None:
    oracle, file, graph = Oracle(gpu="H100", ranks=RANKS), tmp_path / "trace.json", layers(group, 4096)
    file.write_text(oracle.kineto_trace([(4096, WIDTH, WIDTH)]))
    profiles = part("torch._inductor.fx_passes.profile_guided_estimation")
    read, requested = profiles.ProfileGuidedEstimator(str(file)), oracle.inductor()

    for node in graph.graph.nodes:
        if "all_gather" in str(node.target) or "mm" in str(node.target):
            assert read(node) == pytest.approx(requested(node), rel=1e-4)
    by_trace = scheduled(graph, profile_guided_estimations_profile_path=str(file))
    assert by_trace == scheduled(graph, custom_runtime_estimation=requested)


def test_the_example_shows_more_gathers_ahead_of_longer_products() -> None:
    example = ROOT / "examples" / "runtimes" / "inductor_overlap.py"
    done = subprocess.run([sys.executable, str(example)], capture_output=True, text=True, check=True)

    before, *orders = [line.partition(": ")[2] for line in done.stdout.splitlines()]
    assert before == " ".join(["gather wait gemm"] * LAYERS)
    assert [order.partition("gemm")[0].count("gather") for order in orders] == [2, 3, 4]
