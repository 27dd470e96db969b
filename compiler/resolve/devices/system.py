"""Resolve systems: the GPU, the number of GPUs, and the fabric."""

from collections.abc import Mapping
from fractions import Fraction

from ...codes import Code
from ...ir import Fabric, Gpu, Replay, System, Variability
from ...text import syntax as ast
from ...text.diagnostics import Report
from ...text.names import Entry, Kind, Scope
from ...text.units import NUMBER
from ...text.vocabulary import MAX_RANKS, SYSTEM_WORDS, Property
from ..values.device_numbers import FigureReader
from ..values.evaluate import ExpressionEvaluator, Place
from ..values.sentences import Words, known_head
from .device import DeviceResolver
from .fabric import FabricResolver
from .replay_file import read_replay
from .variability import VariabilityReader

_COUNT = Property("the number of gpus", NUMBER, Fraction(1), Fraction(MAX_RANKS), whole=True)


class SystemResolver:
    """Resolves each system once."""

    def __init__(self, report: Report, evaluator: ExpressionEvaluator, devices: DeviceResolver) -> None:
        self._report, self._evaluator, self._devices = report, evaluator, devices
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
        assert isinstance(declaration, ast.System)
        failures_before = self._report.num_failures
        statements = self._statements(declaration)
        gpus: tuple[int, Gpu] | None = None
        with self._report.attempt():
            gpus = self._gpus(statements["gpus"], entry.scope) if "gpus" in statements else None
        fabric, variability, replay = self._rest(statements, gpus[0] if gpus is not None else None, entry.scope)
        if self._report.num_failures == failures_before:
            self._check_complete(declaration, statements)
        if gpus is None or fabric is None or self._report.num_failures > failures_before:
            raise self._report.stop()
        return System(declaration.name, *gpus, fabric, variability, replay)

    def _rest(
        self, statements: Mapping[str, ast.Say], num_ranks: int | None, scope: Scope
    ) -> tuple[Fabric | None, Variability | None, Replay | None]:
        """Read the other statements; without the number of GPUs only the fabric."""
        fabric, variability, replay = None, None, None
        with self._report.attempt():
            if "fabric" in statements:
                reader = FabricResolver(self._report, self._evaluator, self._devices, scope, num_ranks)
                fabric = reader.fabric(statements["fabric"])
        with self._report.attempt():
            if "variability" in statements and num_ranks is not None:
                variability_reader = VariabilityReader(self._report, self._evaluator, scope, num_ranks)
                variability = variability_reader.read(statements["variability"])
        with self._report.attempt():
            if "replay" in statements and num_ranks is not None:
                replay = self._replay(statements["replay"], num_ranks)
        return fabric, variability, replay

    def _statements(self, declaration: ast.System) -> dict[str, ast.Say]:
        statements: dict[str, ast.Say] = {}
        for statement in declaration.block.statements:
            with self._report.attempt():
                word = known_head(statement, SYSTEM_WORDS, f"system {declaration.name}", self._report)
                assert isinstance(statement, ast.Say)
                if word in statements:
                    raise self._report.fail(Code.MGS206, f"{word} is said twice", statement.span)
                statements[word] = statement
        return statements

    def _check_complete(self, declaration: ast.System, statements: dict[str, ast.Say]) -> None:
        for word, example in (("gpus", "gpus 8 x MI300X"), ("fabric", "fabric full_mesh(xgmi)")):
            if word not in statements:
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

    def _replay(self, statement: ast.Say, num_ranks: int) -> Replay:
        words = Words(statement.phrase, self._report)
        words.take("replay")
        text = words.take("a file")
        words.end()
        if not isinstance(text, ast.Text):
            raise self._report.fail(Code.MGS116, "replay names a file", text.span, 'for instance: replay "profile.csv"')
        return read_replay(text, num_ranks, self._report)
