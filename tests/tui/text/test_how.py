"""How to carry out a schedule, as people read it."""

import json

import pytest

from magus.advisor.how.how import How, how_of
from magus.compiler import compile_file, compile_text
from magus.compiler.resolve.schedules.from_text import resolve_schedule
from magus.examples import path
from magus.tui.text import handover as how_module
from magus.tui.text.door import columns
from magus.tui.text.handover import how_lines
from tests.helpers.commands import magus
from tests.helpers.some import some

OWN_LAST = """\
How to carry out hetero_fused_1d(chunks=32, engine=dma(7)):
  - Every rank r of 8 does the same. Ranks count modulo 8.
  - Block b of p is the 1024 rows whose sum rank b gets.
  - copies: by 7 copy engines; the first free one takes the next copy. A copy
    that has arrived sets a flag there.
  - Steps of one stream run one after the other; beyond that a step waits only
    for what it names.

  1. for i = 0, ..., 3:
    1.1 stream 0: GEMM for rows 256i:256i+256 of blocks r+1, ..., r+7 (1792
        rows)
    1.2 copies: for k = 1, ..., 7, when step 1.1 is done, put the own part of
        rows 256i:256i+256 of block r+k to rank r+k (4 MiB each)
  2. stream 0: GEMM for block r (1024 rows)
  3. stream 1: for i = 0, ..., 3, when rows 256i:256i+256 of block r have
     arrived from ranks r+1, ..., r+7 and step 2 is done, sum their 8 parts

In pseudo-code, commands are queued at once and wait in their queues:
  for i in range(0, 4):
      stream[0].gemm(p[r+1, ..., r+7][256*i:256*i+256])
      done["1.1", i] = stream[0].record()
      for k in range(1, 8):
          copies.put(p[r+k][256*i:256*i+256], to=r+k, after=done["1.1", i])
  stream[0].gemm(p[r])
  done[2] = stream[0].record()
  for i in range(0, 4):
      stream[1].wait(arrived(p[r][256*i:256*i+256], of=[r+1, ..., r+7]))
      stream[1].wait(done[2])
      stream[1].sum(p[r][256*i:256*i+256], parts=8)"""


@pytest.fixture(autouse=True)
def eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def how_text(how: How) -> str:
    return "\n".join(how_lines(how, how.schedule.expression))


def text_of(example: str, schedule: str, workload: str | None = None) -> str:
    scenario = compile_file(path(example)).scenario(workload).case
    return how_text(how_of(scenario, resolve_schedule(scenario, schedule)))


def test_a_schedule_is_reported_in_steps_and_in_pseudo_code() -> None:
    assert text_of("gemm_rs_h100", "hetero_fused_1d(chunks=32, engine=dma(7))") == OWN_LAST


@pytest.mark.parametrize(
    "example, schedule, sentence",
    [
        ("all_reduce_h100", "around", "have been added from rank r-1, add their sum so far to what rank r+1 has of it"),
        ("all_reduce_h100", "in_switch", "get rows 256i:256i+256 of block r from every rank, summed by the switch"),
        ("all_reduce_h100", "pairs", "r^k is r with the bits of k flipped"),
        ("hot_expert_mi300x", "own_first", "put part i of 2 of the rows for rank r+k to rank r+k"),
        ("gemm_rs_h100", "serial(engine=sm(16, library))", "call reduce_scatter of p, which moves everything"),
        (
            "gemm_rs_h100",
            "uniform_fused_1d(chunks=16, engine=sm(tiles), kernel=persistent)",
            "is done, tile by tile, put",
        ),
        ("ring_attention_h100", "pipelined()", "attention for it, added to the output"),
        ("decode_small_batch", "hetero_fused_1d(chunks=8, engine=sm(8))", "by 8 SMs, which kernels leave to them"),
    ],
)
def test_what_is_special_is_reported(example: str, schedule: str, sentence: str) -> None:
    assert sentence in " ".join(text_of(example, schedule).split())


def test_two_kernels_are_reported_apart() -> None:
    scenario = compile_file(path("ulysses_h100")).scenario("projected").case
    text = " ".join(how_text(how_of(scenario, resolve_schedule(scenario, "one_by_one"))).split())

    assert "attention for all rows for every rank" in text and "GEMM for all rows from every rank" in text


def test_nothing_is_wider_than_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")

    for line in some(text_of("all_reduce_h100", "trees").splitlines()):
        assert len(line) <= columns()


def test_ranks_that_differ_have_steps_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = text_of("all_reduce_h100", "trees")
    monkeypatch.setattr(how_module, "MOST_GROUPS", 2)
    monkeypatch.setattr(how_module, "MOST_LINES", 3)
    short = text_of("all_reduce_h100", "trees")

    assert whole.count("\nOn rank ") == 8 and "left out" not in whole
    assert short.count("\nOn rank ") == 2 and "The steps of 6 more ranks are left out here" in short
    assert "more lines are left out here" in short


def test_a_kernel_alone_is_one_step() -> None:
    text = 'use "amd/mi300x"\nsystem one { gpus 1 x MI300X; fabric full_mesh(xgmi) }\nworkload w on one { '
    scenario = (
        compile_text(text + "x = tensor bf16[512, 512]; v = tensor bf16[512, 512]; y = gemm(x, v) }").scenario().case
    )

    assert "1. stream 0: GEMM for all rows\n" in how_text(how_of(scenario, resolve_schedule(scenario, None)))


def test_the_commands_tell_the_same() -> None:
    file = path("decode_small_batch")
    advised = magus("advise", file, "--no-verify", "--how", "--no-cache")
    document = json.loads(magus("advise", file, "--no-verify", "--how", "--json", "--no-cache").stdout)
    planned = magus("plan", file, "--schedule", document["recommended"], "--format", "steps")

    assert planned.exit_code == 0 and planned.stdout in advised.stdout
    steps = document["how"]["groups"][0]["steps"]
    assert [step["number"] for step in steps] == ["1", "2"] and {step["kind"] for step in steps} == {
        "library",
        "kernel",
    }
    assert json.loads(magus("advise", file, "--no-verify", "--json", "--no-cache").stdout)["how"] is None
