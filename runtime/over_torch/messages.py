"""Messages between ranks over the process group: heads of one size, and behind some of them values."""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from ..memory import Array

HEADS = 0
"""The tag of heads; values of the step with number i have the tag i + 1."""


WORD_BYTES = 8


class RankLost(ConnectionError):
    """A rank cannot be reached any more."""


class MessageKind(IntEnum):
    """What a message is about.

    PUT brings values and sets a signal, FLAG says that a step is done, LANDED that a signal is set at its sender. ASK
    wants the values of a get, which ANSWER brings. STILL has what its sender has sent and received, END is the last
    message of a run.
    """

    PUT = 0
    FLAG = 1
    ASK = 2
    ANSWER = 3
    STILL = 4
    END = 5
    ARRIVED = 6


@dataclass(frozen=True, slots=True)
class Head:
    """A message without its values.

    ``number`` is that of its step, ``known`` has the bit of each step that is certain to be done before; ``counts`` are
    those of STILL.
    """

    kind: MessageKind
    number: int = 0
    known: int = 0
    counts: tuple[int, ...] = ()


class Messenger:
    """Sends to and receives from the other ranks of the default process group; threads may share it."""

    def __init__(self, num_ranks: int, num_steps: int) -> None:
        self._words = max(num_steps // 64 + 1, 2 * num_ranks)

    def send(self, rank: int, head: Head, values: Array | None = None) -> None:
        """Send a head, and ``values`` if there are any; return once the other rank takes them.

        Raises
        ------
        RankLost
            If the rank has ended.
        """
        self._send(torch.from_numpy(self._packed(head)), rank, HEADS)
        if values is not None:
            self._send(torch.from_numpy(np.ascontiguousarray(values)), rank, head.number + 1)

    def receive(self, rank: int) -> Head:
        """Wait for the next head of ``rank``.

        Raises
        ------
        RankLost
            If the rank has ended.
        """
        packed = np.empty(2 + self._words, dtype=np.int64)
        self._receive(torch.from_numpy(packed), rank, HEADS)
        kind, words = MessageKind(packed[0]), packed[2:]
        if kind is MessageKind.STILL:
            return Head(kind, counts=tuple(words.tolist()))
        return Head(kind, int(packed[1]), int.from_bytes(words.tobytes(), "little"))

    def values(self, rank: int, head: Head, size: tuple[int, int]) -> Array:
        """Wait for the values behind ``head``, so many rows and columns.

        Raises
        ------
        RankLost
            If the rank has ended.
        """
        values = np.empty(size)
        self._receive(torch.from_numpy(values), rank, head.number + 1)
        return values

    def _packed(self, head: Head) -> NDArray[np.int64]:
        packed = np.zeros(2 + self._words, dtype=np.int64)
        packed[:2] = head.kind, head.number
        if head.counts:
            packed[2 : 2 + len(head.counts)] = head.counts
        else:
            packed[2:] = np.frombuffer(head.known.to_bytes(WORD_BYTES * self._words, "little"), dtype=np.int64)
        return packed

    @staticmethod
    def _send(tensor: torch.Tensor, rank: int, tag: int) -> None:
        try:
            dist.send(tensor, rank, tag=tag)
        except RuntimeError as error:
            raise _lost(rank, error) from error

    @staticmethod
    def _receive(tensor: torch.Tensor, rank: int, tag: int) -> None:
        try:
            dist.recv(tensor, rank, tag=tag)
        except RuntimeError as error:
            raise _lost(rank, error) from error


def _lost(rank: int, error: RuntimeError) -> RankLost:
    return RankLost(f"rank {rank} cannot be reached: {str(error).splitlines()[0]}")


def multiply(x: Array, w: Array) -> Array:
    """Return the product of two matrices by torch."""
    product: Array = torch.matmul(torch.from_numpy(x), torch.from_numpy(w)).numpy()
    return product
