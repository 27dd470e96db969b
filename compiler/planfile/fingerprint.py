"""What a plan depends on of its scenario, as JSON: how many ranks do what, on tensors and kernels of which shape.

Names, the machine and its rates are no part of it: a plan may be carried to another machine of as many GPUs.
"""

from dataclasses import fields, is_dataclass
from enum import Enum

from ..ir import KernelShape, Scenario, Tensor

Json = dict[str, "Json"] | list["Json"] | str | int | bool | None


def fingerprint(scenario: Scenario) -> dict[str, Json]:
    """``ranks`` and ``pattern``, and of the moved tensor, the kernels and the rows that ranks send what there is."""
    workload = scenario.workload
    found: dict[str, Json] = {"ranks": scenario.num_ranks, "pattern": workload.pattern.value}
    if workload.moved is not None:
        found["moved"] = _tensor(workload.moved)
    if workload.gemm is not None:
        found["gemm"] = _shape(workload.gemm)
    if workload.kernel is not None:
        found["kernel"] = _kernel(workload.kernel)
    if workload.then is not None:
        found["then"] = _kernel(workload.then.kernel)
    if workload.split:
        found["split"] = list(workload.split)
    if workload.loads:
        found["loads"] = _plain(workload.loads)
    if workload.experts:
        found["experts"] = _plain(workload.experts)
    return found


def _tensor(tensor: Tensor) -> dict[str, Json]:
    return {"rows": tensor.rows, "cols": tensor.cols, "dtype": tensor.dtype.value}


def _kernel(kernel: KernelShape) -> dict[str, Json]:
    return {"kind": kernel.operation, **_shape(kernel)}


def _shape(shape: object) -> dict[str, Json]:
    assert is_dataclass(shape), "shapes of kernels are dataclasses"
    return {each.name: _plain(getattr(shape, each.name)) for each in fields(shape)}


def _plain(value: object) -> Json:
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    assert isinstance(value, bool | int | str), "shapes hold numbers, words and lists of them"
    return value
