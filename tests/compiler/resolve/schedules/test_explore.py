"""What an ``explore`` block says of every knob."""

import pytest

from magus.compiler import CompileError, compile_text, format_text
from magus.compiler.collectives import ALGORITHM_BY_NAME
from magus.compiler.ir import CopyProtocol, Direction, Explore, Kernels, LaunchMode, PeerOrder, Wait, WaitPer
from magus.compiler.planning.knobs import KNOBS
from magus.compiler.resolve.schedules.explore import opened

HEAD = """use "nvidia/h100"
system s { gpus 4 x H100; fabric switch(nvswitch, link=nvlink) }
workload w on s {
  x = tensor bf16[512, 1024] shard rows; w = tensor bf16[1024, 2048] shard cols
  y = gemm(all_gather(x), w)
}
"""


def explored(block: str) -> Explore:
    return compile_text(f"{HEAD}explore w {{ {block} }}\n").scenario("w").case.explore


def test_every_knob_has_a_word() -> None:
    explore = explored(
        "transfer put, get; protocol simple, ll; kernel launched, persistent; wait event, poll; per tile; "
        "launch graph; tile [64, 256], [128, 128]; split_k 1, 4; order rotated, large_first; depth 1, 2, 4; "
        "streams 1..4 x2; algorithm ring, direct; dominance off"
    )

    assert explore == Explore.of(
        transfer=(Direction.PUT, Direction.GET),
        protocol=(CopyProtocol.SIMPLE, CopyProtocol.LL),
        kernel=(Kernels.LAUNCHED, Kernels.PERSISTENT),
        wait=(Wait.EVENT, Wait.POLL),
        per=(WaitPer.TILE,),
        launch=(LaunchMode.GRAPH,),
        tile=((64, 256), (128, 128)),
        split_k=(1, 4),
        order=(PeerOrder.ROTATED, PeerOrder.LARGE_FIRST),
        depth=(1, 2, 4),
        streams=(1, 2, 4),
        algorithm=("ring", "direct"),
        dominance=False,
    )
    named = {word for word, _ in explore.requested} | {"schedules", "chunks", "engine", "waves", "sums"}
    assert named == {knob.word for knob in KNOBS if knob.explored}


def test_everything_opens_what_is_not_said() -> None:
    explore = explored("everything; transfer get; depth 3; chunks 16")

    assert (explore.values("transfer"), explore.values("depth"), explore.values("chunks")) == (
        (Direction.GET,),
        (3,),
        (16,),
    )
    assert explore.values("protocol") == tuple(CopyProtocol) and explore.values("order") == tuple(PeerOrder)
    assert explore.values("algorithm") == tuple(ALGORITHM_BY_NAME) and explore.dominance
    assert explored("depth 3; chunks 16; transfer get; everything") == explore
    assert opened(Explore()).values("depth") == (1, 2, 4) and explored("dominance on") == Explore()


def test_a_block_is_printed_as_it_is_meant() -> None:
    text = f"{HEAD}explore w {{\n  everything\n  transfer put, get\n  dominance off\n}}\n"

    assert format_text(format_text(text)) == format_text(text)
    assert compile_text(format_text(text)).scenario("w").case.explore == compile_text(text).scenario("w").case.explore


@pytest.mark.parametrize(
    ("block", "code"),
    [
        ("transfer put; transfer get", "MGS206"),
        ("streams 65", "MGS307"),
        ("tile 64", "MGS116"),
        ("tile [64]", "MGS116"),
        ("tile [64, 0]", "MGS307"),
        ("split_k 33", "MGS307"),
        ("depth 1.5", "MGS309"),
        ("algorithm rings", "MGS204"),
        ("per chunk tile", "MGS112"),
        ("dominance", "MGS116"),
        ("everything put", "MGS113"),
        ("tactics all", "MGS201"),
        ("kernel launched, persistent; split_k 2, 5", "MGS513"),
        ("tile [64, 256], [64, 72]", "MGS513"),
    ],
)
def test_what_is_not_understood(block: str, code: str) -> None:
    with pytest.raises(CompileError) as caught:
        explored(block)

    assert caught.value.diagnostics[0].code.name == code


def test_parts_of_k_that_sizes_set_from_outside_forbid_are_a_warning() -> None:
    text = f"param K = 1024\n{HEAD}explore w {{ split_k 2, 4 }}\n".replace("1024]", "K]").replace("[1024", "[K")
    compiled = compile_text(text, settings=[("K", "64")])

    assert compile_text(text).warnings == ()
    assert [(each.code.name, each.span.text) for each in compiled.warnings] == [("MGS513", "split_k 2, 4")]
