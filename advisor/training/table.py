"""The table that proposals are learned from: winners of searches, and their estimated times in many scenarios."""

import io
import zipfile
import zlib
from dataclasses import astuple, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...compiler.ir import TICKS_PER_US
from ...compiler.text.writing import write_whole
from ...simcore.memo.codec import decode, encode
from ..learned.boosted_trees import ModelError
from ..learned.pipeline import Found
from ..learned.situation import Situation
from ..learned.structure import Structure, is_sound
from .families import ScenarioFamily

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

MAX_TABLE_BYTES = 64 << 20
BROKEN = (zipfile.BadZipFile, zlib.error)
ANYWHERE = -1
"""The scenario of a structure of the catalogue, which no search found."""


@dataclass(frozen=True, slots=True)
class Winner:
    """A structure of a fast schedule of scenario ``idx``; ``consumes`` is whether a collective precedes the kernels."""

    structure: Structure
    idx: int
    consumes: bool


@dataclass(frozen=True, slots=True)
class Labels:
    """Estimated ticks of some winners, by their numbers, in one scenario; infinite where one does not fit."""

    idx: int
    family: ScenarioFamily
    situation: Situation
    consumes: bool
    found: Found
    winners: IntArray
    ticks: FloatArray

    def among(self, kept: npt.NDArray[np.bool_]) -> "Labels":
        """Return the labels of winners that are ``kept`` [P] and fit."""
        some = kept[self.winners] & np.isfinite(self.ticks)
        return replace(self, winners=self.winners[some], ticks=self.ticks[some])

    @property
    def losses(self) -> FloatArray:
        """Logarithm of each time over the best one that is known, 0 or more."""
        best = min(self.found.estimate_ticks, float(self.ticks.min()))
        return np.asarray(np.log(self.ticks / best))

    @property
    def times(self) -> FloatArray:
        """Logarithm of each time over that of the undivided kernel, as ``pipeline_times`` predicts it."""
        return np.asarray(np.log(self.ticks / TICKS_PER_US) - self.situation["log_whole_us"])


@dataclass(frozen=True, slots=True)
class LabelTable:
    """All winners and labels of scenarios drawn from ``seed``, and the fingerprint of the code that made them."""

    fingerprint: str
    seed: int
    winners: tuple[Winner, ...]
    labels: tuple[Labels, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the numbers of a situation."""
        return self.labels[0].situation.names

    def origins(self) -> FloatArray:
        """Return the situations in which the winners were found, [P, F]; of the catalogue the mean of all."""
        found = {row.idx: row.situation.values for row in self.labels}
        anywhere = np.mean(list(found.values()), axis=0)
        return np.array([found.get(winner.idx, anywhere) for winner in self.winners])


@dataclass(frozen=True, slots=True)
class TableHead:
    """What a file of a table holds beside its arrays."""

    fingerprint: str
    seed: int
    winners: tuple[Winner, ...]
    families: tuple[ScenarioFamily, ...]
    names: tuple[str, ...]


def save_table(table: LabelTable, path: Path) -> None:
    """Write ``table`` to a file: equal bytes for equal tables."""
    rows = table.labels
    head = TableHead(table.fingerprint, table.seed, table.winners, tuple(row.family for row in rows), table.names)
    arrays: dict[str, Any] = {
        "head": np.frombuffer(encode(head), np.uint8),
        "idx": np.array([row.idx for row in rows], np.int64),
        "situations": np.array([row.situation.values for row in rows]),
        "consumes": np.array([row.consumes for row in rows]),
        "found": np.array([astuple(row.found) for row in rows]),
        "counts": np.array([len(row.winners) for row in rows], np.int64),
        "winners": np.concatenate([row.winners for row in rows]),
        "ticks": np.concatenate([row.ticks for row in rows]),
    }
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    write_whole(path, buffer.getvalue())


def load_table(path: Path) -> LabelTable:
    """Return the table of a file.

    Raises
    ------
    ModelError
        If it cannot be read, is damaged or has numbers that no table has.
    """
    try:
        if path.stat().st_size > MAX_TABLE_BYTES or _unpacked_bytes(path) > MAX_TABLE_BYTES:
            raise ModelError(f"{path} is larger than {MAX_TABLE_BYTES} B")
        with np.load(path, allow_pickle=False) as arrays:
            return _table_of({name: arrays[name] for name in arrays.files})
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror or error}") from None
    except (ArithmeticError, EOFError, LookupError, MemoryError, RuntimeError, TypeError, ValueError, *BROKEN) as error:
        raise ModelError(f"{path} is no table, or damaged: {type(error).__name__}; make it anew") from None


def _unpacked_bytes(path: Path) -> int:
    with zipfile.ZipFile(path) as archive:
        return sum(member.file_size for member in archive.infolist())


def _table_of(arrays: dict[str, npt.NDArray[Any]]) -> LabelTable:
    head = decode(arrays["head"].tobytes(), TableHead)
    edges = np.concatenate([[0], np.cumsum(arrays["counts"])])
    winners, ticks = arrays["winners"].astype(np.int64), arrays["ticks"].astype(np.float64)
    if not ((winners >= 0) & (winners < len(head.winners))).all() or not (ticks > 0).all():
        raise ValueError("labels")
    if not all(is_sound(winner.structure) for winner in head.winners) or not (arrays["counts"] > 0).all():
        raise ValueError("winners")
    if not np.isfinite(ticks).any():
        raise ValueError("no labels")
    if not np.isfinite(arrays["situations"]).all() or arrays["situations"].shape[1:] != (len(head.names),):
        raise ValueError("situations")
    if not (arrays["found"] > 0).all() or edges[-1] != len(winners) or len(ticks) != len(winners):
        raise ValueError("found")
    rows = zip(head.families, arrays["idx"], arrays["situations"], arrays["consumes"], arrays["found"], strict=True)
    labels = (
        Labels(
            int(idx),
            family,
            Situation(head.names, values),
            bool(consumes),
            Found(*map(float, found)),
            winners[low:high],
            ticks[low:high],
        )
        for (family, idx, values, consumes, found), (low, high) in zip(rows, pairwise(edges), strict=True)
    )
    return LabelTable(head.fingerprint, head.seed, head.winners, tuple(labels))
