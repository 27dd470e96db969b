"""TorchInductor orders the collectives of four layers by Magus' times for a GPU that is not here.

python examples/runtimes/inductor_overlap.py [ROWS ...]

Each layer gathers its weights over eight ranks and multiplies. The graph is traced with fake tensors, in a fake process
group, so that a laptop shows the order that eight H100 would have. In a real job only the two lines of CONFIG are
needed, before torch.compile.
"""

import copy
import sys
from unittest import mock

import torch
import torch.distributed as dist
from torch._inductor import config
from torch._inductor.fx_passes.overlap_scheduling import schedule_overlap_bucketing_from_inductor_configs
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.distributed.fake_pg import FakeStore

from magus.advisor import Oracle

GPU, RANKS, WIDTH, LAYERS = "H100", 8, 4096, 4
CONFIG = {
    "aten_distributed_optimizations.enable_overlap_scheduling": True,
    "aten_distributed_optimizations.custom_runtime_estimation": Oracle(gpu=GPU, ranks=RANKS).inductor(),
}
WORDS = {"all_gather": "gather", "wait": "wait", "mm": "gemm"}


def traced(rows):
    """Return the graph of the layers for so many rows."""
    ops, group = torch.ops._c10d_functional, str(dist.group.WORLD.group_name)

    def forward(x, *shards):
        for shard in shards:
            x = torch.mm(x, ops.wait_tensor(ops.all_gather_into_tensor(shard, RANKS, group)))
        return x

    with FakeTensorMode():
        shards = [torch.empty(WIDTH // RANKS, WIDTH, dtype=torch.bfloat16) for _ in range(LAYERS)]
        return make_fx(forward)(torch.empty(rows, WIDTH, dtype=torch.bfloat16), *shards)


def order_of(graph):
    """Return the operations of a graph in their order, in words."""
    calls = [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]
    return " ".join(next(word for part, word in WORDS.items() if part in call) for call in calls)


def main(sizes):
    """Print the order before, and for each number of rows the one that Magus' times lead to."""
    dist.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
    # The scheduler asks the driver for rates before it asks CONFIG: a machine without a GPU has none to ask.
    rates = "torch.utils._runtime_estimation."
    with (
        mock.patch(f"{rates}get_gpu_dram_gbps", lambda: 3350),
        mock.patch(f"{rates}get_device_tflops", lambda dtype: 989.0),
        config.patch(CONFIG),
    ):
        print("as written:", order_of(traced(sizes[0])))
        for rows in sizes:
            graph = schedule_overlap_bucketing_from_inductor_configs(copy.deepcopy(traced(rows)))
            print(f"{rows:6} rows:", order_of(graph))
    dist.destroy_process_group()


if __name__ == "__main__":
    main([int(each) for each in sys.argv[1:]] or [512, 4096, 16384])
