"""One rank stands for all: folded and unfolded programs agree for every rank, tick for tick."""

import numpy as np
import pytest

from magus.simcore.cores.engine import Core, run
from magus.simcore.program.arrays import NONE
from magus.simcore.program.program import RunOutcome
from tests.helpers.oracle.strategies import symmetric_program


@pytest.mark.quick(3)
@pytest.mark.parametrize("num_ranks", [2, 4, 8])
@pytest.mark.parametrize("shape", ["mesh", "switch", "ring"])
def test_folded_equals_every_rank(shape: str, num_ranks: int) -> None:
    for seed in range(6):
        folded = symmetric_program(seed, shape, num_ranks, folded=True)
        unfolded = symmetric_program(seed, shape, num_ranks, folded=False)
        one = run(folded, core=Core.COMPILED)
        every = run(unfolded, core=Core.WINDOWS)

        assert folded.folded and not unfolded.folded
        assert one.outcome is every.outcome is RunOutcome.DONE
        assert one.makespan_ticks == every.makespan_ticks
        assert one.line_hops * num_ranks == every.line_hops
        own = folded.op_local_id != NONE
        for rank in range(num_ranks):
            here = (unfolded.op_rank == rank) & (unfolded.op_local_id != NONE)
            for times, all_times in ((one.op_ready, every.op_ready), (one.op_done, every.op_done)):
                np.testing.assert_array_equal(all_times[here], times[own])
        by_rank = every.server_free.reshape(-1, num_ranks)  # [server, rank]
        np.testing.assert_array_equal(by_rank, np.repeat(one.server_free[:, None], num_ranks, axis=1))


def test_both_cores_agree_on_the_folded_program() -> None:
    program = symmetric_program(3, "mesh", 8, folded=True)

    compiled, by_windows = run(program, core=Core.COMPILED), run(program, core=Core.WINDOWS)

    np.testing.assert_array_equal(compiled.op_done, by_windows.op_done)
    np.testing.assert_array_equal(compiled.flow_last, by_windows.flow_last)
