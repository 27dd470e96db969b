"""Figures of the documents that simulations give. ``python -m tests.helpers.figures`` writes them anew.

docs/papers.md has a table of what papers publish and what Magus has, and ends with what ``magus test`` prints of each;
docs/moe.md ends with that of two examples. Other pages state figures in sentences: a file of tests/golden/figures,
named after the page, shows each, and its published text is the sentence with ``{}`` in its place.
"""

import re
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

from magus.advisor.targets.infragraph import INFRAGRAPH
from magus.compiler import compile_file, compile_text
from magus.examples import PAPERS
from magus.tui.text.door import wrapped_to
from tests.helpers.commands import document, magus
from tests.helpers.machines import imported, routes
from tests.helpers.paths import GOLDEN, ROOT

DOCS = ROOT / "docs"
PAPERS_PAGE = DOCS / "papers.md"
PRINTED = {**dict.fromkeys(PAPERS, "papers"), "moe/experts_v4_pro": "moe", "moe/deepseek_v3_two_batches": "moe"}
"""The pages that end with what is printed of examples, by example."""
FIGURE_FILES = sorted((GOLDEN / "figures").iterdir())
_BEGIN = "`python -m tests.helpers.figures` writes this section; a test compares it with what is printed.\n"
_TABLE = "| file | published | Magus | |\n|---|---|---|---|\n"
PARTS_HEAD = "| of the papers | where | expected | shown |\n|---|---|---|---|\n"
PARTS: dict[str, tuple[str, ...]] = {
    "programs of work-groups (ASTRA-sim)": ("papers/programs", "papers/work_groups", "papers/mscclpp"),
    "networks, on chip and between GPUs (ASTRA-sim, ConCCL)": ("papers/astra_sim", "papers/conccl"),
    "polls, monitors, traffic of others (Eidola, SyncMon)": ("papers/eidola",),
    "copy engines (AMD-DMA-Latte, mori)": ("papers/dma_engines", "papers/gemm_ar_mi355x"),
    "schedules and their choice (FiCCO)": ("papers/ficco",),
    "chunks, tiles and SMs (Syncopate)": ("papers/syncopate",),
    "layers (Domino, async TP)": ("papers/layers",),
    "descriptions of machines (InfraGraph, ASTRA-sim)": ("papers/infragraph",),
    "whole traces (ASTRA-sim)": ("papers/trace",),
}
"""What the papers are about, and the examples that have it."""
COMMANDS_HEAD = "| command | has | Magus |\n|---|---|---|\n"
REPLAYED = ("examples/traces/llama70b_tp8.json",), tuple(f"examples/traces/uneven_tp8_{rank}.json" for rank in range(8))
SYSTEMS = ("on_torus", "on_rails", "on_fat_tree")
_STANDINGS = {"passed": "expected", "shown": "shown"}
_IN_PROSE = re.compile(r"`(\d[\d,.]*)( us| %| MiB)?`")


def printed(example: str) -> str:
    """Text that ``magus test`` prints of one example, such as ``papers/ficco``."""
    with chdir(ROOT), wrapped_to(80):
        done = magus("test", f"examples/{example}.mgs", "--workers", "1")
    assert done.exit_code == 0, done.output
    return done.stdout


def shown_in_page(example: str) -> str:
    """The same text as its page has it; empty if it has none."""
    pattern = rf"^### `{example}\.mgs`\n\n```text\n(.*?)```$"
    found = re.search(pattern, (DOCS / f"{PRINTED[example]}.md").read_text(), re.MULTILINE | re.DOTALL)
    return found.group(1) if found else ""


def compared(example: str) -> str:
    """Rows of the table of a paper: file, what is published, what Magus has, and whether that is expected or shown."""
    found: Any = document("test", ROOT / f"examples/{example}.mgs", "--workers", "1")
    rows = (
        (f"`{Path(example).name}`", each["published"], _has(each), _STANDINGS[each["standing"]])
        for each in found["files"][0]["statements"]
        if each["published"] is not None
    )
    return "".join(f"| {' | '.join(cell.replace('|', '') for cell in row)} |\n" for row in rows)


def _has(statement: dict[str, Any]) -> str:
    """What Magus has: the values, of a sweep those of its first and last point."""
    if statement["sweep"] is None:
        return _values(statement["values"])
    name, points = statement["sweep"]["param"], statement["sweep"]["points"]
    return "; ".join(f"{name} {each['setting']}: {_values(each['values'])}" for each in (points[0], points[-1]))


def _values(values: dict[str, Any]) -> str:
    def text(value: float | str, unit: str) -> str:
        return value if isinstance(value, str) else f"{value:.4g} {unit}".strip()

    return " against ".join(text(**each) for each in values.values())


