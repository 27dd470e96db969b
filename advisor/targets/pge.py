"""A trace of the GEMMs of a sweep and of collectives, for profile-guided estimates of TorchInductor."""

from collections.abc import Sequence

from ...compiler.ir import OpCase
from ..oracle.times import TYPES, collective_sizes, gemm_us, trace_text
from .base import Options, Target, refused


def _write(scenarios: Sequence[OpCase], options: Options) -> str:
    machine = scenarios[0].system
    gemms = [stage.gemm for scenario in scenarios for stage in scenario.shape.stages if stage.gemm is not None]
    dtypes = list(dict.fromkeys(shape.dtype for shape in gemms)) or [scenarios[0].shape.tensors[0].dtype]
    if len(dtypes) > 1 or dtypes[0] not in TYPES:
        said = ", ".join(dtype.value for dtype in dtypes)
        raise refused(f"times of {said} are not known", f"a trace has one of {', '.join(each.value for each in TYPES)}")
    if not collective_sizes(machine) and all(gemm_us(machine.gpu, shape) is None for shape in gemms):
        message = f"no time is known: the constants of {machine.gpu.name} were not fitted to these GEMMs or collectives"
        raise refused(message, "its profile says what they were fitted to: calibrated")
    return trace_text(machine, dtypes[0], gemms)


PGE = Target("pge", "a trace for profile-guided estimates of TorchInductor", _write)
