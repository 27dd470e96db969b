"""Read a CommPlan of Syncopate from Python: calls of its classes with names, numbers and texts; nothing is executed.

A call becomes an object with its class under ``is``, and a member of an enumeration a text; the rest is as in JSON. The
form is that of ``repr`` of a CommPlan, and may give names to regions. Classes and fields are those of
github.com/tie-pilot-qxw/syncopate, ``syncopate/communication/descriptor.py`` (commit 9a8dbb96).
"""

import ast
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ...codes import Code
from ...ir import JsonObject
from ...text.diagnostics import Stopped, listing
from ...text.json_forms import Item, JsonPlace

MAX_PYTHON_BYTES = 4 << 20
"""Python takes a hundred times as much memory to read it."""
MAX_DEPTH = 24
_MAX_BITS = 64
SUFFIX = ".py"
CLASS = "is"
OWN = "MAGUS"
"""What the file says of itself beside the plan, a name that Syncopate does not look at."""
PLANS = ("CommPlan", "CommGenerator")
_PLAN = ("device_plans", "receive_signal_counters", "transit_signal_counters", "compute_signal_counters")
_OP = ("op", "src_buf", "src_region", "dst_buf", "dst_region")
FIELDS: Mapping[str, tuple[str, ...]] = {
    "AxisSlice": ("start", "end"),
    "BufferRegion": ("regions", "elem_size", "strides", "base_offset"),
    "BufferRegion.from_slices": ("elem_size", "strides", "slices", "base_offset"),
    "XferDependency": ("depend_rank", "depend_xfer_stream", "depend_xfer_idx", "signal"),
    "ComputeDependency": ("compute_rank", "src_region", "signal"),
    "Period": ("start", "duration"),
    "Signal": ("dst_rank", "dst_offset", "type", "period"),
    "Transfer": (*_OP, "chunk_idx", "dependency", "set_signals", "peer", "period", "reduce_op"),
    "Collective": (*_OP, "dependency", "set_signals", "period"),
    "DevicePlan": ("dev", "xfer", "local_regions", "transit_signals", "tensors_involved"),
    "torch.Size": ("sizes",),
    **dict.fromkeys(PLANS, _PLAN),
}
"""The arguments of each class, in their order."""
_WORDS = ("TransferOp", "CollectiveOp", "ReduceOp", "SignalType", "torch")


def read_python(text: str, place: JsonPlace) -> Item:
    """Return the CommPlan in ``text``, with what the file says of itself under ``magus``; refuse all other Python."""
    if len(text) > MAX_PYTHON_BYTES:
        raise place.fail(Code.MGS130, f"more than {MAX_PYTHON_BYTES >> 20} MiB of Python are not read")
    try:
        with warnings.catch_warnings():  # of doubtful Python, which is told as a mistake or means what it says
            warnings.simplefilter("ignore")
            statements = ast.parse(text).body
    except SyntaxError as error:
        raise place.fail(place.wrong_form, f"line {error.lineno or 1}: no Python: {error.msg}") from None
    except (RecursionError, MemoryError, ValueError):
        raise place.fail(Code.MGS132, "the file is no Python that can be read") from None
    reader = _Reader(place)
    for statement in statements:
        reader.statement(statement)
    if reader.plan is None or "device_plans" not in reader.plan:
        raise place.fail(place.wrong_form, "there is no CommPlan", "plan = CommPlan({0: DevicePlan(dev=0, ...), ...})")
    return Item({**reader.plan, "magus": reader.own}, "", place)


@dataclass(slots=True)
class _Reader:
    """What the statements so far have said; ``named`` are regions with a name."""

    place: JsonPlace
    named: dict[str, JsonObject] = field(default_factory=dict)
    own: object = field(default_factory=dict)
    plan: JsonObject | None = None

    def statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant(value=str())):
                return
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=given)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as given)
            ):
                self._name(name, given)
            case ast.Expr(value=given):
                self._name("", given)
            case _:
                raise self._beyond(node, "a statement that is no assignment")

    def _name(self, name: str, node: ast.expr) -> None:
        value = self._value(node)
        kind = value.get(CLASS) if isinstance(value, dict) else None
        if kind in PLANS and self.plan is None and isinstance(value, dict):
            self.plan = value
        elif name == OWN:
            self.own = value
        elif name and str(kind).startswith("BufferRegion") and isinstance(value, dict):
            self.named[name] = value
        else:
            raise self._beyond(node, "a name for what is no region and no first CommPlan")

    def _value(self, node: ast.expr, depth: int = 0) -> object:
        if depth > MAX_DEPTH:
            raise self._beyond(node, f"brackets more than {MAX_DEPTH} deep")
        match node:
            case ast.Constant(value=int() as value) if value.bit_length() > _MAX_BITS:
                raise self._beyond(node, f"a number of more than {_MAX_BITS} bits")
            case ast.Constant(value=bool() | int() | float() | str() | None as value):
                return value
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float()) as operand):
                return -self._value(operand, depth)  # type: ignore[operator]
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                return [self._value(part, depth + 1) for part in parts]
            case ast.Dict(keys=keys, values=values):
                return dict(self._members(keys, values, depth))
            case ast.Name(id=name) if name in self.named:
                return self.named[name]
            case ast.Attribute(value=ast.Name(id=owner), attr=member) if owner in _WORDS:
                return f"{owner}.{member}"
            case ast.Call():
                return self._call(node, depth)
            case _:
                raise self._beyond(node, "an expression that is no call of a class of CommPlans and no value")

    def _members(self, keys: list[ast.expr | None], values: list[ast.expr], depth: int) -> Iterator[tuple[str, object]]:
        seen = set[str]()
        for key, value in zip(keys, values, strict=True):
            name = str(self._value(key)) if isinstance(key, ast.Constant) else None
            if name is None or name in seen:
                raise self._beyond(value, "a key that stands twice, or is no number and no text")
            seen.add(name)
            yield name, self._value(value, depth + 1)

    def _call(self, node: ast.Call, depth: int) -> JsonObject:
        match node.func:
            case ast.Name(id=name):
                pass
            case ast.Attribute(value=ast.Name(id=owner), attr=member):
                name = f"{owner}.{member}"
            case _:
                name = ""
        if name not in FIELDS:
            hint = f"classes are {listing(FIELDS)}; a plan that a program makes is written out by repr(plan)"
            raise self._beyond(node, f"a call of {name[:64] or 'an expression'}", hint)
        if len(node.args) > len(FIELDS[name]):
            raise self._beyond(node, f"{len(node.args)} arguments of {name}")
        if any(each.arg is None for each in node.keywords):
            raise self._beyond(node, "arguments behind **")
        given = [*zip(FIELDS[name], node.args, strict=False), *((each.arg, each.value) for each in node.keywords)]
        if len({key for key, _ in given}) < len(given):
            raise self._beyond(node, f"an argument of {name} that is given twice")
        return {CLASS: name, **{str(key): self._value(value, depth + 1) for key, value in given}}

    def _beyond(self, node: ast.stmt | ast.expr, what: str, hint: str = "") -> Stopped:
        return self.place.fail(self.place.wrong_form, f"line {node.lineno}: {what} is not read", hint)
