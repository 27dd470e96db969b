"""Plans of graphs: what is issued when, and who waits for what."""

import pytest

from magus.compiler.ir import COLLECTIVES_STREAM, Awaited, PartWait, Plan, Scenario, Schedule, StepWait
from magus.compiler.planning.parts import PlanError
from magus.compiler.planning.plan import build_plan, choice_of_layers, layers_of
from tests.helpers.scenarios.mlp_backward import plain_backward


def of(block: str = "") -> tuple[Scenario, Schedule]:
    scenario = plain_backward(4096, "repeat 8 dx as dy", f"schedule s for back {{ {block} }}")
    return scenario, scenario.schedules[0]


def plan(block: str = "", layers: int = 1) -> Plan:
    scenario, choice = of(block)
    return build_plan(scenario.system, layers_of(scenario.workload, layers), choice_of_layers(choice, layers))


def issued(block: str = "") -> list[str]:
    return [part.name for part in plan(block).parts]


def test_the_file_says_the_order_unless_the_schedule_does() -> None:
    assert issued() == ["dh", "d_wdn", "dx", "xg", "d_wup"]
    assert issued("order dh, dx, d_wup, d_wdn") == ["dh", "dx", "xg", "d_wup", "d_wdn"]


def test_what_is_apart_is_two_parts_in_the_order_of_its_data() -> None:
    parts = {part.name: part for part in plan("separate dh, dx, xg by dma(2)").parts}

    assert list(parts)[:2] == ["dh.all_gather", "dh"]
    assert list(parts)[3:5] == ["dx", "dx.reduce_scatter"]
    streams = {name: part.stream for name, part in parts.items()}
    assert {name for name, stream in streams.items() if stream == COLLECTIVES_STREAM} == {
        "dh.all_gather",
        "dx.reduce_scatter",
        "xg",
    }
    assert parts["dx.reduce_scatter"].waits == (PartWait("dx"),)
    assert parts["dh"].waits == (PartWait("dh.all_gather"),)
    assert parts["d_wdn"].waits == (PartWait("dh.all_gather"),)
    assert str(parts["xg"].schedule.engine) == "dma(2)"


def test_beside_a_kernel() -> None:
    """A collective begins with the kernel, in front of the collective of the same op."""
    parts = {part.name: part for part in plan("separate dx; start xg with dx").parts}

    assert list(parts) == ["dh", "d_wdn", "dx", "xg", "dx.reduce_scatter", "d_wup"]
    assert parts["xg"].waits == (PartWait("dx", Awaited.BEGUN),)


def test_seams() -> None:
    fused = "dh = hetero_fused_1d(chunks=8); dx = hetero_fused_1d(chunks=8)"
    by_rows = {part.name: part for part in plan(fused).parts}["dx"]
    whole = {part.name: part for part in plan(f"{fused}; handoff whole").parts}["dx"]

    assert by_rows.waits == ()
    assert set(by_rows.step_waits) >= {StepWait("own", "dh", "own"), StepWait("g0", "dh", "g0")}
    assert StepWait("own", "dh", "g0") not in by_rows.step_waits
    assert (whole.waits, whole.step_waits) == ((PartWait("dh"),), ())


def test_what_is_gathered_is_there_when_it_has_arrived() -> None:
    parts = {part.name: part for part in plan().parts}

    assert parts["d_wdn"].waits == (PartWait("dh", Awaited.ARRIVED),)
    assert parts["d_wup"].waits == (PartWait("xg"), PartWait("dh"))


def test_priorities_and_streams() -> None:
    found = plan("stream 1 d_wdn; priority sums, d_wdn low")
    parts = {part.name: part for part in found.parts}

    assert found.sums_priority < parts["dh"].priority < parts["d_wdn"].priority
    assert (parts["d_wdn"].stream, parts["dh"].stream) == (1, 0)


def test_layers_take_the_result_of_the_one_before() -> None:
    parts = {part.name: part for part in plan("handoff whole", layers=3).parts}

    assert len(parts) == 15
    assert not parts["dh"].waits and not parts["dh"].step_waits
    assert parts["dh@2"].waits == (PartWait("dx"),)
    assert parts["d_wdn@3"].waits == (PartWait("dh@3", Awaited.ARRIVED), PartWait("dx@2"))
    assert [parts[name].layer for name in ("dh", "xg@2", "dx@3")] == [1, 2, 3]


def test_an_order_that_cannot_be_kept_is_refused() -> None:
    scenario, _ = of()
    with pytest.raises(PlanError, match="d_wup is in the order before dh, which it needs") as error:
        build_plan(scenario.system, scenario.workload, Schedule("s", order=("d_wup", "dh")))
    assert error.value.at == "order"


def test_ops_that_stand_beside_each_other_are_refused() -> None:
    scenario, _ = of()
    with pytest.raises(PlanError, match="ops wait for each other: xg needs d_wup needs xg"):
        build_plan(scenario.system, scenario.workload, Schedule("s", order=("xg",), starts_with=(("xg", "d_wup"),)))
