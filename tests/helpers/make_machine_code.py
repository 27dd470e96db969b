"""Machine code of the compiled core, made once: ``python -m tests.helpers.make_machine_code``.

Tests that run side by side and find none would each make their own, for some twenty seconds.
"""

from magus.simcore.cores.engine import Core, run
from magus.simcore.program.builder import ProgramBuilder
from magus.simcore.program.program import Flow, OpKind, OpSpec, Stage


def make() -> None:
    """Run two programs: numba makes other code for those with buffers."""
    for buffer_units in (0, 1):
        builder = ProgramBuilder(1, unit_bytes=128)
        first, second = builder.server("first", 1, 1), builder.server("second", 1, 1, buffer_units=buffer_units)
        builder.op(0, OpSpec(OpKind.TRANSFER, "put", [Stage(0, (Flow(((first, 0), (second, 0)), 1),))]))
        run(builder.build(), core=Core.COMPILED)


if __name__ == "__main__":
    make()
