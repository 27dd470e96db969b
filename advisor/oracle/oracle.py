"""The face of the times: which GPU, then how long a GEMM or a collective takes."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from ...compiler.ir import DType, GemmShape, System
from ...compiler.request.request import Request, one_of
from ...compiler.request.scenario import scenario_of
from .inductor import Estimator
from .times import collective_us, gemm_us
from .trace import TYPES, trace_text


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
