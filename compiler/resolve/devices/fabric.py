"""Fabrics: a topology with its links and sizes, checked against the number of GPUs."""

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from math import prod

from ...codes import Code
from ...ir import (
    Fabric,
    FabricKind,
    FatTree,
    Graph,
    Layout,
    Link,
    NoRoute,
    Rails,
    Switch,
    Torus,
    Wire,
    check_reachable,
    topology_of,
)
from ...text import syntax as ast
from ...text.diagnostics import Report, did_you_mean, listing
from ...text.names import Kind, Scope
from ...text.units import NUMBER
from ...text.vocabulary import MAX_RANKS, Property
from ..values.device_numbers import FigureReader
from ..values.evaluate import ExpressionEvaluator, Place
from ..values.sentences import Words, single
from .device import DeviceResolver

_ARGUMENTS: Mapping[FabricKind, tuple[str, ...]] = {
    FabricKind.FULL_MESH: ("link",),
    FabricKind.RING: ("link", "both_ways"),
    FabricKind.SWITCH: ("switch", "link"),
    FabricKind.TORUS: ("link", "shape"),
    FabricKind.FAT_TREE: ("switch", "link", "leaf", "spines"),
    FabricKind.RAILS: ("switch", "link", "node", "nic"),
    FabricKind.EDGES: ("switches",),  # and the names of links
}
_OPTIONAL = ("both_ways", "switches")
_EXAMPLES: Mapping[FabricKind, str] = {
    FabricKind.FULL_MESH: "full_mesh(xgmi)",
    FabricKind.RING: "ring(xgmi, both_ways=true)",
    FabricKind.SWITCH: "switch(nvswitch, link=nvlink)",
    FabricKind.TORUS: "torus(xgmi, shape=[4, 4])",
    FabricKind.FAT_TREE: "fat_tree(nvswitch, link=nvlink, leaf=8, spines=4)",
    FabricKind.RAILS: "rails(nvswitch, link=nvlink, node=8, nic=ib)",
    FabricKind.EDGES: "edges(switches=0, xgmi=[[0, 1], [1, 2]])",
}
_MAX_SIDES = 3
_MAX_WIRES = 1 << 16


def _size(name: str, low: int = 1) -> Property:
    return Property(name, NUMBER, Fraction(low), Fraction(MAX_RANKS), whole=True)


