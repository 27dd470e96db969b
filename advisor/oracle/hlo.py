"""Instructions of a compiled module of XLA, read from its text: names, shapes, operands, and sizes of products.

It reads what ``compiled.as_text()`` returns and ``--xla_dump_to`` writes, line by line: a computation begins with a
line that ends with ``{``, and each of its other lines is an instruction.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

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
