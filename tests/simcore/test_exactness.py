"""Every core equals the event-driven oracle, tick for tick; and the comparison would notice if it did not."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from magus.simcore import windows
from magus.simcore.engine import Core, run
from magus.simcore.layout import NONE
from magus.simcore.outcome import NEVER, Outcome, Run
from magus.simcore.program import Program
from tests.oracle import Oracle, OracleRun
from tests.strategies import programs, random_program


def as_oracle(result: Run) -> OracleRun:
    """The integers of a run in the oracle's form."""
    return OracleRun(
        ready=result.op_ready.tolist(),
        start=result.op_start.tolist(),
        done=result.op_done.tolist(),
        flow_last=result.flow_last.tolist(),
        server_free=result.server_free.tolist(),
        makespan=result.makespan_ticks,
        line_hops=result.line_hops,
    )


def num_wrong(programs: list[Program], oracle: list[OracleRun]) -> int:
    """Programs of which the windowed core gets anything wrong."""
    results = [run(program, core=Core.WINDOWS) for program in programs]
    return sum(as_oracle(result) != expected for result, expected in zip(results, oracle, strict=True))


@pytest.mark.parametrize("core", Core)
@settings(max_examples=400, deadline=None)
@given(program=programs())
def test_equals_oracle(core: Core, program: Program) -> None:
    expected = Oracle(program).run()

    result = run(program, core=core)

    assert as_oracle(result) == expected
    assert (result.outcome is Outcome.DEADLOCK) == (NEVER in expected.done)


@pytest.mark.parametrize("key_bits", [16, 20, 26])
def test_narrow_keys_are_exact_too(monkeypatch: pytest.MonkeyPatch, key_bits: int) -> None:
    monkeypatch.setattr(windows, "KEY_BITS", key_bits)
    by_windows = 0
    for seed in range(150):
        program = random_program(seed, num_ranks=1 + seed % 2)

        result = run(program, core=Core.WINDOWS)

        assert as_oracle(result) == Oracle(program).run()
        by_windows += result.core == "windows"
    assert by_windows > 20  # the rest went to the heap for lack of bits


@pytest.fixture(scope="module")
def sample() -> list[Program]:
    return [random_program(seed, num_ranks=2) for seed in range(120)]


@pytest.fixture(scope="module")
def expected(sample: list[Program]) -> list[OracleRun]:
    return [Oracle(program).run() for program in sample]


def test_sample_is_right_to_begin_with(sample: list[Program], expected: list[OracleRun]) -> None:
    assert num_wrong(sample, expected) == 0


def test_window_too_long_is_noticed(
    monkeypatch: pytest.MonkeyPatch, sample: list[Program], expected: list[OracleRun]
) -> None:
    monkeypatch.setattr(
        windows, "window_ticks", lambda program, exact=windows.window_ticks: -(-3 * exact(program) // 2)
    )

    assert num_wrong(sample, expected) > 20


def test_wrong_order_of_ties_is_noticed(sample: list[Program], expected: list[OracleRun]) -> None:
    backwards = [with_ties_backwards(program) for program in sample]

    assert [Oracle(program).run() for program in backwards] == expected  # it has an order of its own
    assert num_wrong(backwards, expected) > 20


def with_ties_backwards(program: Program) -> Program:
    """The same program, its flow-hops numbered from the last to the first."""
    top = program.num_hops - 1
    following = np.where(program.hop_next == NONE, NONE, top - program.hop_next)
    return replace(
        program,
        hop_server=program.hop_server[::-1].copy(),
        hop_flow=program.hop_flow[::-1].copy(),
        hop_index=program.hop_index[::-1].copy(),
        hop_next=following[::-1].copy(),
        flow_first_hop=top - program.flow_first_hop,
    )
