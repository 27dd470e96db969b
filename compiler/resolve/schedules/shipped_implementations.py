"""The implementations that ship with Magus, read for a system."""

from ...codes import Code
from ...ir import Implementation, System
from ...text.diagnostics import Report
from ...text.load import load, shipped_libraries
from ...text.names import Entry, Kind
from ...text.source import Source
from ..values.evaluate import ExpressionEvaluator
from .implementation import ImplementationReader

FOLDER = "implementations/"
_USUAL = 'use "nvidia/h100"\nsystem usual { gpus 8 x H100; fabric switch(nvswitch, link=nvlink) }'


def usual_systems() -> list[Entry]:
    """Return the system for which the implementations of a file without one are read: 8 H100 behind a switch."""
    return load(Source("<usual>", _USUAL), Report()).of_kind(Kind.SYSTEM)


def shipped_implementations(system: System) -> tuple[Implementation, ...]:
    """Return every shipped implementation whose schedules the engines and ranks of ``system`` can carry out."""
    found: list[Implementation] = []
    text = "\n".join(f'use "{name}"' for name in shipped_libraries() if name.startswith(FOLDER))
    scope = load(Source("<shipped>", text), Report())
    for entry in scope.devices():
        report = Report()
        with report.trial():
            if entry.kind is Kind.IMPLEMENTATION:
                found.append(ImplementationReader(system, ExpressionEvaluator(report, {}), report).read(entry))
        unexpected = [each for each in report.diagnostics if each.code is not Code.MGS401]
        assert not unexpected, f"the shipped implementation {entry.name}: {unexpected[0].message}"
    return tuple(found)
