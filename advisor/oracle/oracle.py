"""The face of the times: which GPU, then how long a GEMM or a collective takes."""

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from ...compiler.ir import DType, GemmShape, System
from ...compiler.request.request import Request, one_of
from ...compiler.request.scenario import scenario_of
from .times import TYPES, collective_us, gemm_us, trace_text

COLLECTIVES = {
    "all_gather_into_tensor": "all_gather",
    "all_gather_into_tensor_out": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter",
    "all_reduce": "all_reduce",
    "all_to_all_single": "all_to_all",
}
"""Operations of ``torch.ops._c10d_functional``, and what they are called here."""

DTYPES = {"torch.bfloat16": "bf16", "torch.float16": "fp16"}
_FIRST_FACTOR = {"mm": 0, "addmm": 1}
"""Where the first matrix stands among the arguments."""


def torch_group_size(name: str) -> int | None:
    """Return the size of a process group of this process; None if torch has none of that name, or is not loaded."""
    c10d: Any = sys.modules.get("torch.distributed.distributed_c10d")
    if c10d is None:
        return None
    try:
        return int(c10d._resolve_process_group(name).size())
    except (AttributeError, KeyError, RuntimeError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class Estimator:
    """``(fx.Node, override_size) -> ms | None``, from ``collective_us`` and ``kernel_us`` of an ``Oracle``.

    ``group_size`` returns the number of ranks of a process group by its name.
    """

    collective_us: Callable[[str, int, int | None], float | None]
    kernel_us: Callable[[int, int, int, str], float | None]
    group_size: Callable[[str], int | None] = torch_group_size

    def __call__(self, node: Any, override_size: int | None = None) -> float | None:
        """Return the time of ``node``; ``override_size`` are bytes of its output, 0 asks for the latency."""
        words = str(node.target).split(".")
        space, name = (words[0], words[1]) if len(words) > 1 else ("", words[0])
        if space == "_c10d_functional":
            if name == "wait_tensor":
                return 0.0
            us = self._collective_us(node, name, override_size)
        else:
            us = self._product_us(node, name) if space == "aten" and name in _FIRST_FACTOR else None
        return None if us is None else us / 1e3

    def _collective_us(self, node: Any, name: str, override_size: int | None) -> float | None:
        val, ranks = node.meta.get("val"), self.group_size(_group_name(node))
        if name not in COLLECTIVES or val is None or ranks is None:
            return None
        num_bytes = val.numel() * val.element_size() if override_size is None else override_size
        if name == "reduce_scatter_tensor":
            num_bytes *= ranks  # its output is what one rank keeps
        return self.collective_us(COLLECTIVES[name], num_bytes, ranks) if isinstance(num_bytes, int) else None

    def _product_us(self, node: Any, name: str) -> float | None:
        first, val = node.args[_FIRST_FACTOR[name]].meta.get("val"), node.meta.get("val")
        if first is None or val is None or str(val.dtype) not in DTYPES:
            return None
        sizes = (*val.shape, first.shape[-1])
        if not all(isinstance(size, int) and size > 0 for size in sizes):
            return None  # symbolic: known when the graph runs
        m, n, k = sizes
        return self.kernel_us(m, n, k, DTYPES[str(val.dtype)])


def _group_name(node: Any) -> str:
    return str(node.kwargs["group_name"] if "group_name" in node.kwargs else node.args[-1])


@dataclass(frozen=True, slots=True)
class Oracle:
    """How long one kernel or one collective takes, with nothing beside it; threads may share it.

    Attributes
    ----------
    gpu, ranks, topology, system_file, system
        As in ``Request``: a GPU that ships, how many of them and their fabric; or a ``.mgs`` file with a system.

    Raises
    ------
    RequestError
        If one of them is unknown, or they do not fit together.
    """

    gpu: str = ""
    ranks: int = 0
    topology: str = ""
    system_file: str = ""
    system: str = ""
    machine: System = field(init=False, repr=False)

    def __post_init__(self) -> None:
        where = {name: getattr(self, name) for name in ("gpu", "ranks", "topology", "system_file", "system")}
        object.__setattr__(self, "machine", scenario_of(Request("GEMM", m=128, n=128, k=128, **where)).system)

    def kernel_us(self, m: int, n: int, k: int, dtype: str = "bf16") -> float | None:
        """Return the time of [m, k] x [k, n] on one GPU, with its launch.

        It is None where the constants of the profile were not fitted to such sizes or such a type.
        """
        one_of("dtype", dtype, [each.value for each in DType])
        return gemm_us(self.machine.gpu, GemmShape(m, n, k, DType(dtype)))

    def collective_us(self, name: str, num_bytes: int, ranks: int | None = None) -> float | None:
        """Return the time of the library's collective among ``ranks`` GPUs, by default all, without its launch.

        It is None for other than ``all_gather``, ``reduce_scatter``, ``all_reduce`` and ``all_to_all``, beyond one
        switch, and where the constants of the profile were not fitted to so many bytes or GPUs.

        Parameters
        ----------
        num_bytes
            The whole tensor, as ``size`` of nccl-tests; 0 asks for the least time.
        """
        return collective_us(self.machine, name, num_bytes, self.machine.num_ranks if ranks is None else ranks)

    def inductor(self) -> Estimator:
        """Return a callable for ``custom_runtime_estimation`` of TorchInductor's overlap scheduler."""
        return Estimator(self.collective_us, self.kernel_us)

    def kineto_trace(self, gemms: Iterable[tuple[int, int, int]], dtype: str = "bf16") -> str:
        """Return a trace for profile-guided estimates of TorchInductor: JSON as ``torch.profiler`` writes it.

        It has the GEMMs of ``gemms`` (m, n, k) that are known, which are found by their exact shape alone, and
        collectives of all known sizes, doubling, among all ranks, between which the reader interpolates.
        """
        one_of("dtype", dtype, [each.value for each in TYPES])
        return trace_text(self.machine, DType(dtype), [GemmShape(*sizes, DType(dtype)) for sizes in gemms])
