"""A file with other values: compiled as such, and written as a text that compiles to the same."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magus import examples
from magus.compiler.changed import Changes, changed_text, compile_changed
from magus.compiler.pipeline import compile_text
from magus.compiler.text.diagnostics import CompileError, Source
from magus.compiler.text.units import Quantity, read_text
from tests.helpers.marks import examples as draws

OWN = """\
use "nvidia/h100" as nv  # the library
let K = 4096
param M = 8192 in 1024..65536 x2

gpu slow extends nv.H100 { clock 1.5 GHz; hbm { capacity 64 GiB } }
gpu own extends slow {
  hbm { achieved 2 TB/s @nominal "x" }
  peak bf16 900 TFLOP/s, fp16 900 TFLOP/s
}
system node { gpus 4 x own; fabric ring(nv.nvlink, both_ways=yes) }
workload down on node {
  h = tensor bf16[M, 8192] shard cols
  w = tensor bf16[8192, K] shard rows
  y = reduce_scatter(gemm(h, w))
}
schedule mine for down = pipelined(chunks=2048, engine=dma(2))
expect down { mine.makespan <= serial.makespan * 2 }
expect down with M = 1024 { serial.makespan >= bound.makespan }
"""
EXAMPLE = Source("llama.mgs", examples.path("llama70b_tp8_mi300x").read_text(encoding="utf-8"))
OWN_SOURCE = Source("own.mgs", OWN)
NUMBERS = {
    EXAMPLE: ("MI300X.hbm.achieved", "MI300X.peak.bf16", "MI300X.dma.setup", "MI300X.mall.latency", "xgmi.achieved"),
    OWN_SOURCE: ("own.hbm.achieved", "own.peak.fp16", "own.l2.latency", "own.collectives.nvls.start", "nvlink.latency"),
}


def number(source: Source, changes: Changes, path: str) -> str:
    found = {each.path: each for each in compile_changed(source, changes).numbers}
    return f"{read_text(found[path].value)} @{found[path].origin.value}"


@given(data=st.data())
@draws(3, deep=80)
def test_the_text_compiles_to_the_changed_scenarios(data: st.DataObject) -> None:
    source = data.draw(st.sampled_from([EXAMPLE, OWN_SOURCE]))
    before = {each.path: each.value for each in compile_text(source.text).numbers}
    paths = data.draw(st.sets(st.sampled_from(NUMBERS[source]), max_size=3))
    percents = {path: data.draw(st.integers(50, 99)) for path in sorted(paths)}
    numbers = tuple(
        (path, read_text(Quantity(before[path].amount * percent / 100, before[path].dimension)))
        for path, percent in percents.items()
    )
    rows = data.draw(st.none() | st.sampled_from([1024, 4096, 16384]))
    changes = Changes(() if rows is None else (("M", str(rows)),), numbers)

    text = changed_text(source, changes, "new.mgs")

    assert compile_text(text, "new.mgs").workloads == compile_changed(source, changes).workloads


def test_nothing_changed_is_the_text_itself() -> None:
    assert changed_text(EXAMPLE, Changes(), EXAMPLE.path) == EXAMPLE.text


def test_a_number_is_changed_where_it_stands_or_is_inherited() -> None:
    changes = Changes((), (("own.hbm.achieved", "1 TB/s"), ("own.dma.setup", "3 us"), ("own.l2.per", "66")))
    text = changed_text(OWN_SOURCE, changes, OWN_SOURCE.path)

    assert number(OWN_SOURCE, changes, "own.hbm.achieved") == "1 TB/s @assumed"
    assert 'hbm { achieved 1 TB/s @assumed "what if" }' in text
    assert 'dma { setup 3 us @assumed "what if" }' in text
    assert 'cache l2 { per 66 sms @assumed "what if" }' in text
    assert "# the library" in text, "comments stay"


def test_a_device_of_a_library_becomes_one_of_the_file() -> None:
    changes = Changes((), (("nvlink.achieved", "300 GB/s"),))
    text = changed_text(OWN_SOURCE, changes, OWN_SOURCE.path)

    assert "link nvlink extends nv.nvlink {" in text
    assert "fabric ring(nvlink, both_ways=yes)" in text


def test_a_schedule_that_does_not_fit_any_more_is_left_out_with_what_is_expected_of_it() -> None:
    changes = Changes((("M", "1024"),))
    compiled = compile_changed(OWN_SOURCE, changes)
    text = changed_text(OWN_SOURCE, changes, OWN_SOURCE.path)

    assert compiled.workloads[0].case.schedules == ()
    assert "# schedule mine for down" in text
    assert "# expect down { mine.makespan" in text
    assert "\nexpect down with M = 1024" in text


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        (Changes((("N", "8"),)), "MGS203"),
        (Changes((), (("H200.sms", "8"),)), "MGS203"),
        (Changes((), (("own.sms", "0"),)), "MGS307"),
        (Changes((), (("own.hbm.achieved", "12"),)), "MGS301"),
        (Changes((), (("own.dma.engines", "1"),)), "MGS401"),
        (Changes((), (("own.hbm.colour", "12"),)), "MGS201"),
        (Changes((), (("own.hbm.achieved", "1 TB/s } gpu x {"),)), "MGS107"),
        (Changes((), (("own.hbm.achieved", "1 TB/s 2 TB/s"),)), "MGS114"),
        (Changes((), (("own.hbm.achieved", ""),)), "MGS107"),
    ],
)
def test_a_change_that_cannot_be_is_an_error(changes: Changes, code: str) -> None:
    with pytest.raises(CompileError) as raised:
        compile_changed(OWN_SOURCE, changes)

    assert raised.value.diagnostics[0].code.name == code


def test_what_an_included_file_declares_is_not_changed_here(tmp_path: Path) -> None:
    (tmp_path / "size.mgs").write_text("param M = 8192\n", encoding="utf-8")
    text = OWN.replace("param M = 8192 in 1024..65536 x2", 'include "size.mgs"')
    source, changes = Source(str(tmp_path / "main.mgs"), text), Changes((("M", "4096"),))

    assert compile_changed(source, changes).params[0].value == "4096"
    with pytest.raises(CompileError, match="MGS203"):
        changed_text(source, changes, source.path)


def test_a_place_where_the_text_means_something_else_is_refused(tmp_path: Path) -> None:
    """Beside another file of the name that is included, the same text is another scenario."""
    other = tmp_path / "other"
    other.mkdir()
    (tmp_path / "size.mgs").write_text("let S = 8192\n", encoding="utf-8")
    (other / "size.mgs").write_text("let S = 4096\n", encoding="utf-8")
    text = 'include "size.mgs"\n' + OWN.replace("shard rows\n", "shard rows\n").replace("bf16[8192, K]", "bf16[S, K]")
    text = text.replace("bf16[M, 8192]", "bf16[M, S]")
    source = Source(str(tmp_path / "main.mgs"), text)

    assert changed_text(source, Changes((("M", "4096"),)), str(tmp_path / "new.mgs"))
    with pytest.raises(CompileError, match="MGS213"):
        changed_text(source, Changes((("M", "4096"),)), str(other / "new.mgs"))
