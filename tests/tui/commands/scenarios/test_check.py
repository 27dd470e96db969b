"""``magus check``: what no command can carry out, though it compiles."""

from pathlib import Path

import pytest

from magus.tui.text.door import Exit
from tests.helpers.commands import magus

REPLICAS = """use "nvidia/h200"
system node {{ gpus 8 x H200; fabric switch(nvswitch, link=nvlink); mesh dp 8; mesh ep 8, edp 1 over dp }}
workload moe on node.ep {{
  x = tensor bf16[8 * 1024, 7168] shard rows
  wup = tensor bf16[(256 + {replicas}) * 7168, 4096] shard rows
  wdn = tensor bf16[(256 + {replicas}) * 2048, 7168] shard rows
  t = dispatch(x, experts=256, top=8, replicas={replicas})
  u = grouped_gemm(t, wup)
  y = combine(grouped_gemm(swiglu(u), wdn))
  repeat {layers} y as x
}}
{more}
"""


@pytest.mark.parametrize(("replicas", "code"), [(512, Exit.DONE), (1536, Exit.INPUT)])
def test_replicas_beyond_memory_are_refused_at_their_workload(replicas: int, code: Exit, tmp_path: Path) -> None:
    file = tmp_path / "a.mgs"
    file.write_text(REPLICAS.format(replicas=replicas, layers=8, more=""))
    done = magus("check", file)
    assert done.exit_code == code
    refused = f"{file}:3:1: MGS402 error: workload moe: the tensors of 8 layers take" in done.output
    assert refused == ("fewer replicas of experts" in done.output) == (code is Exit.INPUT)


def test_weights_beyond_memory_without_replicas_are_left_to_the_commands(tmp_path: Path) -> None:
    """A layer that is repeated for all stages of a step is no more than it says."""
    file = tmp_path / "a.mgs"
    text = REPLICAS.format(replicas=0, layers=200, more="workload train on node { step moe; sequences 8 x 1024 }")
    file.write_text(text.replace(", replicas=0", ""))
    assert magus("check", file).exit_code == Exit.DONE