def by_part() -> str:
    """Rows of the table of parts, from what the page says that was printed."""
    rows = []
    for part, names in PARTS.items():
        ends = [re.search(r"(\d+) passed, 0 failed, (\d+) shown\n$", shown_in_page(name)) for name in names]
        expected, shown = (sum(int(end[which]) for end in ends if end is not None) for which in (1, 2))
        files = ", ".join(f"`{Path(name).name}.mgs`" for name in names)
        rows.append(f"| {part} | {files} | {expected} | {shown} |\n")
    return "".join(rows)


def by_command() -> str:
    """Rows of the table of commands: steps of traces, and systems written as InfraGraph and read back."""
    rows = []
    for files in REPLAYED:
        found: Any = document("replay", *(ROOT / file for file in files), "--no-advise")
        shown = files[0] if len(files) == 1 else f"{files[0].rpartition('_')[0]}_*.json"
        measured, simulated = found["measured_us"], found["simulated_us"]
        kernels = sum(each["count"] for each in found["kernels"])
        has = f"a trace of {len(files)} rank{'s' * (len(files) > 1)}, {kernels} kernels: {measured:.1f} us"
        rows.append(f"| `magus replay {shown}` | {has} | {simulated:.1f} us, {simulated / measured - 1:+.1%} |\n")
    scenarios = compile_file(ROOT / "examples/four_systems.mgs")
    for name in SYSTEMS:
        case = scenarios.scenario(name).case
        text = imported(INFRAGRAPH.text([case], {}))[1]
        place = "cluster" if "system cluster" in text else "node"
        workload = f"workload w on {place} {{ x = tensor bf16[4096, 64] shard rows; y = all_gather(x) }}\n"
        ways, again = routes(case), routes(compile_text(text + workload).scenario().case)
        links = sum(again[ends][0] == way[0] for ends, way in ways.items())
        same = sum(again[ends] == way for ends, way in ways.items())
        command = f"magus export examples/four_systems.mgs --to infragraph --workload {name}"
        has = f"{case.num_ranks} GPUs, {len(ways)} routes"
        rows.append(f"| `{command}` | {has} | read back {links} as long, {same} with rate and latency |\n")
    return "".join(rows)


def rows_in_page(head: str) -> str:
    """The rows of a table of docs/papers.md."""
    return PAPERS_PAGE.read_text().partition(head)[2].partition("\n\n")[0] + "\n"


def compared_in_page() -> str:
    """All rows of that table as docs/papers.md has them."""
    return rows_in_page(_TABLE)


def figures_in_prose() -> list[str]:
    """The numbers in the font of code in the prose of docs/papers.md, which says that they are printed below."""
    prose, _, _ = PAPERS_PAGE.read_text().partition(_BEGIN)
    return [figure + unit for figure, unit in _IN_PROSE.findall(prose)]


def sentences(file: Path) -> Iterator[tuple[str, float]]:
    """Each sentence of a file of figures with ``{}`` for its figure, and the figure, in percent before ``%``."""
    found: Any = document("test", file, "--workers", "1")
    for statement in found["files"][0]["statements"]:
        (value,) = statement["values"].values()
        sentence = statement["published"]
        yield sentence, value["value"] * (100 if "{} %" in sentence and not value["unit"] else 1)


def pattern_of(sentence: str) -> re.Pattern[str]:
    """Pattern of a sentence wherever its page breaks lines, with its figure as the group."""
    before, after = (r"\s+".join(map(re.escape, part.split())) for part in sentence.split("{}"))
    spaces = [r"\s+" if part[-1:].isspace() or part[:1].isspace() else "" for part in sentence.split("{}")]
    return re.compile(before + spaces[0] + r"(-?\d[\d.]*)" + spaces[1] + after)


def as_written(number: float, written: str) -> str:
    """A number with as many decimals as ``written`` has."""
    return f"{number:.{len(written.partition('.')[2])}f}"


def write_tables(tables: dict[str, str]) -> None:
    """Write tables of docs/papers.md, each behind its head."""
    for head, rows in tables.items():
        before, _, after = PAPERS_PAGE.read_text().partition(head)
        PAPERS_PAGE.write_text(f"{before}{head}{rows}\n" + after.partition("\n\n")[2])


def write() -> None:
    """Write the printed text of all papers, and every figure, into their pages."""
    for name in dict.fromkeys(PRINTED.values()):
        page = DOCS / f"{name}.md"
        prose, begin, _ = page.read_text().partition(_BEGIN)
        examples = [each for each in PRINTED if PRINTED[each] == name]
        blocks = (f"\n### `{each}.mgs`\n\n```text\n{printed(each)}```\n" for each in examples)
        page.write_text(prose + begin + "".join(blocks))
    write_tables({_TABLE: "".join(map(compared, PAPERS)), PARTS_HEAD: by_part(), COMMANDS_HEAD: by_command()})
    for file in FIGURE_FILES:
        page = DOCS / f"{file.stem}.md"
        text = page.read_text()
        for sentence, number in sentences(file):
            (found,) = pattern_of(sentence).finditer(text)
            start, end = found.span(1)
            text = text[:start] + as_written(number, found.group(1)) + text[end:]
        page.write_text(text)


if __name__ == "__main__":
    write()
