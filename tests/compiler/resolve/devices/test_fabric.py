"""Fabrics as they are written."""

from fractions import Fraction

import pytest

from magus.compiler import CompileError, compile_text
from magus.compiler.codes import Code
from magus.compiler.ir import (
    Distribution,
    Late,
    Shape,
    Straggler,
    System,
    Variability,
)
from magus.compiler.ir.topologies.edges import EdgeGraph
from magus.compiler.ir.topologies.levels import FatTree, Rails
from magus.compiler.ir.topologies.torus import Torus

WORKLOAD = "workload g on s { a = tensor bf16[8, 8]; y = gemm(a, a) }"


def system(gpus: int, said: str, library: str = "amd/mi300x", gpu: str = "MI300X") -> System:
    text = f'use "{library}"\nparam D = 20 us in 0 us..50 us\nlet side = 4\n'
    return compile_text(f"{text}system s {{ gpus {gpus} x {gpu}; {said} }}\n{WORKLOAD}").scenario("g").case.system


def codes(gpus: int, said: str) -> list[Code]:
    with pytest.raises(CompileError) as caught:
        system(gpus, said)
    return [found.code for found in caught.value.diagnostics]


@pytest.mark.parametrize(
    ("said", "messages"),
    [
        ("fabric switch(nope, link=nada)", ["unknown switch 'nope'", "unknown link 'nada'"]),
        ("fabric switch(nope)", ["switch does not say its link", "unknown switch 'nope'"]),
        ("fabric torus(nope, shape=[0, 4])", ["unknown link 'nope'", "a side of the torus is from 1 to 65,536, got 0"]),
        ("fabric ring(nope, sides=2)", ["unknown link 'nope'", "ring has no argument 'sides'"]),
        ("fabric edges(nope=[[0, 1]], nada=[[1, 0]])", ["unknown link 'nope'", "unknown link 'nada'"]),
        ("fabric edges(switches=1)", ["edges does not say its links"]),
    ],
)
def test_all_that_is_wrong_in_a_fabric_is_told_at_once(said: str, messages: list[str]) -> None:
    with pytest.raises(CompileError) as caught:
        system(4, said)

    assert [found.message for found in caught.value.diagnostics] == messages


def test_a_torus_has_sides_that_are_expressions() -> None:
    fabric = system(16, "fabric torus(xgmi, shape=[side, 16 / side])").fabric

    assert (fabric.topology.name, fabric.layout) == ("torus", Torus((4, 4)))


def test_trees_and_rails_of_shipped_devices() -> None:
    tree = "fabric fat_tree(nvswitch, link=nvlink, leaf=2, spines=4)"
    found = system(8, tree, "nvidia/h100", "H100").fabric
    assert found.layout == FatTree(2, 4) and found.switch is not None

    nodes = system(8, "fabric rails(nvswitch, link=nvlink, node=4, nic=nvlink)", "nvidia/h100", "H100").fabric
    assert isinstance(nodes.layout, Rails) and (nodes.layout.node, nodes.layout.nic.name) == (4, "nvlink")


def test_edges_name_their_links_and_their_switches() -> None:
    layout = system(3, "fabric edges(switches=1, xgmi=[[0, 3], [1, 3], [3, 2]])").fabric.layout

    assert isinstance(layout, EdgeGraph) and layout.switches == 1
    assert [wire.ends for wire in layout.wires] == [(0, 3), (1, 3), (3, 2)]
    assert {wire.link.name for wire in layout.wires} == {"xgmi"}


def test_links_of_one_way_have_an_arrow() -> None:
    layout = system(3, "fabric edges(xgmi=[[0, 1], 1 -> 2, 2 -> 1, 2 -> 0])").fabric.layout

    assert isinstance(layout, EdgeGraph)
    assert [(wire.ends, wire.one_way) for wire in layout.wires] == [
        ((0, 1), False),
        ((1, 2), True),
        ((2, 1), True),
        ((2, 0), True),
    ]


def test_a_fabric_knows_every_kind_of_its_links() -> None:
    slow = "link slow extends xgmi { bandwidth base.bandwidth / 2; achieved base.achieved / 2 }"
    text = (
        f'use "amd/mi300x"\n{slow}\nsystem s {{ gpus 3 x MI300X; fabric edges(xgmi=[[0, 1]], slow=[[1, 2], [0, 2]]) }}'
    )
    fabric = compile_text(f"{text}\n{WORKLOAD}").scenario("g").case.system.fabric

    assert [link.name for link in fabric.links] == ["xgmi", "slow"]
    assert [link.name for link in system(4, "fabric ring(xgmi)").fabric.links] == ["xgmi"]


