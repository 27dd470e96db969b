"""Choice of the core, outcomes of a run and its accounting."""

import itertools
import sys
import time

import numpy as np
import pytest

from magus.simcore.cores import engine, keys
from magus.simcore.cores.engine import Core, EngineUnavailable, run, suitable_core
from magus.simcore.program.builder import ProgramBuilder
from magus.simcore.program.limits import RunBudget, RunTooLarge
from magus.simcore.program.program import NEVER, Flow, OpKind, OpSpec, Program, RunOutcome, Stage, TrafficClass


def transfers(num_units: int, *, latency: int = 100_000, count: int = 8) -> Program:
    """Transfers one after the other over two servers, and a compute flow beside each."""
    b = ProgramBuilder(1, unit_bytes=128)
    hbm, link = b.server("hbm", 3, latency), b.server("link", 10, latency)
    move = Flow(((hbm, 0), (link, 0)), num_units, 10, traffic=TrafficClass.COMM)
    load = Flow(((hbm, 0),), num_units // 2, 5)
    ops = b.op(0, OpSpec(OpKind.TRANSFER, "t", [Stage(0, (move, load))]), count=count)
    for one, following in itertools.pairwise(ops):
        b.after([following], [one])
    return b.build()


def test_large_runs_go_to_the_compiled_core_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = transfers(10), transfers(1_000)

    assert (run(small).core, run(large).core) == ("windows", "compiled")
    assert suitable_core(large) is Core.COMPILED
    monkeypatch.setattr(engine, "has_numba", lambda: False)
    assert suitable_core(large) is Core.WINDOWS


@pytest.mark.parametrize("core", Core)
def test_two_flows_share_a_server(core: Core) -> None:
    b = ProgramBuilder(1, unit_bytes=128)
    near, far = b.server("near", 2, 5), b.server("far", 3, 1)
    b.op(0, OpSpec(OpKind.TRANSFER, "a", [Stage(0, (Flow(((near, 0), (far, 0)), 2, 4),))]))
    b.op(0, OpSpec(OpKind.TRANSFER, "b", [Stage(0, (Flow(((near, 0),), 2, 0, 1),))]))

    result = run(b.build(), core=core)

    # near: a at 0 leaves at 2; both of b arrive at 1, leave at 4 and 6; a at 4 leaves at 8. far: a at 7 and 13.
    assert result.server_free.tolist() == [8, 16]
    assert result.flow_last.tolist() == result.op_done.tolist() == [17, 11]
    assert result.line_hops == 6


@pytest.mark.parametrize("core", Core)
def test_long_times_do_not_limit_the_clock(core: Core) -> None:
    b = ProgramBuilder(1, unit_bytes=128)
    s = b.server("s", 1 << 40, 1 << 50)
    b.op(0, OpSpec(OpKind.TRANSFER, "a", [Stage(1 << 59, (Flow(((s, 0),), 100),))]), count=2)

    result = run(b.build(), core=core)

    assert result.server_free.tolist() == [200 << 40]
    assert result.op_done.tolist() == [1 << 59] * 2


@pytest.mark.parametrize("core", Core)
def test_the_environment_names_a_core(monkeypatch: pytest.MonkeyPatch, core: Core) -> None:
    monkeypatch.setenv("MAGUS_ENGINE", core.value)

    assert run(transfers(100)).core == core.value
    assert run(transfers(100), core=Core.WINDOWS).core == "windows"  # the argument counts first


def test_an_unknown_core_is_reported_with_the_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAGUS_ENGINE", "turbo")

    with pytest.raises(EngineUnavailable, match=r"'turbo'.*windows, compiled"):
        run(transfers(10))


def test_without_numba_the_compiled_core_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("compiled", "compiled_loop"):
        monkeypatch.delitem(sys.modules, f"magus.simcore.cores.{name}", raising=False)
        monkeypatch.delattr(f"magus.simcore.cores.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "numba", None)  # importing it fails

    with pytest.raises(EngineUnavailable, match="pip install numba"):
        run(transfers(10), core=Core.COMPILED)
    assert run(transfers(60_000)).core == "windows"


def test_busy_time_is_reported_apart_by_traffic() -> None:
    program = transfers(1000)

    for core in Core:
        result = run(program, core=core)

        assert result.server_busy_ticks.tolist() == [[8 * 500 * 3, 8 * 1000 * 3, 0], [0, 8 * 1000 * 10, 0]]
        assert result.line_hops == program.num_line_hops == 8 * 2500
        assert result.outcome is RunOutcome.DONE and result.stuck == ()


@pytest.mark.parametrize("core", Core)
def test_stops_when_requested(core: Core) -> None:
    reported: list[int] = []

    result = run(transfers(20_000), core=core, should_stop=lambda: len(reported) == 3, progress=reported.append)

    assert result.outcome is RunOutcome.CANCELLED
    assert reported == sorted(reported) and reported[0] == 0 and len(reported) == 3
    assert 0 < result.line_hops < transfers(20_000).num_line_hops
    whole = run(transfers(20_000), core=core)
    known = result.op_done != NEVER
    np.testing.assert_array_equal(result.op_done[known], whole.op_done[known])


def test_refuses_what_is_over_the_budget_before_it_begins() -> None:
    program = transfers(1000)
    reported: list[int] = []

    with pytest.raises(RunTooLarge, match=r"2.0e\+04 line-hops .* packets"):
        run(program, budget=RunBudget(seconds=1e-6), progress=reported.append)
    with pytest.raises(RunTooLarge, match=r"the run needs about .* packets"):
        run(program, budget=RunBudget(memory_bytes=1000), progress=reported.append)
    assert reported == []


@pytest.mark.parametrize("core", Core)
def test_stops_at_the_limit_of_time(core: Core) -> None:
    result = run(transfers(20_000), core=core, budget=RunBudget(seconds=0.3, strict_seconds=True), progress=slow)

    assert result.outcome is RunOutcome.TIME
    assert 0 < result.line_hops < transfers(20_000).num_line_hops


def slow(_: int) -> None:
    time.sleep(0.11)


@pytest.mark.parametrize("key_bits", [4, 12])  # no bit for the time, and too few
def test_keys_too_narrow_are_left_to_the_compiled_core_or_refused(
    key_bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = transfers(60)
    expected = run(program)
    monkeypatch.setattr(keys, "KEY_BITS", key_bits)

    result = run(program)

    assert (expected.core, result.core) == ("windows", "compiled")
    np.testing.assert_array_equal(result.op_done, expected.op_done)
    message = rf"keys of {key_bits} bits, which do not hold 2 servers, 2.4e\+01 flow-hops .*: simulate in packets"
    with pytest.raises(RunTooLarge, match=message):
        run(program, core=Core.WINDOWS)
    monkeypatch.setattr(engine, "has_numba", lambda: False)
    with pytest.raises(RunTooLarge, match=message):
        run(program)


def test_a_run_is_the_same_every_time() -> None:
    first, second = run(transfers(5000)), run(transfers(5000))

    np.testing.assert_array_equal(first.op_done, second.op_done)
    assert first.windows == second.windows
