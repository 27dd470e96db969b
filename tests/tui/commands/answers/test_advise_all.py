"""``magus advise`` on a file with several workloads: a line for each, a total, and nothing lost."""

import json
from pathlib import Path
from typing import Any

import pytest

from magus.advisor import Advisor, NoFeasibleSchedule
from magus.advisor.answer.export import ADVICE_SCHEMA
from magus.tui.commands.answers import advise as advise_all
from tests.helpers.commands import magus

TEXT = """use "nvidia/h100"
param M = 1024
system pair { gpus 2 x H100; fabric switch(nvswitch, link=nvlink) }
system other { gpus 2 x H100; fabric switch(nvswitch, link=nvlink); replay "profile.csv" }
workload up on pair {
  x = tensor bf16[M, 512] shard rows
  w = tensor bf16[512, 1024] shard cols
  y = gemm(all_gather(x), w)
}
workload sum on pair { g = tensor bf16[M, 512]; s = all_reduce(g) }
workload seen on other {
  x = tensor bf16[M, 512] shard rows
  w = tensor bf16[512, 1024] shard cols
  y = gemm(all_gather(x), w)
}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "profile.csv").write_text("time_us,rank,signal,bytes\n4.5,1,s,1024\n")
    path = tmp_path / "two.mgs"
    path.write_text(TEXT)
    return path


def test_all_workloads_are_answered_with_a_total(file: Path) -> None:
    done = magus("advise", file, "--no-verify")
    lines = done.stdout.splitlines()

    assert (done.exit_code, done.stderr) == (0, "")
    assert [line.split()[0] for line in lines if line[:1].isalpha()][:4] == ["workload", "up", "sum", "all,"]
    assert "- seen: its system replays the profile of one schedule" in lines
    assert lines[-1].split() == ["magus", "advise", str(file), "--workload", "up"]


def test_as_json_it_has_the_advice_of_each(file: Path) -> None:
    document = json.loads(magus("advise", file, "--no-verify", "--json").stdout)
    alone = json.loads(magus("advise", file, "--no-verify", "--json", "--workload", "sum").stdout)

    assert [each["workload"] for each in document["workloads"]] == ["up", "sum"]
    assert {each["schema"] for each in document["workloads"]} == {ADVICE_SCHEMA}
    assert document["workloads"][1]["candidates"] == alone["candidates"]
    assert list(document["without_advice"]) == ["seen"]
    times = [min(one["predicted_us"] for one in each["candidates"]) for each in document["workloads"]]
    assert document["total"]["us"] >= sum(times) and document["total"]["gain"] >= 1


def test_one_that_has_no_answer_leaves_the_others(file: Path, monkeypatch: Any) -> None:
    recommend = Advisor.recommend

    def failing(self: Advisor, scenario: Any, *args: Any, **kwargs: Any) -> Any:
        if scenario.name == "up":
            raise NoFeasibleSchedule(("staging is 0",))
        return recommend(self, scenario, *args, **kwargs)

    monkeypatch.setattr(Advisor, "recommend", failing)
    done = magus("advise", file, "--no-verify")

    assert done.exit_code == 3
    assert "- up: no schedule is feasible: staging is 0" in done.stdout and "\nsum " in done.stdout


@pytest.mark.parametrize("option", ["--how", "--threshold", "--sensitivity"])
def test_what_is_about_one_workload_asks_for_it(file: Path, option: str) -> None:
    done = magus("advise", file, "--no-verify", option)
    assert done.exit_code == 2 and done.stdout == ""
    assert f"magus: {option} is about one workload; --workload says which: up, sum, seen" in done.stderr


def test_stopped_it_shows_what_it_has(file: Path, monkeypatch: Any) -> None:
    class Pressed:
        requested = 0

        def __enter__(self) -> Any:
            return self.pressed

        def pressed(self) -> bool:
            self.requested += 1
            return self.requested > 1

        def __exit__(self, *_: object) -> None:
            pass

    recommend = Advisor.recommend
    monkeypatch.setattr(Advisor, "recommend", lambda self, scenario, options, **_: recommend(self, scenario, options))
    monkeypatch.setattr(advise_all, "interruptible", Pressed)
    done = magus("advise", file, "--no-verify")

    assert done.exit_code == 130 and "stopped early: 1 of 3 workloads" in done.stderr
    assert "\nup " in done.stdout and "\nsum " not in done.stdout


def test_strict_judges_every_workload(file: Path) -> None:
    text = file.read_text().replace("nvidia/h100", "amd/mi300x").replace("x H100", "x MI300X")
    file.write_text(text.replace("switch(nvswitch, link=nvlink)", "full_mesh(xgmi)"))
    done = magus("advise", file, "--no-verify", "--strict")
    assert done.exit_code == 3 and "not validated" in done.stderr


def test_a_workload_on_several_groups_is_answered_as_a_whole(tmp_path: Path) -> None:
    file = tmp_path / "both.mgs"
    file.write_text(
        """use "nvidia/h100"
system node { gpus 4 x H100; fabric switch(nvswitch, link=nvlink); mesh tp 2, dp 2; mesh ep 4 over tp, dp }
workload both on node {
  x = tensor bf16[1024, 512] shard cols over tp
  v = tensor bf16[512, 512] shard rows over tp
  w = tensor bf16[512, 1024] shard cols over ep
  y = reduce_scatter(gemm(x, v), over=tp)
  z = gemm(all_gather(y), w)
}
"""
    )
    done = magus("advise", file, "--no-verify", "--workload", "both")
    document = json.loads(magus("advise", file, "--no-verify", "--json").stdout)
    refused = magus("simulate", file, "--workload", "both")

    assert (done.exit_code, done.stderr) == (0, "")
    assert "both, both_tp then both_ep:" in done.stdout
    assert done.stdout.splitlines()[-1].split() == ["magus", "advise", str(file), "--workload", "both_tp"]
    (whole,) = document["on_several_groups"]
    assert (whole["workload"], whole["parts"], whole["layers"]) == ("both", ["both_tp", "both_ep"], 1)
    assert whole["us"] == pytest.approx(document["total"]["us"])
    assert refused.exit_code == 1 and "MGS574 error: both is on several groups" in refused.stderr
