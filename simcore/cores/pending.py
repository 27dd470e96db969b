"""Units between windows, in blocks sorted by time: a window takes the front of each block that has one."""

import heapq

from ..program.arrays import Int64Array


class Pending:
    """Blocks of keys without the server field."""

    def __init__(self) -> None:
        self._blocks: list[tuple[int, int, Int64Array]] = []  # heap of (first key, number, keys in order)
        self._num_blocks = 0

    def __len__(self) -> int:
        """Units in all blocks."""
        return sum(len(block) for _, _, block in self._blocks)

    @property
    def first_key(self) -> int | None:
        """The least of all keys, None if there is none."""
        return self._blocks[0][0] if self._blocks else None

    def put(self, block: Int64Array) -> None:
        """Add keys in ascending order."""
        heapq.heappush(self._blocks, (int(block[0]), self._num_blocks, block))
        self._num_blocks += 1

    def take(self, limit: int) -> list[Int64Array]:
        """Take all keys below ``limit``, block by block."""
        fronts = []
        while self._blocks and self._blocks[0][0] < limit:
            block = heapq.heappop(self._blocks)[2]
            cut = int(block.searchsorted(limit))
            fronts.append(block[:cut])
            if cut < len(block):
                self.put(block[cut:])
        return fronts

    def subtract(self, ticks: int) -> None:
        """Subtract ``ticks``, shifted to the time field of a key, from all keys."""
        self._blocks = [(first - ticks, number, block - ticks) for first, number, block in self._blocks]
