"""Groups that are not alike: what is refused says which sizes near it are not."""

import pytest

from magus.compiler import compile_text
from magus.compiler.text.diagnostics import CompileError

TEXT = """use "nvidia/h100"
link ib {{ source nominal "400 Gb/s"; bandwidth 50 GB/s; achieved 45 GB/s @assumed; latency 2 us @assumed }}
system pod {{ gpus 24 x H100; fabric rails(nvswitch, link=nvlink, node=8, nic=ib); mesh tp {tp}, dp 24 / {tp} }}
workload up on pod.tp {{ x = tensor bf16[24, 64]; w = tensor bf16[64, 64]; y = gemm(x, w) }}
"""


@pytest.mark.parametrize(("tp", "nearest"), [(3, (2, 4)), (6, (4, 8)), (12, (8,))])
def test_the_nearest_sizes_are_named_and_work(tp: int, nearest: tuple[int, ...]) -> None:
    with pytest.raises(CompileError) as caught:
        compile_text(TEXT.format(tp=tp))
    (only,) = caught.value.diagnostics
    assert only.code.name == "MGS440"
    assert f"as groups of {' or '.join(map(str, nearest))} gpus do; or" in (only.hint or "")
    for each in nearest:
        assert compile_text(TEXT.format(tp=each)).scenario().num_ranks == each
