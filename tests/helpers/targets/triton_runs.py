"""Files of ``magus plan --format triton`` carried out on the CPU: kernels by Triton's interpreter, copies by a thread.

TRITON_INTERPRET must be set before Triton is imported.
"""

import importlib.util
import time
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import Any

import torch

from .gemm_world import World
from .rewritten import KERNELS

LIMIT_S = 60


def module_of(text: str, folder: Path) -> ModuleType:
    """The file as a module; Triton reads the source of kernels from files."""
    path = folder / "plan.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("plan", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class TritonWorld(World):
    """A world whose kernels are those of the file: one rank's after the other, beside the copies of all."""

    def run_triton(self, epoch: int = 1) -> None:
        """Run kernels and copies to their end."""
        thread = Thread(target=self.run_hosts, args=(epoch,), daemon=True)
        thread.start()
        for rank in self.ranks:
            self.run_kernel(rank, epoch)
        thread.join()

    def run_hosts(self, epoch: int) -> None:
        """Copies and sums of all ranks; if they stand still, kernels that wait are let go."""
        left, end = {rank: list(self.plan.STEPS[rank]) for rank in self.ranks}, time.monotonic() + LIMIT_S
        while any(left.values()) and time.monotonic() < end:
            for rank in self.ranks:
                left[rank] = self.plan.carry_out_ready(left[rank], self.hosts[rank], epoch)
            time.sleep(0.001)
        if any(left.values()):
            for flags in self.flags:
                flags.fill(epoch + (1 << 20))

    def run_kernel(self, rank: int, epoch: int) -> None:
        """The kernel of one rank; tensors share the memory of the arrays."""
        tables = [torch.tensor(each or [0], dtype=torch.int32) for each in self.tables[rank]]
        self.launch(rank, [*tables, torch.from_numpy(self.flags[rank]), epoch])

    def launch(self, rank: int, tables: list[Any]) -> None:
        """Launch the shipped kernel."""
        matrices = [torch.from_numpy(self.buffers[rank][name]) for name in "abc"]
        matrices.append(torch.from_numpy(self.partial[rank]))
        blocks = dict.fromkeys(("BLOCK_M", "BLOCK_N", "BLOCK_K"), self.block)
        constants = {**blocks, "SLICED": self.plan.SLICED, "ALIGNED": self.plan.ALIGNED}
        strides = [matrix.stride(0) for matrix in matrices]
        self.plan.plan_gemm[(self.programs,)](*matrices, *tables, *strides, **constants)


class RewrittenWorld(TritonWorld):
    """A world whose kernel is a user's, rewritten; ``kernel`` names a file of ``kernels``."""

    kernel = ""

    def launch(self, rank: int, tables: list[Any]) -> None:
        """Launch the rewritten kernel."""
        name, arguments = KERNELS[self.kernel]
        plain, constants = arguments([torch.from_numpy(self.buffers[rank][each]) for each in "abc"])
        getattr(self.plan, name)[(self.programs,)](*tables, *plain, **constants)
