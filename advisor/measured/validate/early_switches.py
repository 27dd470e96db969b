"""Where the libraries behind the measured tables switch protocols too early, which a user can change."""

from collections.abc import Iterable, Iterator

from ....compiler.ir import Gpu
from ....simcore.kernels.early_switch import NEVER_BYTES, early_switch
from ....simcore.kernels.nccl import NcclCollective
from ..tables.gemm import lone_scenario

MEASURED_RANKS = (8, 4, 2)
MIB = 1 << 20


def early_switches(gpus: Iterable[str]) -> Iterator[str]:
    """A sentence for each GPU and operation, on the largest number of GPUs for which the switch comes too early."""
    for name in gpus:
        scenario = lone_scenario(name)
        if scenario is not None and scenario.gpu.collectives is not None:
            for operation in NcclCollective:
                yield from _sentence(scenario.gpu, operation)


def _sentence(gpu: Gpu, operation: NcclCollective) -> Iterator[str]:
    for ranks in MEASURED_RANKS:
        try:
            found = early_switch(gpu, operation, ranks)
        except ValueError:
            return  # the profile has no such operation
        if found is not None:
            pays = f"pays from {_size(found.pays_from_bytes)} on"
            yield (
                f"{gpu.name} {operation.value} on {ranks} GPUs: {found.taken.protocol.value} from "
                f"{_size(found.from_bytes)} on takes {found.taken.us:.0f} us there, {found.better.protocol.value} "
                f"would take {found.better.us:.0f}; it {pays if found.pays_from_bytes < NEVER_BYTES else 'never pays'}"
            )
            return


def _size(num_bytes: int) -> str:
    return f"{num_bytes / MIB:g} MiB"