class FabricResolver:
    """Reads ``fabric topology(...)`` of one system with ``num_ranks`` GPUs; where they are not known, as it stands."""

    def __init__(
        self,
        report: Report,
        evaluator: ExpressionEvaluator,
        devices: DeviceResolver,
        scope: Scope,
        num_ranks: int | None,
    ) -> None:
        self._report, self._devices, self._scope, self._num_ranks = report, devices, scope, num_ranks
        self._reader = FigureReader(report, evaluator)

    def fabric(self, statement: ast.Say) -> Fabric:
        """Return the fabric; what does not fit the number of GPUs is reported."""
        kind, call = self._call(statement)
        given = self._arguments(call, kind)
        missing = [name for name in _ARGUMENTS[kind] if name not in given and name not in _OPTIONAL]
        if missing or (kind is FabricKind.EDGES and not set(given) - {"switches"}):
            what = missing[0] if missing else "links"
            raise self._report.fail(Code.MGS209, f"{kind.value} does not say its {what}", call.span, _EXAMPLES[kind])
        if kind is FabricKind.EDGES:
            return self._edges(given, call)
        link = self._link(given["link"])
        switch = None
        if "switch" in given:
            switch = self._devices.switch(self._scope.find(given["switch"], Kind.SWITCH, self._report))
        fabric = Fabric(kind, link, switch, self._truth(given["both_ways"]) if "both_ways" in given else True)
        fabric = replace(fabric, layout=self._layout(kind, given))
        self._check(fabric, call)
        return fabric

    def _call(self, statement: ast.Say) -> tuple[FabricKind, ast.Call]:
        words = Words(statement.phrase, self._report)
        words.take("fabric")
        call = words.take("a topology")
        words.end()
        kinds = {kind.value: kind for kind in FabricKind}
        if not isinstance(call, ast.Call) or not isinstance(call.function, ast.Name):
            hint = f"for instance: fabric {_EXAMPLES[FabricKind.FULL_MESH]}; topologies are {listing(kinds)}"
            raise self._report.fail(Code.MGS116, "fabric says a topology and its link", call.span, hint)
        kind = kinds.get(call.function.text)
        if kind is None:
            hint = did_you_mean(call.function.text, kinds) or f"topologies are {listing(kinds)}"
            message = f"unknown topology '{call.function.text[:64]}'"
            raise self._report.fail(Code.MGS204, message, call.function.span, hint)
        return kind, call

    def _arguments(self, call: ast.Call, kind: FabricKind) -> dict[str, ast.Expression]:
        known = _ARGUMENTS[kind]
        takes_links = kind is FabricKind.EDGES
        given: dict[str, ast.Expression] = {}
        for idx, argument in enumerate(call.arguments):
            name = argument.name or (known[0] if idx == 0 and not takes_links else None)
            if name is None or (name not in known and not takes_links):
                hint = did_you_mean(name, known) if name else ""
                needs = "every argument has a name" if takes_links else "only the first argument has no name"
                message = f"{kind.value} has no argument '{name[:64]}'" if name else needs
                raise self._report.fail(Code.MGS201, message, argument.span, hint or f"write: {_EXAMPLES[kind]}")
            if name in given:
                raise self._report.fail(Code.MGS206, f"{name} is said twice", argument.span)
            given[name] = single(argument.values, self._report, in_call=True)
        return given

    def _layout(self, kind: FabricKind, given: Mapping[str, ast.Expression]) -> Layout | None:
        match kind:
            case FabricKind.TORUS:
                sides = self._list(given["shape"], "shape", "[4, 4]")
                if not 1 <= len(sides) <= _MAX_SIDES:
                    message = f"a torus has up to {_MAX_SIDES} sides, got {len(sides)}"
                    raise self._report.fail(Code.MGS307, message, given["shape"].span)
                return Torus(tuple(self._whole(_size("a side of the torus"), side) for side in sides))
            case FabricKind.FAT_TREE:
                return FatTree(self._whole(_size("leaf"), given["leaf"]), self._whole(_size("spines"), given["spines"]))
            case FabricKind.RAILS:
                return Rails(self._whole(_size("node"), given["node"]), self._link(given["nic"]))
            case _:
                return None

    def _edges(self, given: Mapping[str, ast.Expression], call: ast.Call) -> Fabric:
        """A graph link by link: each argument but ``switches`` is the name of a link with pairs of nodes."""
        switches = self._whole(_size("switches", low=0), given["switches"]) if "switches" in given else 0
        wires: list[Wire] = []
        joined: set[frozenset[int]] = set()
        for name, pairs in given.items():
            if name == "switches":
                continue
            link = self._link(ast.Name(name, span=pairs.span))
            for pair in self._list(pairs, name, "[[0, 1], [1, 2]]"):
                ends = self._pair(pair, switches)
                if frozenset(ends) in joined:
                    message = f"{ends[0]} and {ends[1]} are joined twice"
                    raise self._report.fail(Code.MGS206, message, pair.span, "a wider link is a link of its own")
                joined.add(frozenset(ends))
                wires.append(Wire(ends, link))
        if not 1 <= len(wires) <= _MAX_WIRES:
            message = f"edges has 1 to {_MAX_WIRES:,} links, got {len(wires)}"
            raise self._report.fail(Code.MGS305, message, call.span)
        fabric = Fabric(FabricKind.EDGES, wires[0].link, layout=Graph(switches, tuple(wires)))
        if self._num_ranks is None:
            return fabric
        try:
            check_reachable(topology_of(fabric, self._num_ranks))
        except NoRoute as error:
            message = f"gpu {error.destination} cannot be reached from gpu {error.source}"
            hint = f"add a link to {error.destination}, or one that joins the parts"
            raise self._report.fail(Code.MGS421, message, call.span, hint) from None
        return fabric

    def _pair(self, pair: ast.Expression, switches: int) -> tuple[int, int]:
        ends = self._list(pair, "a link", "[0, 1]")
        last = (MAX_RANKS if self._num_ranks is None else self._num_ranks) + switches - 1
        if len(ends) != 2:
            raise self._report.fail(Code.MGS116, "a link has two ends", pair.span, "for instance [0, 1]")
        node = Property("a node", NUMBER, Fraction(0), Fraction(last), whole=True)
        first, second = (self._whole(node, end) for end in ends)
        if first == second:
            raise self._report.fail(Code.MGS307, f"{first} is joined to itself", pair.span)
        return first, second

    def _check(self, fabric: Fabric, call: ast.Call) -> None:
        """Sizes that do not go together, and switches with too few ports."""
        n, needed, at = self._num_ranks, 0, "the switch"
        if n is None:
            return
        match fabric.layout:
            case Torus(shape):
                if prod(shape) != n:
                    sides = " x ".join(str(side) for side in shape)
                    message = f"a torus of {sides} has {prod(shape)} gpus, the system {n}"
                    raise self._report.fail(Code.MGS420, message, call.span)
            case FatTree(leaf, spines):
                self._check_divides(n, leaf, "leaf", call)
                needed, at = max(leaf + spines, n // leaf), "a leaf or spine"
            case Rails(node, _):
                self._check_divides(n, node, "node", call)
                needed, at = node, "a node"
            case None if fabric.kind is FabricKind.SWITCH:
                needed = n
        if fabric.switch is not None:
            self._check_ports(fabric.switch, needed, at, call)

    def _check_divides(self, num_ranks: int, part: int, name: str, call: ast.Call) -> None:
        if num_ranks % part:
            message = f"{num_ranks} gpus do not divide by {name}={part}"
            raise self._report.fail(Code.MGS420, message, call.span)

    def _check_ports(self, switch: Switch, needed: int, at: str, call: ast.Call) -> None:
        if switch.ports < needed:
            message = f"{at} needs {needed} ports, but switch {switch.name} has {switch.ports}"
            raise self._report.fail(Code.MGS404, message, call.span)

    def _link(self, name: ast.Expression) -> Link:
        return self._devices.link(self._scope.find(name, Kind.LINK, self._report))

    def _whole(self, wanted: Property, expression: ast.Expression) -> int:
        return int(self._reader.value(wanted, (expression,), Place(self._scope)).amount)

    def _list(self, expression: ast.Expression, name: str, example: str) -> tuple[ast.Expression, ...]:
        if not isinstance(expression, ast.Listed):
            raise self._report.fail(Code.MGS116, f"{name} is a list", expression.span, f"for instance {example}")
        return expression.items

    def _truth(self, expression: ast.Expression) -> bool:
        if isinstance(expression, ast.Name) and expression.text in ("true", "false"):
            return expression.text == "true"
        raise self._report.fail(Code.MGS116, "true or false is expected here", expression.span)
