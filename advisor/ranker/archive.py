"""The file that holds the trees: a skops archive, equal bytes for equal trees, checked before it is loaded.

skops refuses types that are neither its own choice nor allowed by the caller. Its own choice is wide, so everything the
archive's schema names is first held against the few types that a file of ours is made of.
"""

import io
import json
import zipfile
from typing import Any

MAX_UNPACKED_BYTES = 64 << 20
MAX_MEMBERS = 20_000
SCHEMA_MEMBER = "schema.json"
# The oldest date that a zip archive can hold; the time of writing must not show in the file.
NO_DATE = (1980, 1, 1, 0, 0, 0)

_BOOSTING = "sklearn.ensemble._hist_gradient_boosting"
# The one type that skops does not trust by itself.
TREE_TYPE = f"{_BOOSTING}.predictor.TreePredictor"
# Classes that may appear in the schema, each with the loader of skops.
ALLOWED = frozenset(
    {
        (TREE_TYPE, "ObjectNode"),
        (f"{_BOOSTING}.gradient_boosting.HistGradientBoostingRegressor", "ObjectNode"),
        (f"{_BOOSTING}.binning._BinMapper", "ObjectNode"),
        ("sklearn._loss.loss.AbsoluteError", "ObjectNode"),
        ("sklearn._loss._loss.CyAbsoluteError", "LossNode"),
        ("sklearn._loss.link.IdentityLink", "ObjectNode"),
        ("sklearn._loss.link.Interval", "ObjectNode"),
        ("builtins.dict", "DictNode"),
        ("builtins.list", "ListNode"),
        ("builtins.tuple", "TupleNode"),
        ("builtins.str", "JsonNode"),
        ("builtins.str", "TypeNode"),
        ("numpy.ndarray", "NdArrayNode"),
        ("numpy.uint64", "NdArrayNode"),
    }
)


class ModelError(Exception):
    """A model that cannot be used, and why."""


def normalised(data: bytes) -> bytes:
    """The archive with members numbered in the order of the schema, undated and compressed."""
    with zipfile.ZipFile(io.BytesIO(data)) as source:
        schema = json.loads(source.read(SCHEMA_MEMBER))
        names: dict[str, str] = {}
        ids: dict[int, int] = {}
        for node in _nodes(schema):
            if isinstance(node.get("file"), str):
                node["file"] = names.setdefault(node["file"], f"{len(names)}.npy")
            if isinstance(node.get("__id__"), int):
                node["__id__"] = ids.setdefault(node["__id__"], len(ids))
        members = [(new, source.read(old)) for old, new in names.items()]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as target:
        for name, content in [*members, (SCHEMA_MEMBER, json.dumps(schema).encode())]:
            target.writestr(zipfile.ZipInfo(name, NO_DATE), content, zipfile.ZIP_DEFLATED, 9)
    return packed.getvalue()


def check_archive(data: bytes) -> None:
    """Refuse what is too large unpacked, is no archive, or names anything but the types of a ranker.

    Raises
    ------
    ModelError
        With what is wrong.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            if len(members) > MAX_MEMBERS or sum(member.file_size for member in members) > MAX_UNPACKED_BYTES:
                raise ModelError(f"the model unpacks to more than {MAX_UNPACKED_BYTES} B")
            schema = json.loads(archive.read(SCHEMA_MEMBER))
    except ModelError:
        raise
    except Exception as error:  # zipfile raises a dozen kinds for hostile archives, and zlib more
        raise ModelError(f"the model is damaged: {type(error).__name__}") from None
    found = {
        (f"{node.get('__module__')}.{node.get('__class__')}", str(node.get("__loader__"))) for node in _typed(schema)
    }
    strange = sorted(name for name, _ in found - ALLOWED)
    if strange or not found:
        raise ModelError(f"the model holds types that no ranker has: {', '.join(strange)[:200] or 'none at all'}")


def _typed(schema: object) -> list[dict[str, Any]]:
    """Every object of a schema that names a class or says how to load it."""
    return [node for node in _nodes(schema) if {"__class__", "__module__", "__loader__"} & node.keys()]


def _nodes(schema: object) -> list[dict[str, Any]]:
    """Every object in a JSON document, outermost first."""
    found: list[dict[str, Any]] = []
    stack = [schema]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            found.append(node)
            stack.extend(reversed(node.values()))
        elif isinstance(node, list):
            stack.extend(reversed(node))
    return found
