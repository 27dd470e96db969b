"""Where a library takes SIMPLE before it pays."""

from dataclasses import replace

import pytest

from magus.compiler import compile_text
from magus.compiler.ir import Gpu
from magus.simcore.kernels.early_switch import early_switch
from magus.simcore.kernels.nccl import NcclCollective, NcclProtocol, collective_time


def shipped(library: str, name: str) -> Gpu:
    text = f"""use "nvidia/{library}"
system s {{ gpus 8 x {name}; fabric switch(nvswitch, link=nvlink) }}
workload w on s {{ x = tensor bf16[4096, 8192] shard rows; y = all_gather(x) }}"""
    return compile_text(text).scenario().gpu


B200 = shipped("b200", "B200")


def test_b200_switches_too_early() -> None:
    """Measured: 45 us at 8 MiB and 102 us at 16 MiB."""
    found = early_switch(B200, NcclCollective.ALL_GATHER, 8)

    assert found is not None
    assert found.from_bytes == 16 << 20
    assert (found.taken.protocol, found.better.protocol) == (NcclProtocol.SIMPLE, NcclProtocol.LL128)
    assert found.taken.ticks == collective_time(B200, NcclCollective.ALL_GATHER, 16 << 20, 8).ticks
    assert found.better.ticks < found.taken.ticks


def test_from_where_it_pays_it_is_no_slower() -> None:
    found = early_switch(B200, NcclCollective.REDUCE_SCATTER, 4)
    assert found is not None and B200.collectives is not None

    late = replace(B200, collectives=replace(B200.collectives, simple_from_bytes=found.pays_from_bytes // 4))
    assert early_switch(late, NcclCollective.REDUCE_SCATTER, 4) is None


def test_an_all_to_all_switches_where_its_own_model_says() -> None:
    model = B200.collectives
    assert model is not None and model.all_to_all is not None
    late = replace(B200, collectives=replace(model, all_to_all=replace(model.all_to_all, simple_from_bytes=1 << 40)))
    soon = replace(B200, collectives=replace(model, all_to_all=replace(model.all_to_all, simple_from_bytes=1 << 10)))

    assert early_switch(late, NcclCollective.ALL_TO_ALL, 8) is None
    found = early_switch(soon, NcclCollective.ALL_TO_ALL, 8)
    assert found is not None and found.from_bytes == 8 << 10
    assert early_switch(soon, NcclCollective.ALL_GATHER, 8) == early_switch(B200, NcclCollective.ALL_GATHER, 8)


def test_a_gpu_without_collectives_is_refused() -> None:
    with pytest.raises(ValueError, match="no collectives"):
        early_switch(replace(B200, collectives=None), NcclCollective.ALL_GATHER, 8)
