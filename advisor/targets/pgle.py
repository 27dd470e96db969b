"""Profiles of times for compilers: of a compiled module for XLA, and of products and collectives for TorchInductor.

A module's are for the latency-hiding scheduler of XLA: ``costs { ... }`` as text.

XLA discards a profile that lacks instructions, where it is told to be strict. So each one that takes time has a line:
products and collectives by the fitted forms, everything else by the bytes that it reads and writes.
"""

import hashlib
from collections.abc import Sequence

from ... import __version__
from ...compiler.codes import Code
from ...compiler.ir import TICKS_PER_US, DType, GemmShape, OpCase, Rejection, System
from ..oracle.oracle import Computation, HloError, Instruction, Module, product_sizes, read_hlo
from ..oracle.times import COLLECTIVES, TYPES, collective_sizes, collective_us, gemm_us, trace_text
from .base import Option, Options, Refused, Target, comments, refused

_DTYPES = {"bf16": DType.BF16, "f16": DType.FP16}
MAX_LINE = 1 << 24
_FREE = ("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "partition-id", "replica-id")
_BLOCKS = ("while", "conditional", "call")


def _write(scenarios: Sequence[OpCase], options: Options) -> str:
    machine, path = scenarios[0].system, options["hlo"]
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            module = read_hlo(iter(lambda: file.readline(MAX_LINE), ""))
    except HloError as error:
        hint = "compiled.as_text(), or a file of --xla_dump_to that ends with after_optimizations.txt"
        raise Refused(Rejection(Code.MGS550, f"{path}: {error}", hint)) from None
    lines, unknown = [], []
    for computation, each in module.scheduled:
        if each.opcode in (*_FREE, *_BLOCKS) or each.opcode.endswith("-done"):
            continue
        us = _us(machine, module, computation, each)
        if us is None:
            unknown.append(each.name)
        else:
            lines.append(f'costs {{ name: "{each.name}" cost_us: {us:.3f} }}\n')
    if not lines:
        raise refused(f"{path}: no time is known of any instruction on {machine.num_ranks} x {machine.gpu.name}")
    gpu, digest = machine.gpu, hashlib.sha256("".join(lines).encode()).hexdigest()
    collectives = "" if gpu.collectives is None else f", of collectives {float(gpu.collectives.error):.1%}"
    head = [
        f"Magus {__version__}, magus export --to pgle",
        f"costs sha256:{digest}",
        f"{machine.num_ranks} x {gpu.name} by its profile, each instruction alone; mean error of GEMMs "
        f"{float(gpu.gemm.error):.1%}{collectives}",
    ]
    if unknown:
        head.append(f"outside what was fitted, so that XLA must not be strict: {', '.join(unknown)}")
    return comments(*head) + "".join(lines)


def _us(machine: System, module: Module, computation: Computation, each: Instruction) -> float | None:
    """Return the time of what an instruction, or the computation that it calls, exchanges or multiplies."""
    called = module.computations.get(each.called, {})
    for where, one in ((computation, each), *((called, inner) for inner in called.values())):
        collective = one.opcode.removesuffix("-start").replace("-", "_")
        if collective in COLLECTIVES:
            return _collective_us(machine, collective, where, one)
        if one.opcode == "dot" or (one.opcode == "custom-call" and "__cublas" in one.rest):
            return _product_us(machine, where, one)
    if each.opcode == "custom-call" or each.opcode.endswith("-start"):
        return None  # attention, sends, copies: nothing was fitted to them
    num_bytes = sum(array.num_bytes for array in each.arrays) + _operand_bytes(computation, each)
    return machine.gpu.launch.kernel_ticks / TICKS_PER_US + num_bytes / machine.gpu.hbm.achieved_bytes_per_s * 1e6


def _product_us(machine: System, computation: Computation, each: Instruction) -> float | None:
    sizes = product_sizes(computation, each)
    if sizes is None:
        return None
    dtype = _DTYPES.get(computation[each.operands[0]].arrays[0].dtype)
    return None if dtype is None else gemm_us(machine.gpu, GemmShape(*sizes, dtype))


def _collective_us(machine: System, collective: str, computation: Computation, each: Instruction) -> float | None:
    ranks = each.group_size or machine.num_ranks
    num_bytes = _operand_bytes(computation, each) * (ranks if collective == "all_gather" else 1)
    return collective_us(machine, collective, num_bytes, ranks)


def _operand_bytes(computation: Computation, each: Instruction) -> int:
    operands = (computation[name].arrays for name in each.operands if name in computation)
    return sum(array.num_bytes for arrays in operands for array in arrays)


PGLE = Target(
    "pgle",
    "times of a module for --xla_gpu_pgle_profile_file_or_directory_path of XLA",
    _write,
    (Option("hlo", "the text of the compiled module, compiled.as_text()", ()),),
)


def _trace(scenarios: Sequence[OpCase], options: Options) -> str:
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


PGE = Target("pge", "a trace for profile-guided estimates of TorchInductor", _trace)
