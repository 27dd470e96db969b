"""Each hardware number changes what it says, and nothing else."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from fractions import Fraction
from typing import Any

import pytest

from magus.advisor.sensitivity.sensitivity import HardwareNumber, hardware_numbers, with_number
from magus.compiler import compile_text
from magus.compiler.ir import OpCase
from tests.helpers.some import some

USES = 'use "amd/mi300x"\nuse "nvidia/h100"\n'
WORKLOAD = (
    "workload up on s { x = tensor bf16[4608, 512] shard rows; w = tensor bf16[512, 768] shard cols; "
    "y = gemm(all_gather(x), w) }\n"
)
NIC = "link ib { bandwidth 50 GB/s; achieved 45 GB/s; latency 2 us }\n"
FULL = (  # with all numbers that a profile may leave out
    "gpu Full extends H100 { dma { issue_interval 1 us; packet 4 MiB; packet_cost 100 ns; prelaunch 1 us }; "
    'cache memory { size 256 MiB; bandwidth 5 TB/s; latency 100 ns @assumed "test" }; '
    "sync { poll_interval 1 us; graph_launch 1 us } }\n"
)


def scenario(gpus: str, fabric: str) -> OpCase:
    return compile_text(f"{USES}{NIC}{FULL}system s {{ gpus {gpus}; fabric {fabric} }}\n{WORKLOAD}").scenario().case


MESH = scenario("4 x MI300X", "full_mesh(xgmi)")
RAILS = scenario("8 x Full", "rails(nvswitch, link=nvlink, node=4, nic=ib)")
EDGES = scenario("3 x H100", "edges(xgmi=[[0, 1]], ib=[[1, 2]])")

LIBRARY = ("gpu.collectives", "gpu.collectives.all_to_all")
CHANGED = {
    "peak": {"gpu.peak_flops"},
    "hbm.bandwidth": {"gpu.hbm.peak_bytes_per_s", "gpu.hbm.achieved_bytes_per_s"},
    "hbm.latency": {"gpu.hbm.latency_ticks"},
    "l2.bandwidth": {"gpu.l2.bytes_per_s"},
    "mall.bandwidth": {"gpu.mall.bytes_per_s"},
    "noc.copy_bandwidth": {"gpu.noc.copy_bytes_per_s"},
    "gemm.tile": {"gpu.gemm.tile_ticks"},
    "gemm.k_step": {"gpu.gemm.k_step_ticks"},
    "launch.kernel": {"gpu.launch.kernel_ticks", "gpu.gemm.start_ticks"},
    "launch.event": {"gpu.launch.event_ticks"},
    "launch": {"gpu.launch.kernel_ticks", "gpu.gemm.start_ticks", "gpu.launch.event_ticks"},
    "sync.graph_launch": {"gpu.sync.graph_launch_ticks"},
    "sync.poll_interval": {"gpu.sync.poll_interval_ticks"},
    "dma.bandwidth": {"gpu.dma.bytes_per_s"},
    "dma.setup": {"gpu.dma.setup_ticks"},
    "dma.issue_interval": {"gpu.dma.issue_interval_ticks"},
    "dma.packet_cost": {"gpu.dma.packet_ticks"},
    "dma.prelaunch": {"gpu.dma.prelaunch_ticks"},
    "sm_copy.bandwidth": {"gpu.sm_copy.bytes_per_s"},
    "sm_copy.setup": {"gpu.sm_copy.setup_ticks"},
    "collectives.start": {
        *(f"{block}.start_ticks" for block in LIBRARY),
        *(f"{block}.{protocol}.start_ticks" for block in LIBRARY for protocol in ("ll128", "simple")),
        *(f"{block}.{protocol}.step_ticks" for block in LIBRARY for protocol in ("ll", "ll128", "simple")),
        "gpu.collectives.nvls.start_ticks",
    }
    - {"gpu.collectives.all_to_all.ll128.step_ticks"},  # its LL128 has one start for all messages
    "collectives.bandwidth": {
        *(f"{block}.own_bytes_per_s" for block in LIBRARY),
        *(f"{block}.{protocol}.bytes_per_s" for block in LIBRARY for protocol in ("ll", "ll128", "simple")),
        "gpu.collectives.nvls.bytes_per_s",
    },
    "nvlink.achieved": {"fabric.link.achieved_bytes_per_s"},
    "nvlink.latency": {"fabric.link.latency_ticks"},
    "ib.achieved": {"fabric.layout.nic.achieved_bytes_per_s"},
    "ib.latency": {"fabric.layout.nic.latency_ticks"},
    "nvswitch.bandwidth": {"fabric.switch.bytes_per_s"},
    "nvswitch.latency": {"fabric.switch.latency_ticks"},
}


def leaves(part: object, path: str = "") -> Iterator[tuple[str, object]]:
    """All values of a system by their paths; tables of types and lists are one value each."""
    if is_dataclass(part) and not isinstance(part, type | Enum):
        for field in fields(part):
            yield from leaves(getattr(part, field.name), f"{path}.{field.name}".lstrip("."))
    else:
        yield path, part


def changes(before: OpCase, after: OpCase) -> dict[str, tuple[object, object]]:
    """What differs between two scenarios, by path in the system."""
    assert before.shape == after.shape and before.explore == after.explore
    old, new = dict(leaves(before.system)), dict(leaves(after.system))
    assert old.keys() == new.keys()
    return {path: (old[path], new[path]) for path in old if old[path] != new[path]}


def number(of: OpCase, name: str) -> HardwareNumber:
    return next(each for each in hardware_numbers(of.system) if each.name == name)


def test_the_list_is_what_the_test_knows() -> None:
    assert [each.name for each in hardware_numbers(RAILS.system)] == list(CHANGED)


@pytest.mark.parametrize("name", CHANGED)
@pytest.mark.parametrize("factor", [0.9, 1.1, 2.0])
def test_a_number_changes_what_it_says_and_nothing_else(name: str, factor: float) -> None:
    found = changes(RAILS, with_number(RAILS, number(RAILS, name), factor))

    assert found.keys() == CHANGED[name]
    for before, after in some(found.values()):
        old, new = rates_of(before), rates_of(after)
        assert new == pytest.approx([factor * each for each in old], rel=1e-6, abs=1)


def rates_of(figure: Any) -> list[float]:
    """Return the figure, or the rates of all types."""
    return [float(rate) for _, rate in figure] if isinstance(figure, tuple) else [float(figure)]


@pytest.mark.parametrize("of", [MESH, RAILS, EDGES], ids=["mesh", "rails", "edges"])
def test_paths_are_those_of_the_profiles(of: OpCase) -> None:
    gpu, fabric = of.gpu, of.system.fabric
    notes = (
        gpu.provenance,
        *(link.provenance for link in fabric.links),
        fabric.switch.provenance if fabric.switch else (),
    )
    known = {one.path for each in notes for one in each}
    peaks = {f"{gpu.name}.peak"}

    for each in some(hardware_numbers(of.system)):
        assert each.paths and set(each.paths) <= known | peaks, each.name


def test_what_a_profile_lacks_is_no_number() -> None:
    names = {each.name for each in hardware_numbers(MESH.system)}

    assert {"mall.bandwidth", "xgmi.achieved", "dma.setup"} <= names
    assert not {name for name in names if name.startswith(("noc", "sync", "nvswitch"))}


def test_costs_of_commands_are_doubled_too() -> None:
    doubled = {each.name for each in hardware_numbers(RAILS.system) if 2.0 in each.factors}

    assert doubled == {
        *("launch", "sync.graph_launch", "dma.setup", "dma.issue_interval", "dma.prelaunch", "sm_copy.setup")
    }
    assert number(RAILS, "launch").factors == (2.0,)
    assert number(RAILS, "peak").factors == (0.9, 1.1)


def test_a_link_of_many_edges_changes_everywhere() -> None:
    slower = with_number(EDGES, number(EDGES, "ib.achieved"), 0.9)
    rates = {frozenset(edge.ends): Fraction(edge.bytes_per_s, 10**9) for edge in slower.network.edges}

    assert rates == {frozenset({0, 1}): Fraction("46.5"), frozenset({1, 2}): Fraction("40.5")}
    assert slower.network.latency_ticks(0, 2) == EDGES.network.latency_ticks(0, 2)
