"""The face of the times: a GPU, then its GEMMs and collectives; for PyTorch, and for modules of XLA."""

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
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


MAX_INSTRUCTIONS = 1 << 20
_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) .*\{$")
_INSTRUCTION = re.compile(r"^ +(?:ROOT )?%?([\w.\-]+) = (\(.*?\)|\S+) ([\w\-]+)\((.*)$")
_ARRAY = re.compile(r"([a-z]\w{0,15})\[([\d,]{0,120})\]")
_NAME = re.compile(r"%([\w.\-]+)")
_CALLED = re.compile(r"(?:calls|to_apply)=%?([\w.\-]+)")
_GROUPS = re.compile(r"replica_groups=(?:\{\{([\d,]*)\}|\[\d+,(\d{1,9})\]<=)")


class HloError(ValueError):
    """A text that is no compiled module."""


@dataclass(frozen=True, slots=True)
class Array:
    """A part of a shape."""

    dtype: str
    dims: tuple[int, ...]

    @property
    def num_bytes(self) -> int:
        """Its size in memory, by the bits in the name of its type."""
        bits = re.search(r"\d{1,9}", self.dtype)
        return prod(self.dims) * (-(-int(bits[0]) // 8) if bits else 1)


@dataclass(frozen=True, slots=True)
class Instruction:
    """One line of a computation; ``rest`` is what follows the operands."""

    name: str
    opcode: str
    arrays: tuple[Array, ...]
    operands: tuple[str, ...]
    rest: str

    @property
    def called(self) -> str:
        """The computation that it calls, empty if it calls none."""
        found = _CALLED.search(self.rest)
        return found[1] if found else ""

    @property
    def group_size(self) -> int | None:
        """Number of ranks that exchange; None if it does not say."""
        found = _GROUPS.search(self.rest)
        if found is None:
            return None
        return int(found[2]) if found[2] else len(found[1].split(",")) if found[1] else None


Computation = Mapping[str, Instruction]


@dataclass(frozen=True, slots=True)
class Module:
    """The computations of a module by name."""

    computations: Mapping[str, Computation]

    @property
    def scheduled(self) -> Sequence[tuple[Computation, Instruction]]:
        """All instructions that are issued one by one, with their computation: not those inside of others."""
        inside = {each.called for computation in self.computations.values() for each in computation.values()}
        return [
            (computation, each)
            for name, computation in self.computations.items()
            if name not in inside
            for each in computation.values()
        ]


def read_hlo(lines: Iterable[str]) -> Module:
    """Read a module.

    Raises
    ------
    HloError
        If there is no computation, or it is longer than ``MAX_INSTRUCTIONS``.
    """
    computations: dict[str, dict[str, Instruction]] = {}
    current: dict[str, Instruction] | None = None
    count = 0
    for line in lines:
        begins = _COMPUTATION.match(line.rstrip())
        if begins:
            current = computations.setdefault(begins[2], {})
        elif line.startswith("}"):
            current = None
        elif current is not None and (found := _INSTRUCTION.match(line)):
            operands, rest = _until_closed(found[4])
            current[found[1]] = Instruction(
                found[1], found[3], arrays_of(found[2]), tuple(_NAME.findall(operands)), rest
            )
            count += 1
            if count > MAX_INSTRUCTIONS:
                raise HloError(f"more than {MAX_INSTRUCTIONS} instructions")
    if not count:
        raise HloError("no instruction of a compiled module of XLA")
    return Module(computations)


def arrays_of(text: str) -> tuple[Array, ...]:
    """Return the arrays of a shape, several in a tuple.

    >>> arrays_of("(bf16[8,4]{1,0}, u32[])")
    (Array(dtype='bf16', dims=(8, 4)), Array(dtype='u32', dims=()))
    """
    return tuple(
        Array(dtype, tuple(int(size) for size in dims.split(",") if size)) for dtype, dims in _ARRAY.findall(text)
    )


def _until_closed(text: str) -> tuple[str, str]:
    """Split where the bracket before ``text`` closes."""
    depth = 1
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if not depth:
            return text[:place], text[place + 1 :]
    return text, ""


def product_sizes(computation: Computation, instruction: Instruction) -> tuple[int, int, int] | None:
    """Return m, n and k of a product of two matrices; None if it is none, or one of batches."""
    if len(instruction.operands) < 2 or not all(name in computation for name in instruction.operands[:2]):
        return None
    left, right = (computation[name].arrays[:1] for name in instruction.operands[:2])
    inner = _dims_of(instruction.rest, "lhs_contracting_dim")
    if not left or not right or not inner or _dims_of(instruction.rest, "lhs_batch_dim"):
        return None
    if any(dim >= len(left[0].dims) for dim in inner):
        return None
    k = prod(left[0].dims[dim] for dim in inner)
    return (prod(left[0].dims) // k, prod(right[0].dims) // k, k) if k else None


def _dims_of(rest: str, key: str) -> list[int]:
    """Numbers after ``key``, as ``{1}`` of an instruction or ``["1"]`` of its configuration."""
    found = re.search(rf'{key}(?:s|ensions)"?[=:][{{\[]([^}}\]]*)', rest)
    return [int(number) for number in re.findall(r"\d{1,9}", found[1])] if found else []
