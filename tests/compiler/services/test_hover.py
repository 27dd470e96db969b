"""What is known of words, names, numbers and expressions."""

import pytest

from magus.compiler.services.hover import hover
from tests.helpers.editing import BEGINNING, at_mark
from tests.helpers.hostile_text import EVERYTHING, is_safe


def known(text: str) -> str:
    found = hover(*at_mark(text))
    return found.text if found is not None else ""


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("let Z = K|", ["let K = 4096", "= 4096"]),
        ("let Z = 2 |* K", ["2 * K", "= 8192"]),
        ("let Z = 2 G|iB", ["2 GiB", "= 2 GiB", "1 GiB = 1,073,741,824 B"]),
        ("let Z = min|(2, 3)", ["min", "the least of several values of one dimension"]),
        ("explore u|p { }", ["workload up on node"]),
        ("gpu own { hbm { cap|acity 8 GiB } }", ["capacity", "device memory; tensors and staging must fit"]),
        ("workload v on node { x = tensor bf16[|M, K] }", ["param M = 8192 in 16..65536 x2", "= 8192"]),
        (
            "workload v on node {\n  a = tensor bf16[M, 2 * K]\n  b = add(a|, a)\n}",
            ["a = tensor bf16[M, 2 * K]", "8192 x 8192"],
        ),
        (
            "system n2 { gpus 8 x MI300X; fabric ring(xgmi); mesh tp 2, dp 4 }\nworkload v on n2.d|p { }",
            ["mesh dp 4", "groups of 4 ranks: 0, 2, 4 and so on"],
        ),
        ('use "amd/mi300|x"', ['use "amd/mi300x"', "shipped library: gpu `MI300X`, link `xgmi`"]),
        ("expect up { fine.make|span < 1 s }", ["makespan", "time from the start to the end of the last step"]),
        (
            "schedule s for up {\n  stack torch|titan\n}",
            ["stack torchtitan", "torchtitan with torch.compile on H100 at 500 W with memory of 2.4 TB/s"],
        ),
        (
            "schedule s for up {\n  pipeline du|al\n}",
            ["dual", "microbatches from both ends, a forward chunk beside a backward one (DualPipe)"],
        ),
        ("explore up { pipeline zero_|bubble }", ["zero_bubble", "gradients of weights fill what is left (ZB-H1)"]),
        ("schedule s for up = seri|al()", ["serial", "the kernel and the collective one after the other, no overlap"]),
    ],
)
def test_what_is_known(text: str, lines: list[str]) -> None:
    assert known(BEGINNING + text).split("\n")[: len(lines)] == lines


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (BEGINNING.replace("clock 1", "clo|ck 1"), '= 1 GHz, measured: "a bench"'),
        (
            BEGINNING.replace("x MI3", "x M|I3"),
            '`hbm.achieved` = 4.2 TB/s, measured: "STREAM, Azure/AI-benchmarking-guide: 4.1',
        ),
        (BEGINNING.replace("base.hbm.ach", "base.hbm.a|ch"), '= 3 TB/s, measured: "STREAM'),
        (BEGINNING.replace("mine ext", "m|ine ext"), '`sms` = 132, nominal: "NVIDIA H100 SXM data sheet", of H100'),
    ],
)
def test_a_number_says_where_it_comes_from(text: str, line: str) -> None:
    assert any(each.startswith(line) for each in known(text).split("\n")), known(text)


@pytest.mark.parametrize(
    "text", ["|", "# wor|ds", "let Z = 1 s |+ 2 B", "let Z = nothi|ng", '"te|xt"', "gpu own { hbm { x|y"]
)
def test_nothing_is_known_of_nothing(text: str) -> None:
    assert known(text) == ""


def test_text_of_others_is_escaped() -> None:
    safe = EVERYTHING.replace('"', "").replace("\n", "")
    text = known(f'gpu a {"{"} clo|ck 1 GHz @measured "{safe}" {"}"}')

    assert "measured" in text
    assert is_safe(text)