@pytest.mark.parametrize(
    ("gpus", "said", "code"),
    [
        (8, "fabric torus(xgmi)", Code.MGS209),
        (8, "fabric torus(xgmi, shape=8)", Code.MGS116),
        (8, "fabric torus(xgmi, shape=[8], leaf=2)", Code.MGS201),
        (8, "fabric torus(xgmi, shape=[2.5, 4])", Code.MGS309),
        (8, "fabric torus(xgmi, shape=[0, 8])", Code.MGS307),
        (2, "fabric edges([[0, 1]])", Code.MGS201),
        (2, "fabric edges(nolink=[[0, 1]])", Code.MGS203),
        (2, "fabric edges(xgmi=[])", Code.MGS305),
        (2, "fabric edges(xgmi=[[0, 1, 2]])", Code.MGS116),
        (2, "fabric edges(xgmi=[0, 1])", Code.MGS116),
        (2, "fabric edges(xgmi=[0 -> 1])", Code.MGS421),
        (2, "fabric edges(xgmi=[1 -> 0, [0, 1]])", Code.MGS206),
        (2, "fabric edges(xgmi=[0 -> 0])", Code.MGS307),
        (2, "fabric edges(xgmi=[[0 -> 1, 1]])", Code.MGS116),
        (4, "fabric torus(xgmi, shape=[2 -> 2])", Code.MGS116),
        (2, "fabric full_mesh(xgmi); replay 3", Code.MGS116),
        (2, "fabric full_mesh(xgmi); variability", Code.MGS116),
        (2, "fabric full_mesh(xgmi); variability { }; variability { }", Code.MGS206),
        (2, "fabric full_mesh(xgmi); variability { jitter normal(1 %); jitter normal(1 %) }", Code.MGS206),
        (2, "fabric full_mesh(xgmi); variability { skew 5 us }", Code.MGS116),
        (2, "fabric full_mesh(xgmi); variability { skew uniform(5 us) }", Code.MGS116),
        (2, "fabric full_mesh(xgmi); variability { skew normal(5) }", Code.MGS301),
        (2, "fabric full_mesh(xgmi); variability { jitter normal(60 %) }", Code.MGS307),
        (2, "fabric full_mesh(xgmi); variability { straggler 5 % x0.5 }", Code.MGS116),
        (2, "fabric full_mesh(xgmi); variability { straggler 150 % x2 }", Code.MGS307),
        (2, "fabric full_mesh(xgmi); variability { late by 20 us }", Code.MGS116),
        (2, "fabric full_mesh(xgmi); variability { slow rank 1 }", Code.MGS201),
    ],
)
def test_what_is_wrong_has_a_code(gpus: int, said: str, code: Code) -> None:
    assert codes(gpus, said) == [code]


@pytest.mark.parametrize(
    ("wires", "far", "near"),
    [
        ("[0, 1], [2, 3]", 2, 0),
        ("[0, 1], 1 -> 2, [2, 3]", 0, 2),
        ("[0, 4], [1, 4], 4 -> 2, [2, 3]", 0, 2),
    ],
)
def test_gpus_that_are_not_joined_both_ways_are_told_with_their_place(wires: str, far: int, near: int) -> None:
    said = f"edges(switches={int('4' in wires)}, xgmi=[{wires}])"
    with pytest.raises(CompileError) as caught:
        system(4, f"fabric {said}")

    (found,) = caught.value.diagnostics
    assert (found.code, found.message) == (Code.MGS421, f"gpu {far} cannot be reached from gpu {near}")
    assert found.span is not None and found.span.text == said
    assert found.hint == f"add a link that leads on to {far}"


@pytest.mark.parametrize("rate", ["bandwidth", "achieved"])
def test_a_link_has_a_bandwidth(rate: str) -> None:
    text = f'use "amd/mi300x"\nlink dead extends xgmi {{ {rate} 0 GB/s }}\n'
    with pytest.raises(CompileError) as caught:
        compile_text(f"{text}system s {{ gpus 2 x MI300X; fabric edges(dead=[[0, 1]]) }}\n{WORKLOAD}")

    (found,) = caught.value.diagnostics
    assert found.code is Code.MGS307 and found.message.startswith(f"{rate} is from 1,000,000 to 1e+15 B/s, got 0 GB/s")
    assert found.span is not None and found.span.text == "0 GB/s"


def test_a_wrong_fabric_is_reported_beside_wrong_gpus() -> None:
    with pytest.raises(CompileError) as caught:
        system(0, "fabric edges(xgmi=[[0, 0]])")

    assert [found.code for found in caught.value.diagnostics] == [Code.MGS307, Code.MGS307]


def test_variability_is_read_in_ticks_and_shares() -> None:
    said = "skew uniform(0 us, 5 us); jitter normal(2 %); straggler 5 % x1.3; late rank 1 by D / 2; late rank 0 by 1 us"
    found = system(2, f"fabric full_mesh(xgmi); variability {{ {said} }}").variability

    assert found == Variability(
        skew=Distribution(Shape.UNIFORM, (Fraction(0), Fraction(5 * 10**8))),
        jitter=Distribution(Shape.NORMAL, (Fraction(1, 50),)),
        straggler=Straggler(Fraction(1, 20), Fraction(13, 10)),
        late=(Late(1, 10**9), Late(0, 10**8)),
    )
    assert found is not None and found.random


def test_a_factor_is_no_name() -> None:
    with pytest.raises(CompileError):
        compile_text("let x1.3 = 5")
    assert system(2, "fabric full_mesh(xgmi); variability { straggler 50 % x2 }").variability == Variability(
        straggler=Straggler(Fraction(1, 2), Fraction(2))
    )
