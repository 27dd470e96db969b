"""Systems: how many of which GPU, behind which fabric."""

from collections.abc import Mapping
from fractions import Fraction

from . import syntax as ast
from .codes import Code
from .diagnostics import Report, did_you_mean, listing
from .evaluate import Evaluator, Place
from .figures import FigureReader
from .names import Entry, Kind, Scope
from .phrases import Words, known_head, single
from .resolve_device import DeviceResolver
from .scenario import Fabric, FabricKind, Gpu, System
from .tables import MAX_RANKS, SYSTEM_WORDS, Property
from .units import NUMBER

_COUNT = Property("the number of gpus", NUMBER, Fraction(1), Fraction(MAX_RANKS), whole=True)
_ARGUMENTS: Mapping[FabricKind, tuple[str, ...]] = {
    FabricKind.FULL_MESH: ("link",),
    FabricKind.RING: ("link", "both_ways"),
    FabricKind.SWITCH: ("switch", "link"),
}
_EXAMPLES: Mapping[FabricKind, str] = {
    FabricKind.FULL_MESH: "full_mesh(xgmi)",
    FabricKind.RING: "ring(xgmi, both_ways=true)",
    FabricKind.SWITCH: "switch(nvswitch, link=nvlink)",
}


class SystemResolver:
    """Resolves each system once."""

    def __init__(self, report: Report, evaluator: Evaluator, devices: DeviceResolver) -> None:
        self._report, self._evaluator, self._devices = report, evaluator, devices
        self._systems: dict[Entry, System | None] = {}

    def system(self, entry: Entry) -> System:
        """Return the resolved system."""
        if entry not in self._systems:
            self._systems[entry] = None
            with self._report.attempt():
                self._systems[entry] = self._resolve(entry)
        found = self._systems[entry]
        if found is None:
            raise self._report.stop()
        return found

    def _resolve(self, entry: Entry) -> System:
        declaration = entry.declaration
        assert isinstance(declaration, ast.System)
        failures_before = self._report.num_failures
        said = self._statements(declaration)
        gpus: tuple[int, Gpu] | None = None
        fabric: Fabric | None = None
        with self._report.attempt():
            gpus = self._gpus(said["gpus"], entry.scope) if "gpus" in said else None
        with self._report.attempt():
            fabric = self._fabric(said["fabric"], entry.scope) if "fabric" in said else None
        if self._report.num_failures == failures_before:
            self._check_complete(declaration, said)
        if gpus is None or fabric is None:
            raise self._report.stop()
        if fabric.switch is not None and fabric.switch.ports < gpus[0]:
            message = f"{gpus[0]} gpus, but switch {fabric.switch.name} has {fabric.switch.ports} ports"
            raise self._report.fail(Code.MGS404, message, said["gpus"].span)
        return System(declaration.name, gpus[0], gpus[1], fabric)

    def _statements(self, declaration: ast.System) -> dict[str, ast.Say]:
        said: dict[str, ast.Say] = {}
        for statement in declaration.block.statements:
            with self._report.attempt():
                word = known_head(statement, SYSTEM_WORDS, f"system {declaration.name}", self._report)
                assert isinstance(statement, ast.Say)
                if word in said:
                    raise self._report.fail(Code.MGS206, f"{word} is said twice", statement.span)
                said[word] = statement
        return said

    def _check_complete(self, declaration: ast.System, said: dict[str, ast.Say]) -> None:
        for word, example in (("gpus", "gpus 8 x MI300X"), ("fabric", "fabric full_mesh(xgmi)")):
            if word not in said:
                message = f"system {declaration.name} does not say its {word}"
                self._report.error(Code.MGS209, message, declaration.span, f"for instance: {example}")

    def _gpus(self, statement: ast.Say, scope: Scope) -> tuple[int, Gpu]:
        words = Words(statement.phrase, self._report)
        words.take("gpus")
        count = words.take("how many")
        if not words.take_word("x"):
            raise self._report.fail(Code.MGS116, "gpus says how many of which", statement.span, "gpus 8 x MI300X")
        which = words.take("a gpu")
        words.end()
        number = int(FigureReader(self._report, self._evaluator).value(_COUNT, (count,), Place(scope)).amount)
        return number, self._devices.gpu(scope.find(which, Kind.GPU, self._report))

    def _fabric(self, statement: ast.Say, scope: Scope) -> Fabric:
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
            raise self._report.fail(
                Code.MGS204, f"unknown topology '{call.function.text[:64]}'", call.function.span, hint
            )
        given = self._arguments(call, kind)
        if "link" not in given or (kind is FabricKind.SWITCH and "switch" not in given):
            raise self._report.fail(Code.MGS209, f"{kind.value} does not say its link", call.span, _EXAMPLES[kind])
        link = self._devices.link(scope.find(given["link"], Kind.LINK, self._report))
        switch = None
        if "switch" in given:
            switch = self._devices.switch(scope.find(given["switch"], Kind.SWITCH, self._report))
        return Fabric(kind, link, switch, self._truth(given["both_ways"]) if "both_ways" in given else True)

    def _arguments(self, call: ast.Call, kind: FabricKind) -> dict[str, ast.Expression]:
        known = _ARGUMENTS[kind]
        given: dict[str, ast.Expression] = {}
        for idx, argument in enumerate(call.arguments):
            name = argument.name or (known[0] if idx == 0 else None)
            if name not in known:
                hint = did_you_mean(name, known) if name else ""
                message = (
                    f"{kind.value} has no argument '{name[:64]}'" if name else "only the first argument has no name"
                )
                raise self._report.fail(Code.MGS201, message, argument.span, hint or f"write: {_EXAMPLES[kind]}")
            if name in given:
                raise self._report.fail(Code.MGS206, f"{name} is said twice", argument.span)
            given[name] = single(argument.values, self._report, in_call=True)
        return given

    def _truth(self, expression: ast.Expression) -> bool:
        if isinstance(expression, ast.Name) and expression.text in ("true", "false"):
            return expression.text == "true"
        raise self._report.fail(Code.MGS116, "true or false is expected here", expression.span)
