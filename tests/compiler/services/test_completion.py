"""What may be written at a place, in finished and half-written texts."""

import pytest

from magus.compiler.services.completion import Completions, complete
from magus.compiler.services.document import read_document
from magus.examples import path
from tests.helpers.editing import BEGINNING, at_mark
from tests.helpers.steps import TEXT as STEP


def completions(text: str) -> Completions:
    return complete(*at_mark(BEGINNING + text))


def offered(text: str) -> list[str]:
    return [each.text for each in completions(text).matching]


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("sch|", ["schedule"]),
        ('use "amd/|', ["amd/mi300x", "amd/mi325x", "amd/mi355x"]),
        ("workload v on |", ["node"]),
        ("explore |", ["up"]),
        ("schedule s for |", ["up"]),
        ("schedule s for up = uniform|", ["uniform_fused_1d", "uniform_fused_2d"]),
        ("schedule s for up = serial(|", ["engine=", "algorithm=", "transfer=", "protocol="]),
        ("schedule s for up = serial(engine=|", ["dma", "sm"]),
        ("schedule s for up = serial(engine=sm(8, l|", ["library"]),
        ("schedule s for up = shard_p2p(wait=|", ["event", "poll", "monitor"]),
        ("schedule s for up {\n  split |", ["K", "M", "shards", "rows"]),
        ("schedule s for up {\n  split shards; mo|", ["move"]),
        ("schedule s for up {\n  move by |", ["dma", "sm"]),
        ("schedule s for up { plan by dma(7); t1 = |", ["put", "get", "compute", "reduce"]),
        ("schedule s for up { plan by dma(7); t1 = put x.sh|", ["shard"]),
        (
            "schedule s for up { plan by dma(7); t1 = put x.shard(0) to 1 signal s1; c = compute y.shard(1) after s|",
            ["s1"],
        ),
        ("gpu own { hbm { cap|", ["capacity"]),
        ("gpu own { hbm { capacity 64 G|", ["GiB", "GB", "Gb", "Gib"]),
        ("gpu own { hbm { capacity 64 GB/|", []),
        ("gpu own { hbm { bandwidth 64 GB/|", ["GB/s", "GB/cycle"]),
        ("gpu own { clock 1|", ["GHz", "Hz", "kHz", "MHz"]),
        ("gpu own { clock 1 GHz @m|", ["measured"]),
        ("gpu own { peak b|", ["bf16"]),
        ("gpu own extends |", ["MI300X", "mine", "nv.H100"]),
        ("gpu own extends nv.|", ["H100", "nvlink", "nvswitch"]),
        ("gpu own extends mine { clock base.|", ["clock", "sms"]),
        ("gpu own extends mine { hbm { achieved base.hbm.a|", ["achieved"]),
        ("link own { protocols |", ["simple", "ll", "ll128"]),
        ("system n2 { gpus 8 x MI|", ["MI300X"]),
        ("system n2 { gpus 8 x MI300X; fabric ring(b|", ["both_ways="]),
        ("system n2 { variability { sk|", ["skew"]),
        ("system n2 { gpus 8 x MI300X; fabric ring(xgmi); mesh tp 2, ep 4 o|", ["over"]),
        ("system n2 { gpus 8 x MI300X; fabric ring(xgmi); mesh tp 2, dp 4 }\nworkload v on n2.|", ["tp", "dp"]),
        ("system n2 { gpus 8 x MI300X; fabric ring(xgmi); mesh tp 2, dp 4 }\nworkload v on n2.tp.|", ["dp"]),
        ("workload v on node {\n  a = |", ["tensor", "gemm"]),
        ("workload v on node {\n  a = tensor b|", ["bf16"]),
        ("workload v on node {\n  a = tensor bf16[|", ["K", "M"]),
        ("workload v on node {\n  a = tensor bf16[8, 8] shard |", ["rows", "cols"]),
        ("workload v on node {\n  aa = tensor bf16[8, 8]\n  b = gemm(a|", ["aa"]),
        ("workload v on node {\n  aa = tensor bf16[8, 8]\n  b = attention(aa, |", ["aa", "b", "gemm"]),
        ("workload v on node {\n  aa = tensor bf16[8, 8]\n  b = attention(aa, kv|", ["kv_heads="]),
        ("workload v on node {\n  aa = tensor bf16[8, 8]\n  b = dispatch(aa, type=|", ["bf16", "fp16"]),
        ("workload v on node {\n  bat|", ["batch"]),
        ("workload v on node {\n  back|", ["backward"]),
        ("schedule s for up {\n  bat|", ["batches"]),
        ("schedule s for up {\n  pre|", ["prefetch"]),
        ("workload v on node {\n  backward |", ["up"]),
        ("explore up { sta|", ["staging"]),
        ("explore up { kernel |", ["launched", "persistent"]),
        ("explore up { dominance |", ["on", "off"]),
        ("expect up { fi|", ["fine"]),
        ("expect up { fine.make|", ["makespan"]),
        ("expect up { verdict == |", ["overlap", "worth_trying", "serial"]),
        ("expect up { sweep M in 16..64 x2 { fine.makespan ris|", ["rising"]),
        ("expect up with |", ["M"]),
        ("let Z = K|", ["K"]),
        ("# sch|", []),
    ],
)
def test_the_first_that_match(text: str, first: list[str]) -> None:
    assert offered(text)[: len(first)] == first
    assert bool(offered(text)) == bool(first)


