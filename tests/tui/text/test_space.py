"""What ``magus schedules`` shows."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from magus.tui.cli import app

HEAD = """use "amd/mi300x"
system s { gpus 4 x MI300X; fabric full_mesh(xgmi) }
workload up on s {
  x = tensor bf16[1024, 1024] shard rows
  w = tensor bf16[1024, 2048] shard cols
  y = gemm(all_gather(x), w)
}
"""


def schedules(folder: Path, explore: str, *options: str) -> str:
    path = folder / "space.mgs"
    path.write_text(f"{HEAD}explore up {{ {explore} }}\n", encoding="utf-8")
    done = CliRunner().invoke(app, ["schedules", str(path), *options], env={"COLUMNS": "80"})
    assert done.exit_code == 0, done.output
    return done.stdout


def test_a_large_space_is_a_sample_with_its_size_its_knobs_and_its_assumptions(tmp_path: Path) -> None:
    text = schedules(tmp_path, "everything")
    document = json.loads(schedules(tmp_path, "everything", "--json"))

    assert all(len(line) <= 80 for line in text.splitlines())
    assert f"{document['size']:,} feasible schedules, of which these 64 differ most" in text
    assert document["complete"] and len(document["schedules"]) == 64
    assert document["knobs"]["transfer"] == ["put", "get"] and document["knobs"]["depth"] == ["all", 1, 2, 4]
    for rule in document["dominance"]:
        assert f"{rule['removed']:,} by {rule['name']}" in text and rule["removed"] > 0
    assert {rule["name"] for rule in document["dominance"]} == {"mirror", "one_target", "look_again", "asked_first"}
    assert {name.split("(")[0] for name in document["schedules"]} >= set(document["knobs"]["schedules"])


def test_a_limit_shows_so_many_and_says_how_many_there_are(tmp_path: Path) -> None:
    document = json.loads(schedules(tmp_path, "everything", "--json", "--limit", "9"))

    assert len(document["schedules"]) == 9 and document["size"] > 512 and not document["complete"]


@pytest.mark.parametrize("options", [(), ("--limit", "500")])
def test_a_small_space_is_listed_whole(tmp_path: Path, options: tuple[str, ...]) -> None:
    text = schedules(tmp_path, "schedules uniform_fused_2d; chunks 16; engine dma, dma(1); dominance off", *options)

    assert "uniform_fused_2d(chunks=16, engine=dma(3))" in text
    assert "4 feasible schedules\n" in text and "assumptions" not in text.split("Lower bound")[0]


def test_what_was_requested_for_and_cannot_be_is_explained(tmp_path: Path) -> None:
    explore = "schedules uniform_fused_2d; chunks 24"
    text, document = schedules(tmp_path, explore), json.loads(schedules(tmp_path, explore, "--json"))

    assert "Requested, but not feasible:" in text
    assert [absent["schedule"] for absent in document["absent"]] == ["uniform_fused_2d"]
    assert document["absent"][0]["reasons"]
