"""The file of a proposal model: one compressed JSON document. It is data, and what is read is checked.

Numbers that were tampered with propose worse schedules at worst: each is checked by the rules and estimated before it
is offered. The trees are records of equal size in base64, see ``boosted_trees.py``.
"""

import base64
import hashlib
import json
import zlib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...compiler.text.writing import write_whole
from ...simcore.memo.codec import encode, value_of
from .boosted_trees import BoostedTrees, ModelError
from .pipeline import EstimateErrors, FeatureScale, names_of_features
from .proposal_model import Library, ProposalModel
from .structure import Structure, is_sound

FILE = "proposals.model"
SCHEMA = "magus-proposals/1"
MAX_BYTES, MAX_UNPACKED_BYTES = 8 << 20, 64 << 20
# Logarithm of a simulated over an estimated figure beyond which an interval is none.
MAX_ERROR = 0.5

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Card:
    """What a model was fitted to: the fingerprint of the code, and how much of what.

    ``searched`` scenarios had a full search, ``labelled`` ones are in the table, with ``pairs`` of labels.
    """

    fingerprint: str
    seed: int
    searched: int
    labelled: int
    structures: int
    pairs: int


def save(model: ProposalModel, card: Card, folder: Path) -> None:
    """Write the file into ``folder``, which is made if it is missing; equal bytes for equal models."""
    if model.trees is None:
        raise ValueError("only a fitted model can be saved")
    document = {
        "schema": SCHEMA,
        "card": json.loads(encode(card)),
        "names": list(model.names),
        "deviation": model.scale.deviation.tolist(),
        "before": _library_document(model.before),
        "after": _library_document(model.after),
        "errors": json.loads(encode(model.errors)),
        "trees": base64.b64encode(model.trees.to_bytes()).decode(),
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / FILE, zlib.compress(json.dumps(document).encode(), 9))


def _library_document(library: Library) -> dict[str, object]:
    return {"structures": json.loads(encode(library.structures)), "origins": library.origins.tolist()}


def load(folder: Path | None = None) -> tuple[ProposalModel, Card]:
    """Return the model in ``folder``, the shipped one if None, and its card.

    Raises
    ------
    ModelError
        If the file is missing, damaged, of other features or of another version.
    """
    data = _read_bounded(files(__package__).joinpath("model") if folder is None else folder, FILE, MAX_BYTES)
    document = _document(data)
    try:
        if document["schema"] != SCHEMA:
            raise ModelError(f"{FILE} has another schema than {SCHEMA}; run `magus train`")
        card = value_of(document["card"], Card)
        names = tuple(map(str, document["names"]))
        scale = FeatureScale(_numbers(document["deviation"], 1))
        before, after = (_library(document[kind], len(names), consumes=kind == "after") for kind in ("before", "after"))
        errors = value_of(document["errors"], EstimateErrors)
        if not all(-MAX_ERROR <= low <= high <= MAX_ERROR for low, high in (errors.time, errors.gain)):
            raise ValueError("errors")
        packed = base64.b64decode(document["trees"], validate=True)
        trees = BoostedTrees.from_bytes(packed, len(names_of_features(names)))
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise ModelError(f"{FILE} is damaged: {type(error).__name__}; run `magus train`") from None
    if len(scale.deviation) != len(names) or not (scale.deviation > 0).all():
        raise ModelError(f"{FILE} is damaged: its scale does not fit; run `magus train`")
    return ProposalModel(names, before, after, scale, trees, errors, hashlib.sha256(data).hexdigest()), card


def _read_bounded(place: Any, name: str, limit: int) -> bytes:
    """Return at most ``limit`` bytes of a file in a folder or package."""
    try:
        with place.joinpath(name).open("rb") as stream:
            data: bytes = stream.read(limit + 1)
    except OSError as error:
        raise ModelError(f"cannot read {name}: {error.strerror or error}; run `magus train`") from None
    if len(data) > limit:
        raise ModelError(f"{name} is larger than {limit} B")
    return data


def _document(data: bytes) -> dict[str, Any]:
    """Return the document that is packed in ``data``; what it unpacks to is bounded."""
    try:
        unpacker = zlib.decompressobj()
        document = json.loads(unpacker.decompress(data, MAX_UNPACKED_BYTES))
        if not unpacker.eof or unpacker.unused_data:
            raise ValueError("it ends early, or something follows it")
    except (zlib.error, ValueError, RecursionError) as error:
        raise ModelError(f"{FILE} is damaged: {type(error).__name__}; run `magus train`") from None
    if not isinstance(document, dict):
        raise ModelError(f"{FILE} is damaged: it is no document; run `magus train`")
    return document


def _library(document: dict[str, Any], num_names: int, *, consumes: bool) -> Library:
    structures = value_of(document["structures"], tuple[Structure, ...])
    if not all(map(is_sound, structures)):
        raise ValueError("structures")
    origins = _numbers(document["origins"], 2)
    if origins.shape != (len(structures), num_names):
        raise ValueError("origins")
    return Library(structures, origins, consumes)


def _numbers(values: object, dimensions: int) -> FloatArray:
    """Return finite numbers of so many dimensions."""
    numbers = np.array(values, np.float64)
    if numbers.ndim != dimensions or not np.isfinite(numbers).all():
        raise ValueError("numbers")
    return numbers
