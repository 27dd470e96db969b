"""Numbers far from the usual: long times, long idleness, vast buffers, and input that is no number at all."""

from dataclasses import replace

import numpy as np
import pytest

from magus.simcore.cores.engine import Core, EngineUnavailable, run
from magus.simcore.figures.critical_path import Cause, critical_path
from magus.simcore.program.builder import ProgramBuilder
from magus.simcore.program.limits import HorizonError, RunBudget, RunTooLarge, check_horizon
from magus.simcore.program.program import Flow, OpKind, OpSpec, Program, RunOutcome, Stage
from tests.helpers.oracle.oracle import Oracle
from tests.helpers.oracle.strategies import ALL, random_program

TIMES = (
    *("service_ticks", "latency_ticks", "buffer_credit_ticks", "op_setup_ticks", "op_release_ticks"),
    *("stage_hold_ticks", "flow_gap_ticks", "flow_offset_ticks"),
)


def builder() -> ProgramBuilder:
    return ProgramBuilder(1, unit_bytes=128)


def stretched(program: Program, factor: int) -> Program:
    """The same program with all its times ``factor`` times as long."""
    longer = replace(program, **{name: getattr(program, name) * factor for name in TIMES})
    check_horizon(longer)
    return longer


@pytest.mark.usefixtures("compiled_core")
@pytest.mark.parametrize("core", Core)
@pytest.mark.parametrize("bits", [pytest.param(20, marks=pytest.mark.slow), 34])
def test_times_of_any_length_are_exact(core: Core, bits: int) -> None:
    compared, refused = 0, 0
    for seed in range(20):
        program = random_program(seed, num_ranks=2, features=ALL)
        try:
            longer = stretched(program, 1 << bits)
            short, long = run(program, observe=True), run(longer, core=core, observe=True)
        except HorizonError:
            continue
        except RunTooLarge as error:
            assert core is Core.WINDOWS and bits == 34, error
            refused += 1
            continue

        assert short.outcome is long.outcome
        for times in ("op_ready", "op_start", "op_done"):
            expected = getattr(short, times)
            assert np.array_equal(getattr(long, times), np.where(expected < 0, expected, expected << bits))
        if short.outcome is RunOutcome.DONE:
            assert short.hop_wait_ticks is not None and long.hop_wait_ticks is not None
            np.testing.assert_allclose(long.hop_wait_ticks, short.hop_wait_ticks * 2.0**bits, rtol=1e-6)
        compared += 1
    assert compared + refused > 15
    assert compared > refused


@pytest.mark.parametrize("core", Core)
def test_units_may_be_far_apart(core: Core) -> None:
    b = builder()
    s = b.server("s", 1, 1)
    b.op(0, OpSpec(OpKind.TILE, "x", [Stage(0, (Flow(((s, 0),) * 16, 2, 2**59),))]))

    assert run(b.build(), core=core).makespan_ticks == 2**59 + 2 * 16


@pytest.mark.parametrize("core", Core)
def test_a_program_may_begin_late(core: Core) -> None:
    b = builder()
    s = b.server("s", 1, 1)
    b.op(0, OpSpec(OpKind.TILE, "x", [Stage(0, (Flow(((s, 0),) * 64, 2),))], release_ticks=2**57))
    program = b.build()

    assert run(program, core=core).makespan_ticks == Oracle(program).run().makespan > 2**57


@pytest.mark.parametrize("core", Core)
def test_sums_of_waits_do_not_wrap(core: Core) -> None:
    b = builder()
    s = b.server("s", 1_200_000, 1)
    b.op(0, OpSpec(OpKind.TILE, "x", [Stage(0, (Flow(((s, 0),), 4_000_000),))]))
    program = b.build()
    units = int(program.flow_units[0])

    waited = run(program, core=core, observe=True).hop_wait_ticks

    assert waited is not None
    assert waited[0] == pytest.approx(1_200_000 * units * (units - 1) / 2, rel=1e-6)


