"""A library collective as a program takes its closed form when it is alone, and longer when it is not."""

from dataclasses import replace

import pytest

from magus.advisor.measured.tables.gemm import lone_scenario
from magus.compiler.ir import Fabric, Link, Switch, System, topologies
from magus.simcore.cores.engine import run
from magus.simcore.kernels.nccl import NcclCollective, NcclProtocol, collective_time
from magus.simcore.lower.collective import collective_program
from tests.helpers.oracle.agreement import differences
from tests.helpers.oracle.oracle import Oracle
from tests.helpers.scenarios.scenarios import TICKS_PER_NS, G, full_mesh, mi300x

CHANNELS = 16
RATES = {"H100": (450, 375), "A100": (300, 230), "B200": (900, 726)}
SIZES = (512, 64 << 10, 1 << 20, 8 << 20, 64 << 20)


def system(gpu: str, ranks: int) -> System:
    """GPUs with a shipped profile behind a switch with the figures of the same libraries."""
    scenario = lone_scenario(gpu)
    assert scenario is not None
    peak, achieved = RATES[gpu]
    latency = 250 * TICKS_PER_NS
    fabric = Fabric(
        topologies.switch.TOPOLOGY,
        Link("nvlink", peak * G, achieved * G, latency),
        Switch("nvswitch", 8, peak * G, latency),
    )
    return System("node", ranks, scenario.gpu, fabric)


@pytest.mark.parametrize("gpu", RATES)
@pytest.mark.parametrize("operation", NcclCollective)
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_alone_it_takes_its_closed_form(gpu: str, operation: NcclCollective, ranks: int) -> None:
    node = system(gpu, ranks)
    for size in SIZES:
        expected = collective_time(node.gpu, operation, size, ranks)
        unit = 128 if size < 1 << 20 else 1024 if size < 64 << 20 else 8192
        program = collective_program(node, operation, size, channels=CHANNELS, unit_bytes=unit)

        assert run(program).makespan_ticks == pytest.approx(expected.ticks, rel=0.02), (size, expected)


def test_it_holds_an_sm_for_each_channel_and_puts_its_bytes_on_the_links() -> None:
    node, size = system("H100", 8), 64 << 20
    time = collective_time(node.gpu, NcclCollective.ALL_GATHER, size, 8)
    program = collective_program(node, NcclCollective.ALL_GATHER, size, channels=CHANNELS, unit_bytes=8192)
    up = program.server_names.index("up")
    passed = int(program.flow_units[program.hop_flow[program.hop_server == up]].sum()) * 8192

    assert time.protocol is NcclProtocol.SIMPLE and passed == pytest.approx(size * 7 / 8, rel=0.001)
    assert program.num_ops == CHANNELS and set(program.op_pool.tolist()) == {program.pool_names.index("sms")}


def test_what_cannot_be_simulated_so_is_refused() -> None:
    node = system("H100", 8)
    with pytest.raises(ValueError, match="1 to 132 SMs"):
        collective_program(node, NcclCollective.ALL_GATHER, 1024, channels=133, unit_bytes=1024)
    with pytest.raises(ValueError, match="no collectives"):
        collective_program(
            System("amd", 8, mi300x(), full_mesh()), NcclCollective.ALL_GATHER, 1024, channels=8, unit_bytes=1024
        )
    torus = replace(node.fabric, topology=topologies.torus.TOPOLOGY)
    with pytest.raises(ValueError, match="not the same"):
        collective_program(replace(node, fabric=torus), NcclCollective.ALL_GATHER, 1024, channels=8, unit_bytes=1024)


@pytest.mark.parametrize("operation", [NcclCollective.ALL_REDUCE, NcclCollective.ALL_TO_ALL])
def test_it_equals_the_oracle(operation: NcclCollective) -> None:
    program = collective_program(system("A100", 4), operation, 256 << 10, channels=4, unit_bytes=1024)

    assert differences(program, run(program), Oracle(program).run()) == []
