"""Knobs and their rules: one knob for each thing that a choice says, and rules that read only what they name."""

from dataclasses import fields

from hypothesis import given
from hypothesis import strategies as st

from magus.compiler import compile_text
from magus.compiler.ir import ExecutionOptions, OpCase, OpChoice
from magus.compiler.planning.build import all_rules, expression_of
from magus.compiler.planning.knobs import KNOBS, ScheduleRequest, with_values
from magus.compiler.planning.knobs.base import CountValues
from magus.compiler.planning.knobs.engine import default_engine
from magus.compiler.planning.knobs.structure import CHUNKS, TEMPLATE
from magus.compiler.resolve.schedules.from_text import read_choice
from magus.compiler.templates import BY_NAME
from tests.helpers.marks import examples
from tests.helpers.scenarios.compiled import cases_in
from tests.helpers.some import some

TEXT = """use "nvidia/h100"
system s { gpus 4 x H100; fabric switch(nvswitch, link=nvlink) }
system r { gpus 3 x H100; fabric ring(nvlink) }
workload up on s {
  x = tensor bf16[1024, 1024] shard rows; w = tensor bf16[1024, 2048] shard cols
  y = gemm(all_gather(x), w)
}
workload down on r {
  x = tensor bf16[1536, 1536] shard cols; w = tensor bf16[1536, 2048] shard rows
  y = all_reduce(gemm(x, w))
}
workload sum on s { x = tensor bf16[1024, 1024]; y = reduce_scatter(x) }
workload uneven on s {
  x = tensor bf16[1024, 1024]; w = tensor bf16[1024, 2048] shard cols
  y = gemm(all_to_all(x, rows=[128, 512, 64, 320]), w)
}
workload alone on s { x = tensor bf16[1024, 1024]; w = tensor bf16[1024, 2048] shard cols; y = gemm(x, w) }
"""
SCENARIOS = cases_in(compile_text(TEXT))
# Engines and parts are drawn as texts; all other knobs as their words and small counts.
ENGINES = ("dma(1)", "dma(2)", "dma(3, prelaunched)", "sm(8)", "sm(16, shared)")


@st.composite
def choices(draw: st.DrawFn, scenario: OpCase) -> OpChoice:
    """Values of all knobs but those of ``bespoke``, legal or not."""
    engine = read_choice(scenario, f"serial(engine={draw(st.sampled_from(ENGINES))})").engine
    fitting = [template.name for template in BY_NAME.values() if scenario.shape.pattern in template.patterns]
    values = {TEMPLATE: draw(st.sampled_from(fitting))}
    for knob in KNOBS:
        if isinstance(knob.values, CountValues):
            counts = (3, 4, 8, 12, 16, 64) if knob is CHUNKS else (knob.usual, 1, 2, 4)
            values[knob] = draw(st.sampled_from(counts))
        elif knob.words and knob is not TEMPLATE:
            values[knob] = draw(st.sampled_from((knob.usual, *knob.every())))
    return with_values(OpChoice(TEMPLATE.usual, scenario.num_ranks, engine), values)


@given(data=st.data(), scenario=st.sampled_from(SCENARIOS))
@examples(100, deep=3000)
def test_a_rule_reads_the_knobs_that_it_names_and_no_others(data: st.DataObject, scenario: OpCase) -> None:
    choice = data.draw(choices(scenario))
    by_word = {knob.word: knob for knob in KNOBS}

    for rule in some(all_rules()):
        usual = OpChoice(choice.template, scenario.num_ranks, default_engine(scenario.system))
        read = {by_word[word]: by_word[word].of(choice) for word in rule.knobs}
        alone = rule.reject(ScheduleRequest(scenario, with_values(usual, read)))
        assert rule.reject(ScheduleRequest(scenario, choice)) == alone, rule.knobs


def test_every_field_of_a_choice_is_one_knob() -> None:
    own = [knob.field for knob in KNOBS if not knob.option]
    options = [knob.field for knob in KNOBS if knob.option]

    assert sorted(own) == sorted(field.name for field in fields(OpChoice) if field.name != "tactics")
    assert options == [field.name for field in fields(ExecutionOptions)]


@given(data=st.data(), scenario=st.sampled_from(SCENARIOS[:2]))
@examples(60)
def test_what_a_template_takes_is_printed_and_read_again(data: st.DataObject, scenario: OpCase) -> None:
    drawn = data.draw(choices(scenario))
    template = BY_NAME[drawn.template]
    lacking = {knob: knob.usual for knob in KNOBS if not knob.has(template)} | {CHUNKS: drawn.chunks}
    choice = with_values(drawn, lacking if template.cuts_shards else lacking | {CHUNKS: scenario.num_ranks})

    assert read_choice(scenario, expression_of(choice)) == choice
