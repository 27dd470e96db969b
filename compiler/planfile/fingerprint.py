"""The part of a scenario that a plan depends on, as JSON: ranks, pattern, and the shapes of tensors and kernels.

Names, the machine and its rates are left out: a plan runs on any machine with as many GPUs.
"""

from dataclasses import fields, is_dataclass
from enum import Enum

from ..ir import KernelShape, Scenario, Tensor

Json = dict[str, "Json"] | list["Json"] | str | int | bool | None


def fingerprint(scenario: Scenario) -> dict[str, Json]:
    """Return ``ranks`` and ``pattern``, and if there are any: moved tensor, kernels, rows that each rank sends."""
    workload = scenario.workload
    document: dict[str, Json] = {"ranks": scenario.num_ranks, "pattern": workload.pattern.value}
    if workload.moved is not None:
        document["moved"] = _tensor(workload.moved)
    if workload.gemm is not None:
        document["gemm"] = _shape(workload.gemm)
    if workload.kernel is not None:
        document["kernel"] = _kernel(workload.kernel)
    if workload.then is not None:
        document["then"] = _kernel(workload.then.kernel)
    if workload.split:
        document["split"] = list(workload.split)
    if workload.loads:
        document["loads"] = _plain(workload.loads)
    if workload.experts:
        document["experts"] = _plain(workload.experts)
    return document


def _tensor(tensor: Tensor) -> dict[str, Json]:
    return {"rows": tensor.rows, "cols": tensor.cols, "dtype": tensor.dtype.value}


def _kernel(kernel: KernelShape) -> dict[str, Json]:
    return {"kind": kernel.operation, **_shape(kernel)}


def _shape(shape: object) -> dict[str, Json]:
    assert is_dataclass(shape), "shapes of kernels are dataclasses"
    return {attribute.name: _plain(getattr(shape, attribute.name)) for attribute in fields(shape)}


def _plain(value: object) -> Json:
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    assert isinstance(value, bool | int | str), "shapes hold numbers, words and lists of them"
    return value
