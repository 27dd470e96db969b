"""Rewritten kernels carried out with numpy: what of Triton's language they use, as functions on arrays.

Programs run one after the other. A poll of a flag that is not set yet lets the hosts of all ranks go on.
"""

import sys
from collections.abc import Callable, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from magus.compiler.ir import Pattern
from magus.compiler.resolve.schedules.from_text import resolve_schedule
from magus.compiler.targets.kernel_rewrite import rewrite_kernel
from magus.compiler.targets.triton import triton_text
from magus.compiler.text.diagnostics import Source
from tests.helpers.scenarios.drawn import SYSTEMS, scenario_of

from .gemm_world import World
from .rewritten import BLOCK, FOLDER, KERNELS


class Tensor(np.ndarray[Any, Any]):
    """An array whose numbers have the methods of tensors too."""

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        return np.asarray(array).view(Tensor)

    def to(self, kind: object) -> "Tensor":
        """The same numbers: types do not matter here."""
        return self


def tensor(values: Any) -> Tensor:
    """Any numbers as a tensor."""
    return np.asarray(values).view(Tensor)


class Pointer:
    """Places in memory; ``counts`` is how often each was stored to."""

    dtype = SimpleNamespace(element_ty=None)

    def __init__(self, memory: NDArray[Any], places: Any = 0, counts: NDArray[Any] | None = None) -> None:
        self.memory, self.places = memory, np.asarray(places)
        self.counts = np.zeros(memory.size, np.int64) if counts is None else counts
        self.shape = memory.shape

    def __add__(self, offset: Any) -> "Pointer":
        return Pointer(self.memory, self.places + np.asarray(offset), self.counts)

    __radd__ = __add__

    def stride(self, axis: int | None = None) -> Any:
        """Of a matrix, in elements."""
        strides = tuple(each // self.memory.itemsize for each in self.memory.strides)
        return strides if axis is None else strides[axis]

    def described(self, block: Sequence[int]) -> "Descriptor":
        """A descriptor of blocks of a matrix."""
        return Descriptor(self, self.shape, self.stride(), block)

    def ravel(self) -> NDArray[Any]:
        """All of memory."""
        return self.memory.reshape(-1)


class Block:
    """What ``make_block_ptr`` makes."""

    def __init__(self, base: Any, shape: Any, strides: Any, offsets: Any, block_shape: Any, order: Any = None) -> None:
        self.parts = {"base": base, "shape": shape, "strides": strides, "offsets": offsets, "block_shape": block_shape}

    def at(self) -> tuple[Pointer, Any]:
        """Pointers, and which of them lie inside."""
        axes = np.meshgrid(
            *(int(o) + np.arange(n) for o, n in zip(self.parts["offsets"], self.parts["block_shape"], strict=True)),
            indexing="ij",
        )
        inside = np.logical_and.reduce([each < size for each, size in zip(axes, self.parts["shape"], strict=True)])
        return self.parts["base"] + sum(each * by for each, by in zip(axes, self.parts["strides"], strict=True)), inside

    def moved(self, steps: Sequence[int]) -> "Block":
        """The block some steps further."""
        offsets = tuple(one + other for one, other in zip(self.parts["offsets"], steps, strict=True))
        return Block(**{**self.parts, "offsets": offsets})


class Descriptor:
    """What ``make_tensor_descriptor`` makes: blocks of a matrix; what lies outside is zero, and is not stored."""

    def __init__(self, base: Any, shape: Any, strides: Any, block_shape: Any) -> None:
        self.parts = {"base": base, "shape": shape, "strides": strides, "block_shape": block_shape}

    def load(self, offsets: Any) -> Tensor:
        """The block at ``offsets``."""
        pointer, inside = Block(**self.parts, offsets=offsets).at()
        return tensor(np.where(inside, pointer.ravel()[np.where(inside, pointer.places, 0)], 0))

    def store(self, offsets: Any, value: Any) -> None:
        """Put a block at ``offsets``, and count it."""
        pointer, inside = Block(**self.parts, offsets=offsets).at()
        pointer.ravel()[pointer.places[inside]] = np.asarray(value)[inside]
        np.add.at(pointer.counts, pointer.places[inside], 1)


class Kernel:
    """A function with ``triton.jit``: called by kernels, or launched over a grid."""

    def __init__(self, function: Callable[..., Any], language: "Language") -> None:
        self.function, self.language = function, language

    def __call__(self, *given: Any, **more: Any) -> Any:
        return self.function(*given, **more)

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        def launch(*given: Any, **more: Any) -> None:
            options = {name: value for name, value in more.items() if name not in ("num_warps", "num_stages")}
            for program in range(grid[0]):
                self.language.program, self.language.programs = program, grid[0]
                self.function(*given, **options)

        return launch


class Language(ModuleType):
    """``triton.language`` on arrays; ``idle`` is called while a flag is polled, and says whether anything went on."""

    def __init__(self) -> None:
        super().__init__("triton.language")
        self.program, self.programs = 0, 1
        self.idle: Callable[[], bool] = lambda: False
        self.constexpr = self.multiple_of = self.max_contiguous = lambda value, *more: value
        self.range, self.static_range = self._range, self._range
        self.float32 = self.float16 = self.int64 = self.int32 = None
        self.minimum, self.maximum, self.cdiv = np.minimum, np.maximum, lambda one, other: -(-one // other)
        self.where = lambda *given: tensor(np.where(*given))
        self.expand_dims, self.broadcast_to = np.expand_dims, lambda value, shape: tensor(np.broadcast_to(value, shape))
        self.trans = lambda value, *order: value.transpose(*order)
        self.assume = self.debug_barrier = lambda *given: None
        self.make_block_ptr, self.advance, self.make_tensor_descriptor = Block, Block.moved, Descriptor
        self.target_info = SimpleNamespace(cuda_capability_geq=lambda *version: False)

    def _range(self, *given: int, **more: object) -> range:
        return range(*given)

    def program_id(self, axis: int) -> Tensor:
        """The number of the program."""
        return tensor(self.program)

    def num_programs(self, axis: int) -> Tensor:
        """How many there are."""
        return tensor(self.programs)

    def arange(self, first: int, end: int) -> Tensor:
        """Numbers in turn."""
        return tensor(np.arange(first, end))

    def zeros(self, shape: Sequence[int], dtype: object = None) -> Tensor:
        """A tensor of zeros."""
        return tensor(np.zeros(shape, np.float32))

    def full(self, shape: Sequence[int], value: float, dtype: object = None) -> Tensor:
        """A tensor of one number."""
        return tensor(np.full(shape, value, np.float32))

    def dot(self, left: Any, right: Any, total: Any = 0, **more: object) -> Tensor:
        """A product, added to ``total``."""
        return tensor(np.asarray(left) @ np.asarray(right) + total)

    def sigmoid(self, value: Any) -> Tensor:
        """1 where a number is positive, else 0: exact numbers stay exact."""
        return tensor(np.where(value > 0, 1, 0))

    def load(self, pointer: Any, mask: Any = True, other: Any = 0, boundary_check: Any = ()) -> Tensor:
        """What is there; ``other`` where ``mask`` says so."""
        if isinstance(pointer, Block):
            pointer, mask = pointer.at()
        places, mask = np.broadcast_arrays(pointer.places, np.asarray(mask))
        assert not mask.any() or pointer.ravel()[places[mask]].size
        found = pointer.ravel()[np.where(mask, places, 0)]
        return tensor(np.where(mask, found, other).astype(found.dtype))

    def store(self, pointer: Any, value: Any, mask: Any = True, boundary_check: Any = ()) -> None:
        """Put a number where ``mask`` says so, and count it."""
        if isinstance(pointer, Block):
            pointer, mask = pointer.at()
        places, value, mask = np.broadcast_arrays(pointer.places, np.asarray(value), np.asarray(mask))
        pointer.ravel()[places[mask]] = value[mask]
        np.add.at(pointer.counts, places[mask], 1)

    def atomic_add(self, pointer: Pointer, value: int, **more: object) -> int:
        """Count a flag up; a flag that is only looked at lets others go on."""
        went_on = value == 0 and self.idle()
        found = int(pointer.ravel()[pointer.places])
        assert value or went_on or found, "a program waits for what never comes"
        pointer.ravel()[pointer.places] = found + value
        return found


class NumpyWorld(World):
    """A world whose kernels are those of a file, on arrays; ``kernel`` names a file of ``kernels``."""

    def __init__(self, kernel: str, pattern: Pattern, own: str = "") -> None:
        """Rewrite the kernel, or ``own``, a text with its name and parameters.

        Columns and the inner dimension end inside a block, rows of pieces do not.
        """
        self.kernel, self.language = kernel, Language()
        scenario = scenario_of(pattern, SYSTEMS[1], 4, 128, 40 if pattern.produces else 104, 80)
        made = rewrite_kernel(Source(f"{kernel}.py", own or (FOLDER / f"{kernel}.py").read_text()))
        schedule = resolve_schedule(scenario, "hetero_fused_1d(chunks=8, engine=dma(3))")
        text = triton_text(scenario, schedule, kernel=made)
        triton: Any = ModuleType("triton")
        triton.jit = lambda function=None, **options: (
            Kernel(function, self.language) if function is not None else lambda inner: Kernel(inner, self.language)
        )
        triton.cdiv, triton.language = self.language.cdiv, self.language
        plan = ModuleType("plan")
        with patch.dict(sys.modules, {"triton": triton, "triton.language": self.language}):
            exec(compile(text, "plan.py", "exec"), plan.__dict__)
        super().__init__(plan, scenario, BLOCK, 3)
        self.fill()
        self.counts = [np.zeros(buffers["c"].size, np.int64) for buffers in self.buffers]

    @property
    def once(self) -> bool:
        """Whether each number of the output was stored once."""
        return all(bool((counts == 1).all()) for counts in self.counts)

    def run_kernels(self, epoch: int = 1) -> None:
        """Run the kernels of all ranks, one after the other, and then what hosts have left."""
        left = {rank: list(self.plan.STEPS[rank]) for rank in self.ranks}

        def go_on() -> bool:
            before = sum(map(len, left.values()))
            for rank in self.ranks:
                left[rank] = self.plan.carry_out_ready(left[rank], self.hosts[rank], epoch)
            return sum(map(len, left.values())) < before

        self.language.idle = go_on
        name, arguments = KERNELS[self.kernel]
        for rank in self.ranks:
            tables = [Pointer(np.array(each or [0])) for each in self.tables[rank]]
            matrices = [
                Pointer(self.buffers[rank][each], 0, self.counts[rank] if each == "c" else None) for each in "abc"
            ]
            plain, constants = arguments(matrices)
            flags = Pointer(self.flags[rank])
            getattr(self.plan, name)[(self.programs,)](*tables, flags, epoch, *plain, **constants)
        while go_on():
            pass
        assert not any(left.values()), "copies wait for what never comes"
