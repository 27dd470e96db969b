"""Files of ``magus plan --format triton`` carried out with numpy: programs tile by tile, copies by the file's own host.

Numbers are small integers, so that sums in any order are exact and equal means equal; NaN where nothing is yet.
"""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from magus.compiler.ir import OpCase, Pattern

Matrix = NDArray[np.float32]
LARGEST = 4


def plan_of(text: str) -> ModuleType:
    """The file as a module whose kernel is no kernel: Triton need not be there."""
    stub: Any = ModuleType("triton")
    stub.jit = lambda function=None, **options: function if function is not None else (lambda inner: inner)
    stub.constexpr, stub.language = object, stub
    module = ModuleType("plan")
    with patch.dict(sys.modules, {"triton": stub, "triton.language": stub}):
        exec(compile(text, "plan.py", "exec"), module.__dict__)
    return module


class World:
    """Buffers and flags of all ranks, and what each rank must end with; ``plan`` is the module of a file."""

    def __init__(self, plan: Any, scenario: OpCase, block: int, programs: int) -> None:
        self.plan, self.block, self.programs, self.seed = plan, block, programs, 0
        self.pattern, self.ranks = scenario.shape.pattern, range(plan.RANKS)
        assert scenario.shape.moved is not None
        self._rows = scenario.shape.moved.rows // plan.RANKS
        self.buffers = [{name: np.empty(size, np.float32) for name, size in plan.BUFFERS.items()} for _ in self.ranks]
        self.partial = [np.empty(plan.BUFFERS["c"], np.float32) for _ in self.ranks]
        self.flags = [np.zeros(len(plan.FLAGS[rank]), np.int32) for rank in self.ranks]
        self.tables = [plan.tables_of(plan.GROUPS[rank], block, block, programs) for rank in self.ranks]
        counts = [plan.counts_of(plan.GROUPS[rank], len(plan.FLAGS[rank]), block, block) for rank in self.ranks]
        self.hosts = [plan.Host(rank, self.buffers, self.flags, counts[rank]) for rank in self.ranks]

    def rows_of(self, rank: int) -> slice:
        """Rows of the block of a rank."""
        return slice(rank * self._rows, (rank + 1) * self._rows)

    def fill(self) -> None:
        """Draw new numbers."""
        self.seed += 1
        rng = np.random.default_rng(self.seed)
        for rank in self.ranks:
            self.partial[rank][:] = np.nan
            for name, buffer in self.buffers[rank].items():
                given = name in ("b", "x") or (name == "a" and not self.pattern.consumes)
                buffer[:] = rng.integers(-LARGEST, LARGEST, buffer.shape, endpoint=True) if given else np.nan
            if self.pattern is Pattern.AG_GEMM:
                own = self.buffers[rank]["a"][self.rows_of(rank)]
                own[:] = rng.integers(-LARGEST, LARGEST, own.shape, endpoint=True)
            elif self.pattern is Pattern.A2A_GEMM:
                self.buffers[rank]["a"][self.rows_of(rank)] = self.buffers[rank]["x"][self.rows_of(rank)]
        self.wanted = list(map(self._wanted, self.ranks))

    def _wanted(self, rank: int) -> Matrix:
        every, rows, b = self.buffers, self.rows_of(rank), self.buffers[rank]["b"]
        match self.pattern:
            case Pattern.AG_GEMM:
                return np.concatenate([each["a"][self.rows_of(owner)] for owner, each in enumerate(every)]) @ b
            case Pattern.A2A_GEMM:
                return np.concatenate([each["x"][rows] for each in every]) @ b
            case Pattern.GEMM_A2A:
                return np.concatenate([each["a"][rows] @ each["b"] for each in every])
        total: Matrix = np.sum([each["a"] @ each["b"] for each in every], axis=0)
        return total[rows] if self.pattern is Pattern.GEMM_RS else total

    def found(self, rank: int) -> Matrix:
        """What a rank ended with."""
        rows, buffers = self.rows_of(rank), self.buffers[rank]
        if self.pattern.consumes:
            return buffers["c"]
        if self.pattern is Pattern.GEMM_A2A:
            buffers["y"][rows] = buffers["c"][rows]
        return buffers["y"][rows] if self.pattern is Pattern.GEMM_RS else buffers["y"]

    @property
    def exact(self) -> bool:
        """Whether every rank has what the serial computation gives."""
        return all(np.array_equal(self.found(rank), self.wanted[rank]) for rank in self.ranks)

    def run(self, epoch: int = 1, choose: Callable[[int], int] = lambda count: 0) -> None:
        """Let programs and hosts of all ranks go on, one that can at a time; ``choose`` says which of so many."""
        left = {rank: list(self.plan.STEPS[rank]) for rank in self.ranks}
        places = {(rank, each): self.tables[rank].starts[each] for rank in self.ranks for each in range(self.programs)}
        while any(left.values()) or places:
            moves = [rank for rank in self.ranks if left[rank]]
            able = [one for one in places if self._may_go(*one, places[one], epoch)]
            turn = choose(len(moves) + len(able))
            if able and turn < len(able):
                rank, program = able[turn]
                places[rank, program] += 1
                self._compute(rank, places[rank, program] - 1)
            else:
                before = sum(map(len, left.values()))
                for rank in moves:
                    left[rank] = self.plan.carry_out_ready(left[rank], self.hosts[rank], epoch)
                assert able or before > sum(map(len, left.values())), f"all stand still: {left}, {places}"
            places = {key: at for key, at in places.items() if at < self.tables[key[0]].starts[key[1] + 1]}

    def _may_go(self, rank: int, program: int, index: int, epoch: int) -> bool:
        tables = self.tables[rank]
        if index == tables.starts[program + 1]:
            return False
        start, stop = tables.tiles[10 * index + 6 : 10 * index + 8]
        return all(self.plan.is_set(self.flags[rank][flag], 1, epoch) for flag in tables.waits[start:stop])

    def _compute(self, rank: int, index: int) -> None:
        row, bottom, col, right, k, end, _, _, flag, parts = self.tables[rank].tiles[10 * index : 10 * index + 10]
        buffers, partial, place = self.buffers[rank], self.partial[rank], (slice(row, bottom), slice(col, right))
        total = buffers["a"][row:bottom, k:end] @ buffers["b"][k:end, col:right]
        if parts & self.plan.ADDS:
            total = total + partial[place]
        (partial if parts & self.plan.LEAVES else buffers["c"])[place] = total
        if flag >= 0:
            self.flags[rank][flag] += 1
