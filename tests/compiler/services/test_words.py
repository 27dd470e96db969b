"""The list of words: it has every word that the compiler takes at a place, and no other."""

import pytest

from magus.compiler.collectives import ALGORITHM_BY_NAME
from magus.compiler.ir import (
    TYPES_WITH_CONSTANTS,
    Arbitration,
    DType,
    EngineKind,
    EngineMode,
    Metric,
    Origin,
    PeerOrder,
    TransferPath,
)
from magus.compiler.ir.operations import OPERATIONS
from magus.compiler.ir.step import KEEP_ALL, KEEP_LEAST, ContextKind, Overlapped, PipelineKind
from magus.compiler.ir.topologies import TOPOLOGIES
from magus.compiler.outline import outline
from magus.compiler.planning.build import OPTIONS
from magus.compiler.planning.knobs import KNOBS
from magus.compiler.resolve.expect.statements import SHAPES
from magus.compiler.resolve.expect.terms import ABOUT_SCHEDULES, OF_SWEEPS
from magus.compiler.resolve.schedules.implementation import PATTERN_WORDS
from magus.compiler.services.expected import property_of
from magus.compiler.templates import BY_NAME
from magus.compiler.text import vocabulary as words
from magus.compiler.text.parsing.parse import HEADS
from magus.compiler.text.parsing.tokens import DECLARATIONS, HEAD_WORDS
from magus.grammar import load_words

LISTED = load_words()
TEMPLATES = {name for name in BY_NAME if name not in ALGORITHM_BY_NAME}
HEADS_OF_BLOCKS = {word for each in HEAD_WORDS.values() for word in each}
SECTIONS: dict[str, set[str]] = {
    "file": set(DECLARATIONS),
    "head": HEADS_OF_BLOCKS | {"in"},
    "gpu": set(words.GPU_WORDS),
    "cache": set(words.CACHES),
    "gpu.cache": {each.name for each in words.CACHE_NUMBERS} | {"per", "source"},
    "link": {each.name for each in words.LINK_NUMBERS} | {*words.LINK_LISTS, *words.LINK_CHOICES, "source"},
    "switch": {each.name for each in words.SWITCH_NUMBERS} | {*words.SWITCH_CHOICES, "source"},
    "implementation": {"source", "gpus", "dtypes", "experts", "stack", *PATTERN_WORDS},
    "kernel": set(words.KERNEL_WORDS),
    "kernel.program": set(words.PROGRAM_WORDS),
    "program.clause": set(words.PROGRAM_CLAUSES),
    "program.buffer": set(words.PROGRAM_BUFFERS),
    "program.number": set(words.PROGRAM_NUMBERS),
    "kernel.arbitration": {each.value for each in Arbitration},
    **{f"kernel.{word}": set(known) for word, known in words.KERNEL_LOOPS.items()},
    "experts": {each.name for each in words.EXPERTS_NUMBERS} | {"source"},
    "stack": {each.name for each in words.STACK_NUMBERS} | {*words.STACK_CHOICES, "source"},
    "method": {each.name for each in words.METHOD_NUMBERS}
    | {"source", "schedule", "path", "sends", "tiles", "gpus", "dtypes", *words.METHOD_SIZES},
    "path": {path.value for path in TransferPath},
    "system": set(words.SYSTEM_WORDS),
    "variability": set(words.VARIABILITY_WORDS),
    "traffic": set(words.TRAFFIC_WORDS),
    "topology": {each.name for each in TOPOLOGIES},
    "topology.argument": {one.name for each in TOPOLOGIES for one in each.arguments},
    "workload": set(words.WORKLOAD_WORDS),
    "workload.step": set(words.STEP_WORDS) - {"about"},
    "schedule.step": set(words.STEP_SCHEDULE_WORDS),
    "explore.step": set(words.STEP_EXPLORE_WORDS),
    "pipeline": {kind.value for kind in PipelineKind},
    "step.traffic": {each.value for each in Overlapped},
    "step.context": {each.value for each in ContextKind},
    "step.keep": {KEEP_ALL, KEEP_LEAST},
    "tensor": set(words.TENSOR_WORDS),
    "dtype": {each.value for each in DType},
    "operation": {each.name for each in OPERATIONS},
    "operation.argument": {one.name for each in OPERATIONS for one in each.arguments},
    "template": TEMPLATES,
    "algorithm": set(ALGORITHM_BY_NAME),
    "knob": {knob.word for knob in KNOBS},
    "engine": {kind.value for kind in EngineKind},
    "engine.mode": {mode.value for mode in EngineMode if mode.value},
    **{f"value.{word}": set(knob.words) for word, knob in OPTIONS.items() if knob.words},
    "value.order": {order.value for order in PeerOrder},
    "outline": set(outline.WORDS),
    "graph": set(words.SCHEDULE_WORDS),
    "step": set(words.PLAN_ACTIONS),
    "clause": {clause for clauses in words.PLAN_CLAUSES.values() for clause in clauses},
    "explore.minimize": set(words.OBJECTIVES),
    "expect.schedule": set(words.ALWAYS_THERE),
    "expect.shape": {*SHAPES, "r2", "inside"},
    "expect.function": {*ABOUT_SCHEDULES, *OF_SWEEPS},
    "metric": {metric.value for metric in Metric},
    "origin": {origin.value for origin in Origin},
}
BLOCKS = {
    **{f"gpu.{block}": numbers for block, numbers in words.GPU_BLOCKS.items()},
    **{f"gpu.{block}.type": numbers for block, numbers in words.TYPE_BLOCKS.items()},
    **{f"gpu.collectives.{part}".rstrip("."): numbers for part, numbers in words.COLLECTIVES.items()},
}
EXTRA = {
    "gpu.gemm": {"tiles", "pair_tiles", "calibrated", *TYPES_WITH_CONSTANTS},
    "gpu.gemm.type": {"calibrated"},
    "gpu.grouped": set(TYPES_WITH_CONSTANTS),
    "gpu.sm_copy": {"calibrated"},
    "gpu.collectives": {"calibrated", *filter(None, words.COLLECTIVES)},
}


@pytest.mark.parametrize("section", SECTIONS)
def test_a_section_has_the_words_of_its_place(section: str) -> None:
    assert set(LISTED[section]) == SECTIONS[section]


@pytest.mark.parametrize("section", BLOCKS)
def test_a_block_of_a_gpu_has_its_numbers(section: str) -> None:
    numbers = {each.name for each in BLOCKS[section]}

    assert set(LISTED[section]) == numbers | EXTRA.get(section, set()) | {"source"}
    assert all(property_of(section, name) is not None for name in numbers)


def test_every_keyword_of_the_grammar_is_in_the_list() -> None:
    assert set(HEADS) == set(LISTED["file"]), "each declaration has its example too"


def test_every_word_has_one_line() -> None:
    said = [doc for section in LISTED.values() for doc in section.values()]

    assert len(said) > 300
    assert all(doc and "\n" not in doc and not doc.endswith(".") and len(doc) < 140 for doc in said)
    assert all(doc.count("`") % 2 == 0 for doc in said), "what is quoted ends"
