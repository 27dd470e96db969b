"""Sizes at which the measured libraries switch protocols too early, a setting that users can change."""

from collections.abc import Iterable, Iterator

from ....compiler.ir import Gpu
from ....compiler.text.quantities import bytes_text
from ....simcore.kernels.nccl import NEVER_BYTES, NcclCollective, early_switch
from ..tables.gemm import lone_scenario

MEASURED_RANKS = (8, 4, 2)


def early_switches(gpus: Iterable[str]) -> Iterator[str]:
    """Yield a sentence for each GPU and operation with an early switch, for the largest number of GPUs."""
    for name in gpus:
        scenario = lone_scenario(name)
        if scenario is not None and scenario.gpu.collectives is not None:
            for operation in NcclCollective:
                yield from _sentence(scenario.gpu, operation)


def _sentence(gpu: Gpu, operation: NcclCollective) -> Iterator[str]:
    for ranks in MEASURED_RANKS:
        try:
            switch = early_switch(gpu, operation, ranks)
        except ValueError:
            return  # the profile has no such operation
        if switch is not None:
            gain = f"pays from {bytes_text(switch.pays_from_bytes)} on"
            gain = gain if switch.pays_from_bytes < NEVER_BYTES else "never pays"
            yield (
                f"{gpu.name} {operation.value} on {ranks} GPUs: {switch.taken.protocol.value} from "
                f"{bytes_text(switch.from_bytes)} on takes {switch.taken.us:.0f} us there, "
                f"{switch.better.protocol.value} would take {switch.better.us:.0f}; it {gain}"
            )
            return
