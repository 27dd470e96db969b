"""Draws of the routing: percentiles of a schedule, and whether what is recommended stays the answer."""

from pathlib import Path
from typing import Any

import pytest

from magus.tui.text.door import Exit
from tests.helpers.commands import document, magus

TEXT = """use "nvidia/h100"

system node { gpus 8 x H100; fabric switch(nvswitch, link=nvlink) }

workload moe on node {
  x = tensor bf16[2048, 1024] shard rows
  w1 = tensor bf16[64 * 1024, 1024] shard rows
  w2 = tensor bf16[64 * 512, 1024] shard rows
  t = dispatch(x, experts=64, top=4, routing=LAW)
  h = swiglu(grouped_gemm(t, w1))
  y = combine(grouped_gemm(h, w2))
}

explore moe { engine sm(16); chunks 4 }
"""


def written(folder: Path, law: str) -> Path:
    path = folder / "moe.mgs"
    path.write_text(TEXT.replace("LAW", law))
    return path


def simulated(file: Path, *options: str) -> dict[str, Any]:
    return document("simulate", file, "--granularity", "packet", *options)


@pytest.mark.slow
def test_each_seed_is_another_routing(tmp_path: Path) -> None:
    file = written(tmp_path, "power_law(1.2, seed=7)")
    each = [simulated(written(tmp_path, f"power_law(1.2, seed={seed})"))["makespan_us"] for seed in (3, 4, 5)]
    found = simulated(file, "--seed", "3", "--seeds", "3")["seeds"]

    assert (found["first"], found["count"]) == (3, 3)
    assert [found["makespan_us"][name] for name in ("min", "p50", "max")] == pytest.approx(sorted(each))
    assert "seeds" not in simulated(file)


@pytest.mark.slow
def test_the_file_says_which_seeds(tmp_path: Path) -> None:
    file = written(tmp_path, "sampled(1.9, seed=2..4)")
    done = magus("simulate", file, "--granularity", "packet")
    found = simulated(file)

    assert done.exit_code == 0 and "Seeds 2 to 4 of the routing, us" in done.stdout
    assert found["seeds"]["first"] == 2 and found["seeds"]["count"] == 3
    assert found["seeds"]["makespan_us"]["min"] <= found["makespan_us"] <= found["seeds"]["makespan_us"]["max"]


def test_an_answer_says_whether_it_stays_one(tmp_path: Path) -> None:
    file = written(tmp_path, "power_law(1.2, seed=0..2)")
    done = magus("advise", file)
    found: Any = document("advise", file)["routing_draws"]
    (first, *others) = found["schedules"]

    assert found["seeds"] == [0, 1, 2] and first["schedule"] == document("advise", file)["recommended"]
    assert others and all(0 < each["us"]["min"] < each["us"]["max"] for each in found["schedules"])
    assert 0 <= found["answer_stays"] <= 3
    lines = [line for line in done.stdout.splitlines() if str(tmp_path) not in line]
    assert "Over 3 draws of the routing" in done.stdout and " stays the answer in " in done.stdout
    assert max(map(len, lines)) <= 80
    more: Any = document("advise", file, "--seeds", "4")["routing_draws"]
    assert more["seeds"] == [0, 1, 2, 3]


def test_what_is_not_drawn_has_no_draws(tmp_path: Path) -> None:
    file = written(tmp_path, "uniform")
    done = magus("advise", file, "--seeds", "3")

    assert done.exit_code == Exit.USAGE and "none is drawn here" in done.output
    assert document("advise", file)["routing_draws"] is None
