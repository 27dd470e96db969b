"""Where names are declared and used, and other names for them."""

from pathlib import Path

import pytest

from magus.compiler.pipeline import compile_text
from magus.compiler.services.document import read_document
from magus.compiler.services.names import RenameError, definition, occurrences_in, renaming, symbols
from magus.examples import path
from tests.helpers.editing import BEGINNING, at_mark
from tests.helpers.marks import thinned

USED = ("declarative_plan", "explicit_plan", "fsdp_two_nodes_h100", "hot_expert_mi300x", "llama70b_tp8_mi300x")


def line_of_definition(text: str) -> str:
    document, offset = at_mark(text)
    target = definition(document, offset)
    assert target is not None
    lines = target.path.read_text(encoding="utf-8").splitlines() if target.path.exists() else None
    return (lines or document.source.text.splitlines())[target.start.line - 1].strip()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("let Z = 2 * K|", "let K = 4096"),
        ("explore u|p { }", "workload up on node {"),
        ("expect up { f|ine.makespan < 1 s }", BEGINNING.splitlines()[-1]),
        ("gpu own extends m|ine { }", BEGINNING.splitlines()[4]),
        ("gpu own extends nv.H10|0 { }", "gpu H100 {"),
        ("system n { gpus 2 x |MI300X; fabric ring(xgmi) }", "gpu MI300X {"),
        ("workload v on node {\n  a = tensor bf16[8, 8]\n  b = add(|a, a)\n}", "a = tensor bf16[8, 8]"),
        ("gpu own extends mine { clock base.cl|ock }", BEGINNING.splitlines()[4]),
    ],
)
def test_a_name_leads_to_its_declaration(text: str, line: str) -> None:
    assert line_of_definition(BEGINNING + text) == line


def test_files_are_found(tmp_path: Path) -> None:
    (tmp_path / "own.mgs").write_text("let deep = 4\n", encoding="utf-8")
    main = str(tmp_path / "main.mgs")

    included, inside, shipped = (
        definition(*at_mark(text, main))
        for text in ('include "ow|n.mgs"', 'include "own.mgs"\nlet Z = de|ep', 'use "amd/mi|300x"')
    )

    assert included is not None and included.path == tmp_path / "own.mgs"
    assert inside is not None and (inside.path, inside.start.column) == (tmp_path / "own.mgs", 5)
    assert shipped is not None and shipped.path.read_text(encoding="utf-8").count("gpu MI300X")


@pytest.mark.parametrize(
    "text", ["|", 'include "go|ne.mgs"', 'include "/etc/\0|"', 'use "no/|such"', "le|t = 4", "# K|"]
)
def test_nothing_leads_nowhere(text: str) -> None:
    assert definition(*at_mark(text)) is None


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", thinned(USED, 3))
def test_every_name_of_an_example_can_be_changed_and_back(name: str) -> None:
    text = path(name).read_text(encoding="utf-8")
    document = read_document(text, str(path(name)))
    defined = {(use.name, use.home): use for use in occurrences_in(document.source) if use.is_definition}
    assert len(defined) > 4
    for (old, home), use in defined.items():
        (changed,) = renaming(document, use.span.start, "brand_new")
        uses = occurrences_in(changed.source)
        assert old not in {
            each.name for each in occurrences_in(read_document(changed.text, "a").source) if each.home == home
        }
        compile_text(changed.text, str(path(name)))
        again = read_document(changed.text, str(path(name)))
        place = next(each for each in occurrences_in(again.source) if each.name == "brand_new")
        assert renaming(again, place.span.start, old)[0].text == text
        assert uses


def test_a_tensor_is_renamed_where_it_is_meant_and_nowhere_else() -> None:
    text = (
        BEGINNING + "workload other on node {\n  x = tensor bf16[8, 8]\n  y = add(x, x)\n}\n"
        "schedule s for up { plan by dma(7); t1 = put x.shard(0) to 1 signal s1 }\n"
    )
    document = read_document(text, "a.mgs")
    (changed,) = renaming(document, text.index("x = tensor"), "input")

    assert changed.text == text.replace("x = tensor bf16[M", "input = tensor bf16[M").replace(
        "all_gather(x)", "all_gather(input)"
    ).replace("put x.", "put input.")


def test_a_backward_pass_names_a_workload_and_its_results() -> None:
    text = BEGINNING + (
        "workload layer on node {\n  x = tensor bf16[64, 64]\n  u = norm(x)\n  y = norm(u)\n}\n"
        "workload back on node {\n  backward layer\n  keep u\n}\n"
    )
    document = read_document(text, "a.mgs")
    (layer,) = renaming(document, text.index("layer"), "block")
    (kept,) = renaming(document, text.index("u = norm"), "held")

    assert layer.text == text.replace("layer", "block")
    assert kept.text == text.replace("u = norm", "held = norm").replace("norm(u)", "norm(held)").replace(
        "keep u", "keep held"
    )


@pytest.mark.parametrize(
    ("text", "new", "why"),
    [
        ("let Z = |K", "4x", "'4x' cannot be a name"),
        ("let Z = |K", "system", "'system' cannot be a name"),
        ("let Z = |K", "best", "'best' cannot be a name"),
        ("let Z = |K", "M", "'M' is taken"),
        ("let Z = |K", "MI300X", "'MI300X' is taken"),
        ("system n { gpus 2 x MI30|0X; fabric ring(xgmi) }", "mine2", "'MI300X' is not declared in this file"),
        ("explore up { sched|ules all }", "other", "no name stands here"),
    ],
)
def test_a_name_that_cannot_be_changed_says_why(text: str, new: str, why: str) -> None:
    with pytest.raises(RenameError, match=why):
        renaming(*at_mark(BEGINNING + text), new)


def test_a_name_is_changed_in_included_files_too(tmp_path: Path) -> None:
    (tmp_path / "own.mgs").write_text("let deep = 4\nlet deeper = deep * 2\n", encoding="utf-8")
    document, offset = at_mark('include "own.mgs"\nlet Z = de|ep', str(tmp_path / "main.mgs"))
    changed = {Path(each.source.path).name: each.text for each in renaming(document, offset, "low")}

    assert changed == {
        "main.mgs": 'include "own.mgs"\nlet Z = low',
        "own.mgs": "let low = 4\nlet deeper = low * 2\n",
    }


def test_the_outline_of_a_text() -> None:
    found = symbols(read_document(BEGINNING + "explore up { everything }\nexpect { }", "a.mgs"))

    assert [each.name for each in found] == ["K", "M", "mine", "node", "up", "fine", "explore up", "expect"]
    assert [each.name for each in found[4].children] == ["x", "w", "y"]