@pytest.mark.parametrize("core", Core)
def test_vast_buffers_cost_nothing(core: Core) -> None:
    b = builder()
    one, two = b.server("one", 1, 1), b.server("two", 2, 1, buffer_units=1 << 62)
    b.op(0, OpSpec(OpKind.TILE, "x", [Stage(0, (Flow(((one, 0), (two, 0)), 5),))]))

    assert run(b.build(), core=core, budget=RunBudget(memory_bytes=1 << 20)).makespan_ticks == 2 + 5 * 2 + 1


@pytest.mark.parametrize("ticks", [2**62, 2**63 - 1])
def test_a_server_slower_than_the_clock_is_refused(ticks: int) -> None:
    with pytest.raises(HorizonError, match="server 's'"):
        builder().server("s", ticks, ticks)


def test_many_bursts_are_held_to_the_memory() -> None:
    b = builder()
    for number in range(100):
        s = b.server(f"s{number}", 1, 1)
        b.op(0, OpSpec(OpKind.TILE, "x", [Stage(0, (Flow(((s, 0),), 100_000),))]))
    program = b.build()

    with pytest.raises(RunTooLarge, match=r"the run needs about .* MiB"):
        run(program, core=Core.WINDOWS, budget=RunBudget(memory_bytes=40 << 20))


@pytest.mark.parametrize("core", Core)
def test_polls_can_be_stopped(core: Core) -> None:
    b = builder()
    s = b.server("s", 1, 10**13)
    poller = b.op(0, OpSpec(OpKind.TILE, "poller", [Stage(1, polls=True)]))
    mover = b.op(0, OpSpec(OpKind.TILE, "mover", [Stage(0, (Flow(((s, 0),), 1),))]))
    b.flags(poller, mover)
    requested: list[int] = []

    result = run(b.build(), core=core, should_stop=lambda: len(requested) > 3, progress=requested.append)

    assert result.outcome is RunOutcome.CANCELLED


def test_a_flag_set_before_the_poll_is_not_waited_for() -> None:
    b = builder()
    setter = b.op(0, OpSpec(OpKind.TILE, "setter", [Stage(10)]))
    poller = b.op(0, OpSpec(OpKind.TILE, "poller", [Stage(1000), Stage(1, polls=True)]))
    b.flags(poller, setter)
    program = b.build()

    (op,) = critical_path(program, run(program))

    assert (op.label, op.cause) == ("poller", Cause.START)


def test_only_described_ops_can_be_named() -> None:
    b = builder()
    ops = b.op(0, OpSpec(OpKind.TILE, "x", [Stage(1)]), count=21)
    b.after(ops[10:20], ops[:10])  # the builder puts a join between, as op 21
    b.after([20], [21])

    with pytest.raises(ValueError, match="names op 21, but only 21 ops are defined"):
        b.build()


@pytest.mark.parametrize("times", [(1.5, 1), (1, 0.5)])
def test_ticks_are_whole_numbers(times: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="whole number"):
        builder().server("s", *times)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "flow",
    [
        Flow(((0, 0),), 2.5),  # type: ignore[arg-type]
        Flow(((0, 0),), "7"),  # type: ignore[arg-type]
        Flow(((0, 0, 1),), 2),  # type: ignore[arg-type]
        Flow(((0, 0),), 2, traffic=7),  # type: ignore[arg-type]
    ],
)
def test_flows_are_made_of_whole_numbers(flow: Flow) -> None:
    b = builder()
    b.server("s", 1, 1)
    b.op(0, OpSpec(OpKind.TILE, "x", [Stage(0, (flow,))]))

    with pytest.raises(ValueError, match=r"whole numbers|two numbers|class of traffic"):
        b.build()


def test_a_core_is_a_core_and_a_budget_is_positive() -> None:
    program = builder().build()

    with pytest.raises(EngineUnavailable, match="'windows' is no core"):
        run(program, core="windows")  # type: ignore[arg-type]
    for seconds, num_bytes in ((0.0, 1), (float("nan"), 1), (1.0, 0)):
        with pytest.raises(ValueError, match="a budget is positive"):
            RunBudget(seconds, num_bytes)
