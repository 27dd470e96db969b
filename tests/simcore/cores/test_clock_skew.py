"""Clocks with offsets make windows longer and change nothing else, tick for tick."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import count, islice

import numpy as np
import pytest

from magus.simcore.cores import keys, windows
from magus.simcore.cores import op_scheduler as clock_skew
from magus.simcore.cores.engine import Core, run
from magus.simcore.cores.op_scheduler import Clocks, set_clocks
from magus.simcore.cores.windows import window_ticks
from magus.simcore.program.arrays import NONE
from magus.simcore.program.builder import ProgramBuilder
from magus.simcore.program.limits import RunTooLarge
from magus.simcore.program.program import Flow, OpKind, OpSpec, Program, Stage
from tests.helpers.marks import first, thinned
from tests.helpers.oracle.agreement import differences
from tests.helpers.oracle.oracle import Oracle
from tests.helpers.oracle.strategies import ALL, PLAIN, Feature, random_program
from tests.helpers.some import some

FEATURES = (PLAIN, *Feature, ALL)


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for offsets in small programs too, and for the longest windows there are."""
    monkeypatch.setattr(clock_skew, "MIN_LINE_HOPS", 0)
    monkeypatch.setattr(clock_skew, "MIN_WINDOWS", 0)
    monkeypatch.setattr(clock_skew, "MIN_GAIN", 1)
    monkeypatch.setattr(clock_skew, "_STEPS", 1 << 20)


@cache
def retimed(num: int, features: Feature = ALL) -> tuple[Program, ...]:
    """The first random programs that offsets are found for, once looked for ``always``."""
    drawn = (random_program(seed, num_ranks=1 + seed % 3, features=features) for seed in count())
    return tuple(islice((program for program in drawn if set_clocks(program).gained_ticks), num))


def ways(program: Program, clocks: Clocks) -> Iterator[tuple[str, int]]:
    """Ticks from each unit's arrival to its effects, as the clocks show them."""
    shown = clocks.offsets.tolist()
    service, latency = program.service_ticks.tolist(), program.latency_ticks.tolist()
    for hop, server in enumerate(program.hop_server.tolist()):
        following, buffer = program.hop_next[hop], program.hop_buffer[hop]
        target = NONE if following == NONE else int(program.hop_server[following])
        yield "unit", service[server] + latency[server] + shown[server] - (0 if target == NONE else shown[target])
        if buffer != NONE:
            credit = int(program.buffer_credit_ticks[buffer])
            yield "room", service[target] + credit + shown[target] - shown[server]


@pytest.mark.usefixtures("always")
def test_long_latency_makes_up_for_a_short_one() -> None:
    program = through(("far", 9), ("near", 1), ("far too", 15))

    clocks = set_clocks(program)

    assert window_ticks(program) == 2
    assert clocks.gained_ticks == 7  # the mean of 10, 2 and 16 ticks is 9 and a bit
    assert min(ticks for _, ticks in ways(program, clocks)) == 9
    assert differences(program, run(program, core=Core.WINDOWS), Oracle(program).run()) == []


@pytest.mark.quick(1)
@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("features", thinned(FEATURES, 3), ids=str)
def test_nothing_has_an_effect_within_a_window(features: Feature) -> None:
    for program in some(retimed(25, features)):
        clocks = set_clocks(program)

        window = window_ticks(program) + clocks.gained_ticks
        assert all(ticks >= window for _, ticks in some(ways(program, clocks)))
        assert (clocks.offsets[program.hop_server[program.flow_first_hop]] <= 0).all()


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("features", thinned(FEATURES, 3), ids=str)
def test_retimed_programs_equal_the_oracle(features: Feature) -> None:
    programs = retimed(25, features)

    for number, program in some(enumerate(programs)):
        result = run(program, core=Core.WINDOWS, observe=number % 2 == 0)
        assert differences(program, result, Oracle(program).run()) == []


@pytest.mark.slow
@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("key_bits", first([20, 24, 28], 1))
def test_offsets_fit_narrow_keys(monkeypatch: pytest.MonkeyPatch, key_bits: int) -> None:
    programs = retimed(40)
    monkeypatch.setattr(keys, "KEY_BITS", key_bits)
    compared = 0
    for program in programs:
        with suppress(RunTooLarge):
            result = run(program, core=Core.WINDOWS)
            assert differences(program, result, Oracle(program).run()) == []
            compared += 1

    assert compared > 10


@pytest.mark.slow
@pytest.mark.usefixtures("always")
def test_windows_are_fewer_and_no_longer_than_they_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    programs = retimed(100)
    expected = [Oracle(program).run() for program in programs]
    found = [run(program, core=Core.WINDOWS) for program in programs]
    monkeypatch.setattr(windows, "set_clocks", half_as_long_again)
    wrong = [run(program, core=Core.WINDOWS) for program in programs]
    monkeypatch.setattr(windows, "set_clocks", lambda program: Clocks(np.zeros(program.num_servers, np.int64), 0))
    plain = [run(program, core=Core.WINDOWS) for program in programs]

    assert sum(run.windows for run in found) < 0.95 * sum(run.windows for run in plain)
    triples = zip(programs, wrong, expected, strict=True)
    assert sum(bool(differences(*triple)) for triple in triples) >= 3


def test_small_programs_and_those_without_a_way_to_gain_keep_their_clocks() -> None:
    small, local = through(("far", 9), ("near", 1)), through(("one", 5), units=30_000)

    assert set_clocks(small).gained_ticks == set_clocks(local).gained_ticks == 0


def test_a_long_run_of_thin_windows_is_retimed() -> None:
    program = through(("far", 900), ("near", 1), units=30_000)

    assert set_clocks(program).gained_ticks > 0


def half_as_long_again(program: Program) -> Clocks:
    """The clocks, and windows in which a unit can meet what it has brought about."""
    clocks, ticks = set_clocks(program), window_ticks(program)
    return replace(clocks, gained_ticks=-(-3 * (ticks + clocks.gained_ticks) // 2) - ticks)


def through(*servers: tuple[str, int], units: int = 20) -> Program:
    """One flow through servers of a service of one tick each, by name and latency."""
    builder = ProgramBuilder(1, unit_bytes=128)
    route = tuple((builder.server(name, 1, latency), 0) for name, latency in servers)
    builder.op(0, OpSpec(OpKind.TRANSFER, "op", [Stage(0, (Flow(route, units, 1),))]))
    return builder.build()
