"""The workload as a template sees it, with the copies and sums that the switch of a system can make."""

from dataclasses import replace

from ..codes import Code
from ..ir import Choice, Pattern, Rejection, Scenario, System, cutting_of, inner_size, tile_cols
from ..templates import BY_NAME, Cut, Template
from ..templates.base import TemplateInput


def reject_reach(system: System, *, sums: bool) -> Rejection | None:
    """Why the fabric cannot copy to all ranks, or sum what all ranks hold; None if it can."""
    switch, word = system.fabric.one_switch, "reduces" if sums else "multicast"
    what = "sums what all ranks hold" if sums else "copies to all ranks at once"
    if switch is None:
        return Rejection(Code.MGS409, f"no switch of {system.name} {what}", "this needs fabric switch(...)")
    if not (switch.reduces if sums else switch.multicast):
        return Rejection(
            Code.MGS409, f"switch {switch.name} is not one that {what}", f"its profile says so: {word} yes"
        )
    return None


def template_input(scenario: Scenario, choice: Choice) -> TemplateInput:
    """The workload of ``scenario`` as the template of ``choice`` sees it; of two kernels the second is in ``then``."""
    if scenario.workload.then is not None:
        first, then = (template_input(stage, choice) for stage in scenario.stages)
        return replace(first, then=then)
    workload, n = scenario.workload, scenario.num_ranks
    moved, gemm, alone = workload.moved, workload.gemm, workload.pattern is Pattern.KERNEL
    rows = moved.rows if moved is not None else gemm.m if gemm is not None else 0
    return TemplateInput(
        pattern=workload.pattern,
        num_ranks=1 if workload.pattern in (Pattern.GEMM, Pattern.KERNEL) else n,
        shard_rows=rows // (n if moved is not None else 1),
        cols=moved.cols if moved is not None else 0,
        inner=0 if alone else inner_size(workload),
        output_cols=0 if alone else tile_cols(workload),
        pieces=pieces_of(choice.chunks, n, BY_NAME[choice.template]),
        streams=choice.streams,
        output_rows=gemm.m if gemm is not None else 0,
        algorithm=choice.algorithm,
        tactics=choice.tactics,
        engine=choice.engine.kind,
        by_tiles=choice.engine.by_tiles,
        split=workload.split,
        loads=workload.loads,
        rank=workload.rank,
        node=scenario.system.fabric.node_size,
        multicast=reject_reach(scenario.system, sums=False) is None,
        reduces=reject_reach(scenario.system, sums=True) is None,
        cutting=cutting_of(workload),
        parts=choice.parts,
        slices=choice.slices,
        columns=choice.columns,
        lanes=choice.lanes,
        order=choice.order,
        depth=choice.depth,
        waves=choice.waves,
        sums=choice.sums,
    )


def pieces_of(chunks: int, num_ranks: int, template: Template) -> int:
    """Chunks per shard; ``chunks`` counts pieces of the whole tensor."""
    return 1 if template.cut is Cut.SHARD else chunks // num_ranks