def test_what_is_offered_says_what_it_is() -> None:
    found = {each.text: each for each in completions("let Z = |").all}

    assert found["K"].detail == "= 4096", "a value says its value"
    assert found["min"].doc == "the least of several values of one dimension"


def test_it_replaces_what_is_written_of_the_word() -> None:
    found = completions("sched|")

    assert (found.start, found.end, found.prefix) == (len(BEGINNING), len(BEGINNING) + 5, "sched")


@pytest.mark.parametrize("broken", ["gpu own { hbm {", "let = 4", "x = gemm(", 'use "amd', "}}}", "schedule s for"])
def test_a_broken_line_does_not_stop_completion_below(broken: str) -> None:
    assert "node" in offered(f"{broken}\n\nworkload v on |")
    assert "up" in offered(f"{broken}\n\nexplore |")


@pytest.mark.parametrize("name", ["llama70b_tp8_mi300x", "explicit_plan"])
def test_a_text_cut_anywhere_keeps_the_names_before(name: str) -> None:
    """Cut behind each line and in the middle of each: what was declared above is offered for a new schedule."""
    text = path(name).read_text(encoding="utf-8")
    declared = text.index("workload")
    workload = text[declared:].split()[1]
    lines = text[declared:].splitlines(keepends=True)
    cuts = [declared + sum(map(len, lines[:idx])) + len(lines[idx]) // 2 for idx in range(8, len(lines))]
    assert cuts
    for cut in cuts:
        begun = text[:cut] + "\nschedule new for "
        assert workload in [each.text for each in complete(read_document(begun, "a.mgs"), len(begun)).all], begun


def test_words_of_a_training_step_are_offered_at_their_places() -> None:
    text = STEP.format(more="schedule nemo for train { zero 1 }\n")

    def offered(begun: str) -> set[str]:
        return {each.text for each in complete(read_document(text + begun, "a.mgs"), len(text + begun)).all}

    assert {"step", "sequences", "head", "optimizer"} <= offered("workload other on pod {\n  ")
    assert {"layer", "train"} <= offered("workload other on pod {\n  step ")
    assert {"pipeline", "zero", "overlap", "stages"} <= offered("schedule mine for train {\n  ")
    assert {"one_f_one_b", "zero_bubble", "interleaved", "dual"} <= offered("schedule mine for train {\n  pipeline ")
    assert {"gradients", "weights"} <= offered("schedule mine for train {\n  overlap ")
    assert {"pipeline", "keep", "memory", "TP", "PP"} <= offered("explore train {\n  ")
    stacks = offered("implementation ours { stack { forward_rows 2 @assumed } }\nschedule mine for train {\n  stack ")
    assert stacks == {"ours", "megatron_2021", "megatron_2022", "megatron_unfused", "torchtitan"}
    assert {"bubble", "tokens_per_s"} <= offered("expect train {\n  nemo.")


def test_every_place_of_an_example_can_be_completed() -> None:
    text = path("decode_small_batch").read_text(encoding="utf-8")
    document = read_document(text, "a.mgs")
    found = [complete(document, offset) for offset in (-5, *range(0, len(text), 3), len(text) + 99)]
    assert sum(bool(each.all) for each in found) > len(found) // 2
