"""Two tensor-parallel linear layers that ask Magus at start-up how to overlap, and carry its plans out.

torchrun --nproc-per-node 2 examples/runtimes/pytorch_layers.py

On CPUs, over gloo: the advice is for the GPU that GPU names, and what is carried out is its order of copies, tiles and
waits. The result is compared with that of plain collectives.
"""

import os

import torch
import torch.distributed as dist

from magus.advisor import AdviceOptions, Advisor, Request
from magus.compiler.ir import Plan
from magus.runtime.over_torch.tensors import linear

GPU = "H100"
TOKENS, HIDDEN, INNER = 256, 128, 512


def plan_for(advisor, pattern, rows, x, w):
    """Return the system of a layer, from the shapes of its tensors here, and the plan to carry out."""
    request = Request(pattern, m=rows, n=w.shape[1], k=x.shape[1], dtype="bf16", gpu=GPU, ranks=dist.get_world_size())
    advice = advisor.recommend(request, AdviceOptions(verify=False))
    best = (advice.recommended, *advice.candidates)
    written = next(each for each in best if not each.is_library)  # a call of the library has no steps
    if dist.get_rank() == 0:
        print(f"{pattern}: {advice.verdict.value}, {advice.recommended.expression}; carried out: {written.expression}")
    case = advice.case
    return case.system, Plan.of_one(case.name, case.shape, written.schedule)


def main():
    """Ask, carry out, compare."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    x = torch.randn(TOKENS // ranks, HIDDEN)  # this rank's tokens
    up, down = torch.randn(HIDDEN, INNER // ranks), torch.randn(INNER // ranks, HIDDEN)  # its part of the weights

    advisor = Advisor.load()
    up_plan = plan_for(advisor, "AG+GEMM", TOKENS, x, up)
    hidden = torch.relu(linear(*up_plan, x, up))
    down_plan = plan_for(advisor, "GEMM+RS", TOKENS, hidden, down)
    y = linear(*down_plan, hidden, down)

    gathered = [torch.empty_like(x) for _ in range(ranks)]
    dist.all_gather(gathered, x)
    plain = torch.relu(torch.cat(gathered) @ up) @ down
    dist.all_reduce(plain)
    torch.testing.assert_close(y, plain.chunk(ranks)[rank], rtol=1e-3, atol=1e-3)
    print(f"rank {rank}: {tuple(y.shape)} as with plain collectives")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
