"""A run stays within its budget of memory, or says that it does not."""

import subprocess
import sys
from pathlib import Path

import pytest

from magus.simcore.cores.engine import Core

RUN = """
from pathlib import Path
from magus.simcore.program.builder import ProgramBuilder
from magus.simcore.cores.engine import Core, run
from magus.simcore.program.limits import RunBudget
from magus.simcore.program.program import Flow, OpSpec, OpKind, Program, Stage

def flood(units):  # units come far faster than they are served, and pile up on the way to the last server
    b = ProgramBuilder(1, unit_bytes=128)
    times = (("fast", 10), ("slow", 200), ("last", 10))
    route = tuple((b.server(name, service, 100_000), 0) for name, service in times)
    b.op(0, OpSpec(OpKind.TRANSFER, "t", [Stage(0, (Flow(route, units, 10),))]))
    return b.build()

def status(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))

run(flood(1000), core=Core.{core})  # what is loaded once is not the run's
before = status("VmRSS")
result = run(flood({units}), core=Core.{core}, budget=RunBudget(memory_bytes={budget}))
print(result.outcome.name, status("VmHWM") - before)
"""

MIB = 1 << 20


@pytest.mark.quick(1)
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="asks Linux for the peak of memory")
@pytest.mark.parametrize(
    ("core", "units", "outcome"),
    [
        (Core.WINDOWS, 6_000_000, "MEMORY"),
        (Core.WINDOWS, 50_000, "DONE"),
        pytest.param(Core.COMPILED, 6_000_000, "MEMORY", marks=pytest.mark.slow),
    ],
)
def test_memory_is_not_exceeded_by_more_than_a_tenth(core: Core, units: int, outcome: str) -> None:
    budget = 40 * MIB
    code = RUN.format(core=core.name, units=units, budget=budget)

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    ended, peak = done.stdout.split()
    assert ended == outcome
    assert int(peak) <= 1.1 * budget
