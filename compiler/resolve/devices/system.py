"""Systems: the GPU, the number of GPUs, and the fabric, a topology with its links and sizes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, TypeVar

from ...codes import Code
from ...ir import (
    ArgumentKind,
    Axis,
    Fabric,
    Gpu,
    Link,
    Rejection,
    Replay,
    Switch,
    System,
    Topology,
    TopologyArgument,
    Wire,
    adjacent,
    topologies,
)
from ...text import syntax as ast
from ...text.diagnostics import did_you_mean, listing
from ...text.names import Entry, Kind
from ...text.vocabulary import MAX_RANKS, SYSTEM_WORDS
from ..values.evaluate import Reading
from ..values.words import behind, head_word, one_of, said_in, single, truth
from .device import DeviceResolver
from .variability import TrafficReader, VariabilityReader, check_rates, read_replay

_MAX_WIRES = 1 << 16
# Fields of a fabric; other arguments belong to the layout of the topology.
_OF_FABRIC = ("link", "switch", "both_ways")
_Part = TypeVar("_Part")


class FabricResolver:
    """Reads ``fabric topology(...)`` of one system; sizes are checked if ``num_ranks`` is known."""

    def __init__(self, reading: Reading, devices: DeviceResolver, num_ranks: int | None) -> None:
        self._reading, self._report, self._scope = reading, reading.report, reading.place.scope
        self._devices, self._num_ranks = devices, num_ranks
        self._readers: Mapping[ArgumentKind, Callable[[TopologyArgument, ast.Expression], Any]] = {
            ArgumentKind.LINK: lambda _, name: self._link(name),
            ArgumentKind.SWITCH: lambda _, name: self._switch(name),
            ArgumentKind.TRUTH: lambda _, said: truth(said, self._report),
            ArgumentKind.COUNT: self._count,
            ArgumentKind.COUNTS: self._counts,
        }

    def fabric(self, statement: ast.Say) -> Fabric:
        """Return the fabric; report sizes that do not fit the number of GPUs."""
        topology, call = self._call(statement)
        failures = self._report.num_failures
        given = self._arguments(call, topology)
        if self._report.num_failures == failures:
            with self._report.attempt():
                self._check_complete(topology, given, call)
        values = self._values(topology, given)
        if topology.takes_links and self._report.num_failures == failures:
            values[topologies.WIRES] = self._wires(topology, given, values, call)
        if self._report.num_failures > failures:
            raise self._report.stop()
        link = values["link"] if "link" in values else values[topologies.WIRES][0].link
        others = {name: value for name, value in values.items() if name not in _OF_FABRIC}
        layout = None if topology.layout is None else topology.layout(**others)
        fabric = Fabric(topology, link, values.get("switch"), values.get("both_ways", True), layout)
        if self._num_ranks is not None:
            self._report.require(topology.reject(fabric, self._num_ranks), call.span)
        return fabric

    def _call(self, statement: ast.Say) -> tuple[Topology, ast.Call]:
        call = behind(statement, self._report).only("a topology")
        known = {topology.name: topology for topology in topologies.TOPOLOGIES}
        if not isinstance(call, ast.Call) or not isinstance(call.function, ast.Name):
            hint = f"for instance: fabric {topologies.TOPOLOGIES[0].example}; topologies are {listing(known)}"
            raise self._report.fail(Code.MGS116, "fabric says a topology and its link", call.span, hint)
        hint = f"topologies are {listing(known)}"
        return known[one_of(known, call.function, "topology", self._report, hint)], call

    def _arguments(self, call: ast.Call, topology: Topology) -> dict[str, ast.Expression]:
        given: dict[str, ast.Expression] = {}
        for idx, argument in enumerate(call.arguments):
            with self._report.attempt():
                name = argument.name or (topology.arguments[0].name if idx == 0 and not topology.takes_links else "")
                self._check_argument(name, argument, topology)
                if name in given:
                    raise self._report.fail(Code.MGS206, f"{name} is said twice", argument.span)
                given[name] = single(argument.values, self._report, in_call=True)
        return given

    def _check_argument(self, name: str, argument: ast.Argument, topology: Topology) -> None:
        known = [each.name for each in topology.arguments]
        if name in known or (name and topology.takes_links):
            return
        needs = "every argument has a name" if topology.takes_links else "only the first argument has no name"
        message = f"{topology.name} has no argument '{name[:64]}'" if name else needs
        hint = (did_you_mean(name, known) if name else "") or f"write: {topology.example}"
        raise self._report.fail(Code.MGS201, message, argument.span, hint)

    def _check_complete(self, topology: Topology, given: Mapping[str, ast.Expression], call: ast.Call) -> None:
        missing = [
            argument.name for argument in topology.arguments if argument.name not in given and not argument.optional
        ]
        if topology.takes_links and not set(given) - {argument.name for argument in topology.arguments}:
            missing.append("links")
        if missing:
            message = f"{topology.name} does not say its {missing[0]}"
            raise self._report.fail(Code.MGS209, message, call.span, topology.example)

    def _values(self, topology: Topology, given: Mapping[str, ast.Expression]) -> dict[str, Any]:
        """Return the values of the named arguments; what is wrong with each is reported."""
        values: dict[str, Any] = {}
        for argument in topology.arguments:
            with self._report.attempt():
                if argument.name in given:
                    values[argument.name] = self._readers[argument.kind](argument, given[argument.name])
        return values

    def _wires(
        self, topology: Topology, given: Mapping[str, ast.Expression], values: Mapping[str, Any], call: ast.Call
    ) -> tuple[Wire, ...]:
        """Read links one by one: each argument that the topology does not define is a link with pairs of nodes."""
        last = (MAX_RANKS if self._num_ranks is None else self._num_ranks) + values.get("switches", 0) - 1
        wires: list[Wire] = []
        joined: set[tuple[int, int]] = set()
        named = {argument.name for argument in topology.arguments}
        with self._report.whole():
            for name, pairs in given.items():
                with self._report.attempt():
                    if name not in named:
                        wires += self._wires_of(name, pairs, last, joined)
        if not 1 <= len(wires) <= _MAX_WIRES:
            message = f"{topology.name} has 1 to {_MAX_WIRES:,} links, got {len(wires)}"
            raise self._report.fail(Code.MGS305, message, call.span)
        return tuple(wires)

    def _wires_of(self, name: str, pairs: ast.Expression, last: int, joined: set[tuple[int, int]]) -> Iterator[Wire]:
        """The links of one kind; ``joined`` are the pairs of nodes that are joined already."""
        link = self._link(ast.Name(name, span=pairs.span))
        for pair in self._list(pairs, name, "[[0, 1], [1, 2]]"):
            ends = self._pair(pair, last)
            wire = Wire(ends, link, one_way=isinstance(pair, ast.Compare))
            if not joined.isdisjoint(wire.ways):
                message = f"{ends[0]} and {ends[1]} are joined twice"
                raise self._report.fail(Code.MGS206, message, pair.span, "a wider link is a link of its own")
            joined.update(wire.ways)
            yield wire

    def _pair(self, pair: ast.Expression, last: int) -> tuple[int, int]:
        if isinstance(pair, ast.Compare) and pair.operator == "->":
            ends: Sequence[ast.Expression] = (pair.left, pair.right)
        else:
            ends = self._list(pair, "a link", "[0, 1], or 0 -> 1 for one way")
        if len(ends) != 2:
            raise self._report.fail(Code.MGS116, "a link has two ends", pair.span, "for instance [0, 1]")
        first, second = (self._reading.count("a node", 0, last, end) for end in ends)
        if first == second:
            raise self._report.fail(Code.MGS307, f"{first} is joined to itself", pair.span)
        return first, second

    def _count(self, argument: TopologyArgument, expression: ast.Expression) -> int:
        return self._reading.count(argument.label or argument.name, argument.minimum, MAX_RANKS, expression)

    def _counts(self, argument: TopologyArgument, expression: ast.Expression) -> tuple[int, ...]:
        items = self._list(expression, argument.name, argument.example)
        if not 1 <= len(items) <= argument.max_items:
            message = f"{argument.too_many.format(argument.max_items)}, got {len(items)}"
            raise self._report.fail(Code.MGS307, message, expression.span)
        return tuple(self._count(argument, item) for item in items)

    def _list(self, expression: ast.Expression, name: str, example: str) -> tuple[ast.Expression, ...]:
        if not isinstance(expression, ast.Listed):
            raise self._report.fail(Code.MGS116, f"{name} is a list", expression.span, f"for instance {example}")
        return expression.items

    def _switch(self, name: ast.Expression) -> Switch:
        return self._devices.switch(self._scope.find(name, Kind.SWITCH, self._report))

    def _link(self, name: ast.Expression) -> Link:
        return self._devices.link(self._scope.find(name, Kind.LINK, self._report))


class SystemResolver:
    """Resolves each system once."""

    def __init__(self, reading: Reading, devices: DeviceResolver) -> None:
        self._reading, self._report, self._devices = reading, reading.report, devices
        self._systems: dict[Entry, System | None] = {}

    def system(self, entry: Entry) -> System:
        """Return the resolved system."""
        if entry not in self._systems:
            self._systems[entry] = None
            with self._report.attempt():
                self._systems[entry] = self._resolve(entry)
        resolved = self._systems[entry]
        if resolved is None:
            raise self._report.stop()
        return resolved

    def _resolve(self, entry: Entry) -> System:
        declaration = entry.declaration
        assert isinstance(declaration, ast.SystemNode)
        failures_before, reading = self._report.num_failures, self._reading.inside(entry.scope)
        said = dict(said_in(declaration.block, SYSTEM_WORDS, f"system {declaration.name}", self._report, ("mesh",)))
        gpus = self._read(said, "gpus", lambda each: self._gpus(each, reading))
        num_ranks = gpus[0] if gpus is not None else None
        fabric = self._read(said, "fabric", FabricResolver(reading, self._devices, num_ranks).fabric)
        if num_ranks is not None:
            variability = self._read(said, "variability", VariabilityReader(reading, num_ranks).read)
            replay = self._read(said, "replay", lambda each: self._replay(each, num_ranks))
            traffic = self._read(said, "traffic", TrafficReader(reading, num_ranks).read)
        if self._report.num_failures == failures_before:
            self._check_complete(declaration, said)
        if gpus is None or fabric is None or self._report.num_failures > failures_before:
            raise self._report.stop()
        mesh = self._mesh(declaration, gpus[0], reading)
        system = System(declaration.name, *gpus, fabric, variability, replay, mesh, traffic=traffic)
        if traffic is not None and replay is not None:
            message = "replay already has all writes to rank 0, and traffic would add more"
            raise self._report.fail(Code.MGS523, message, said["traffic"].span, "leave replay or traffic out")
        if traffic is not None:
            check_rates(system, said["traffic"], self._report)
        return system

    def _read(self, said: Mapping[str, ast.Say], word: str, read: Callable[[ast.Say], _Part]) -> _Part | None:
        """Read the statement of a word; None where there is none, or where it has errors."""
        with self._report.attempt():
            if word in said:
                return read(said[word])
        return None

    def of_workload(self, entry: Entry) -> System:
        """Return the system that a workload runs on: a whole one, or a group along axes of its mesh, ``pod.tp``."""
        whole, axes = self.whole_of(entry)
        system = self.system(whole)
        if not axes:
            return system
        group = system.group(axes)
        if isinstance(group, Rejection):
            known = [axis.name for axis in system.mesh]
            guess = next((did_you_mean(name, known) for name in axes if name not in known), "")
            raise self._report.fail(group.code, group.message, entry.workload.system.span, guess or group.hint)
        return group

    def whole_system(self, entry: Entry) -> System:
        """Return the system that a workload names, whose group it may be on."""
        return self.system(self.whole_of(entry)[0])

    def whole_of(self, entry: Entry) -> tuple[Entry, tuple[str, ...]]:
        """Return the system that a workload names, and the axes behind it."""
        names = entry.workload.system.names
        for count in range(len(names) - 1, 0, -1):
            found = entry.scope.lookup(names[:count])
            if found is not None and found.kind is Kind.SYSTEM and entry.scope.lookup(names) is None:
                return found, names[count:]
        return entry.scope.find(entry.workload.system, Kind.SYSTEM, self._report), ()

    def _mesh(self, declaration: ast.SystemNode, num_ranks: int, reading: Reading) -> tuple[Axis, ...]:
        """Read ``mesh tp 8, dp 4, pp 4`` and ``mesh ep 64, edp 2 over tp, dp``."""
        mesh: list[Axis] = []
        for statement in declaration.block.statements:
            if isinstance(statement, ast.Say) and head_word(statement) == "mesh":
                mesh += self._axes(statement, tuple(mesh), num_ranks, reading)
        return tuple(mesh)

    def _axes(self, statement: ast.Say, known: tuple[Axis, ...], num_ranks: int, reading: Reading) -> list[Axis]:
        words = behind(statement, self._report)
        sizes: list[tuple[str, int]] = []
        over, going = tuple[Axis, ...](), True
        while going:
            name = words.take_name("an axis")
            if name.text in {each for each, _ in sizes} | {axis.name for axis in known}:
                raise self._report.fail(Code.MGS206, f"axis '{name.text}' is said twice", name.span)
            size = words.take(f"the size of {name.text}")
            sizes.append((name.text, reading.count("the size of an axis", 1, MAX_RANKS, size)))
            if words.take_word("over"):
                over = tuple(self._axis(each, known) for each in words.take_list("an axis"))
                break
            going = words.skip_comma()
        words.end(("over",))
        if known and not over:
            hint = "mesh ep 64, edp 2 over tp, dp"
            raise self._report.fail(Code.MGS440, "a second mesh needs over and axes", statement.span, hint)
        stride, wanted, what = 1, num_ranks, f"there are {num_ranks} gpus"
        if over:
            lies = adjacent(over)
            if isinstance(lies, Rejection):
                raise self._report.refuse(lies, statement.span)
            stride, wanted = min(axis.stride for axis in over), prod(axis.size for axis in over)
            what = f"{listing([axis.name for axis in over])} have {wanted} ranks"
        if prod(size for _, size in sizes) != wanted:
            product = " x ".join(str(size) for _, size in sizes)
            message = f"the axes have {product} = {prod(size for _, size in sizes)} ranks, {what}"
            raise self._report.fail(Code.MGS440, message, statement.span, "the sizes multiply to the number of ranks")
        axes = list[Axis]()
        for axis_name, axis_size in sizes:
            axes.append(Axis(axis_name, axis_size, stride))
            stride *= axis_size
        return axes

    def _axis(self, value: ast.Expression, known: tuple[Axis, ...]) -> Axis:
        names = {axis.name: axis for axis in known}
        hint = f"axes are: {listing(names) or 'none yet'}"
        return names[one_of(names, value, "axis", self._report, hint, Code.MGS203)]

    def _check_complete(self, declaration: ast.SystemNode, statements: dict[str, ast.Say]) -> None:
        for word, example in (("gpus", "gpus 8 x MI300X"), ("fabric", "fabric full_mesh(xgmi)")):
            if word not in statements:
                message = f"system {declaration.name} does not say its {word}"
                self._report.error(Code.MGS209, message, declaration.span, f"for instance: {example}")

    def _gpus(self, statement: ast.Say, reading: Reading) -> tuple[int, Gpu]:
        words = behind(statement, self._report)
        count = words.take("how many")
        if not words.take_word("x"):
            raise self._report.fail(Code.MGS116, "gpus needs a number x a GPU", statement.span, "gpus 8 x MI300X")
        which = words.only("a gpu")
        number = reading.count("the number of gpus", 1, MAX_RANKS, count)
        return number, self._devices.gpu(reading.place.scope.find(which, Kind.GPU, self._report))

    def _replay(self, statement: ast.Say, num_ranks: int) -> Replay:
        text = behind(statement, self._report).only("a file")
        if not isinstance(text, ast.Text):
            raise self._report.fail(Code.MGS116, "replay names a file", text.span, 'for instance: replay "profile.csv"')
        return read_replay(text, num_ranks, self._report)
