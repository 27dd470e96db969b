"""From the options of its ops to joint schedules of a workload: CP-SAT places them, a Schedule says the same."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from ...compiler.ir import HandOff, Made, Op, OpMode, Read, Schedule, ShouldStop, Workload
from ...compiler.ir.stopping import never
from ...compiler.planning.parts import collective_name
from .options import OpOption

if TYPE_CHECKING:
    from ..solver.layer_model import LayerProblem, NeededBy, Placement
    from .joint import LayerSpace


LIMIT_S = 0.7
"""Deterministic seconds of the solver: two batches of 27 ops are solved to optimality in 0.6, and of 26 ops with
experts in 58 layers nothing better is found in 1.5."""
QUICK_LIMIT_S = 0.15
"""The same of a quick answer: most placements are found in 0.1, and the rest of the time goes into proofs."""

MANY_LAYERS = 8
"""Layers from which on the period counts, and not what comes before the first whole one and behind the last."""

UNLIKE = 1.002
"""Placements are simulated whose times in the model differ by this factor."""

NUM_PLACED = 4
"""Placements of one problem that are simulated, the best in the model first."""


def placed_choices(
    space: "LayerSpace",
    *,
    name: str,
    layers: int,
    spans_layers: bool = True,
    limit: float = LIMIT_S,
    should_stop: ShouldStop = never,
) -> tuple[Schedule, ...]:
    """Return the joint schedules that the solver finds, the best in its model first; maybe none.

    Of layers that repeat so many ``layers`` are placed; many kernels of one may run among those of the next where that
    ``spans_layers``. Collectives are as fast as they can be: the solver does not know what copies cost kernels, nor
    what is cut along a pair.
    """
    from ..solver.layer_model import place_layer

    workload, op_options = space.workload, dict[str, Sequence[OpOption]]()
    for op, options in space.op_options.items():
        op_options[op] = tuple(option for option in options if not option.is_paced and not option.is_for_next)
    problem = replace(_problem(workload, op_options, layers), spans_layers=spans_layers and layers >= MANY_LAYERS)
    placements, _ = place_layer(problem, seed=0, limit=limit, should_stop=should_stop)
    placed = partial(_choice, workload, op_options, name=name, spans_layers=problem.spans_layers)
    choices = (replace(placed(placement), batches=space.cut.batches) for placement in _unlike(placements))
    return tuple(dict.fromkeys(choices))[:NUM_PLACED]


def _unlike(placements: "Sequence[Placement]") -> "Iterator[Placement]":
    """Those that differ in time: the solver finds many that are a little better than the one before."""
    last = None
    for placement in placements:
        if last is None or placement.time > last * UNLIKE:
            last = placement.time
            yield placement


def _problem(workload: Workload, op_options: Mapping[str, Sequence[OpOption]], layers: int) -> "LayerProblem":
    from ..solver.layer_model import TICKS, LayerOp, LayerProblem, OptionTimes

    index = {op.name: number for number, op in enumerate(workload.ops)}

    def times(option: OpOption, alone: int) -> OptionTimes:
        begin, end = (ticks // TICKS for ticks in option.copies)
        share = (
            100
            if option.is_separate or not option.kernel
            else min(100, -(-100 * alone // max(1, option.copies[1] - option.copies[0])))
        )
        return OptionTimes(
            -(-option.total // TICKS), -(-option.kernel // TICKS), (begin, end), option.is_separate, share
        )

    ops = []
    for op in workload.ops:
        of = op_options[op.name]
        separate = next((option for option in of if option.is_separate), None)
        alone = separate.copies[1] if separate is not None else 0
        needs = tuple(_need(workload, index, read, op) for read in op.reads if _maker(workload, read))
        ops.append(
            LayerOp(
                tuple(times(option, alone) for option in of),
                not op.shape.is_collective,
                op.shape.moved is not None,
                op.shape.pattern.produces,
                needs,
            )
        )
    return LayerProblem(tuple(ops), min(layers, workload.num_layers), (0,) * len(ops))


def _maker(workload: Workload, read: Read) -> tuple[str, Made, bool] | None:
    """The op that makes what is read, what of it, and whether that of the layer before."""
    if read.made_by:
        return read.made_by, read.what, False
    carried = {} if workload.repeat is None else workload.repeat.carried
    if read.tensor not in carried:
        return None
    op, what = next((op, what) for tensor, op, what in workload.results if tensor == carried[read.tensor])
    return op, what, True


def _need(workload: Workload, index: Mapping[str, int], read: Read, op: Op) -> "NeededBy":
    from ..solver.layer_model import NeededBy

    found = _maker(workload, read)
    assert found is not None, "the caller asks for what is made"
    maker, what, carried = found
    return NeededBy(index[maker], what is Made.MOVED, read.moves, carried)


def _choice(
    workload: Workload,
    op_options: Mapping[str, Sequence[OpOption]],
    placement: "Placement",
    name: str,
    *,
    spans_layers: bool,
) -> Schedule:
    """What a placement says, as a schedule: modes, the order of kernels, and what begins with which kernel."""
    chosen = {
        op.name: op_options[op.name][placed.option] for op, placed in zip(workload.ops, placement.ops, strict=True)
    }
    kernels = {op.name: placed.kernel for op, placed in zip(workload.ops, placement.ops, strict=True)}
    begins = {op.name: placed.copies for op, placed in zip(workload.ops, placement.ops, strict=True)}
    places = {op.name: place for place, op in enumerate(workload.ops)}
    units = [(kernels[op.name], places[op.name], op.name) for op in workload.ops]
    units += [
        (begins[op.name], places[op.name], collective_name(op)) for op in workload.ops if chosen[op.name].is_separate
    ]
    period = placement.next_begin - placement.begin
    deferred_units = {unit for begin, _, unit in units if spans_layers and begin >= placement.next_begin}
    order = [
        unit
        for _, _, unit in sorted(
            (begin - period * (unit in deferred_units), place, unit) for begin, place, unit in units
        )
    ]
    modes = tuple(option.mode for option in chosen.values() if option.mode != OpMode(option.mode.op))
    computing = [op.name for op in workload.ops if not op.shape.is_collective and op.name not in deferred_units]
    started_with = []
    for op in workload.ops:
        if is_free(op) and op.shape.is_collective and op.name not in deferred_units:
            kernel = _kernel_to_start_with(workload, op, begins[op.name], {each: kernels[each] for each in computing})
            if kernel:
                started_with.append((op.name, kernel))
                order.remove(op.name)
                order.insert(order.index(kernel) + 1, op.name)
    return Schedule(
        name,
        modes,
        tuple(order),
        (),
        tuple(started_with),
        (),
        sums_first=True,
        deferred=tuple(unit for unit in order if unit in deferred_units),
    )


def _kernel_to_start_with(workload: Workload, op: Op, begin: int, kernels: Mapping[str, int]) -> str:
    """The kernel with which a collective begins that is placed at ``begin``; empty where it comes before all.

    The next one to begin, when the links are free; but before the kernels that need what is moved the one before.
    """
    readers = {each.name for each in workload.ops if any(read.made_by == op.name for read in each.reads)}
    first = min((kernels[name] for name in readers if name in kernels), default=0)
    after = [name for name in kernels if begin <= kernels[name] < first]
    before = [name for name in kernels if kernels[name] <= begin and name not in readers]
    soon = min(after, key=kernels.__getitem__, default="")
    if soon and (kernels[soon] - begin) * 2 < first - begin:
        return soon
    return max(before, key=kernels.__getitem__, default="")


def is_free(op: Op) -> bool:
    """Whether an op reads nothing that others make."""
    return not any(read.made_by for read in op.reads)


def leaves(workload: Workload) -> Iterator[str]:
    """Kernels whose results no op reads, nor the next layer: what may run whenever SMs are free."""
    read = {each.made_by for op in workload.ops for each in op.reads}
    carried = set() if workload.repeat is None else set(workload.repeat.carried.values())
    kept = {op for tensor, op, _ in workload.results if tensor in carried}
    for op in workload.ops:
        if op.name not in read and op.name not in kept and op.shape.moved is None:
            yield op.name


MOST_AHEAD = 2
"""Layers that collectives of declared tensors are at most ahead: more hold memory and hide no more."""


def small_changes(
    workload: Workload,
    op_options: Mapping[str, Sequence[OpOption]],
    following: Mapping[str, Sequence[str]],
    choice: Schedule,
) -> Iterator[Schedule]:
    """Yield schedules that differ from ``choice`` in one decision; ``following`` may be cut along pairs.

    The order of ``choice`` lists all ops. A change may be one that cannot be carried out.
    """
    for changed in (*_op_options(workload, op_options, choice), *_chained_or_not(following, choice)):
        yield _cut(following, changed)
    yield from _fillers(workload, choice)
    yield from _starting_with(workload, choice)
    yield from _priorities(workload, choice)
    yield from _ahead(workload, choice)
    yield from _swaps(choice)


def with_other_handoff(choice: Schedule) -> Schedule:
    """The same with ops that wait for rows that they take, or for all that they read. Estimates know no hand-offs."""
    return replace(choice, handoff=HandOff.CHUNKS if choice.handoff is HandOff.WHOLE else HandOff.WHOLE)


def with_option(choice: Schedule, op: Op, option: OpOption) -> Schedule:
    """Return ``choice`` with one op carried out in that way; a collective that is no part any more leaves the order."""
    modes = {mode.op: mode for mode in choice.modes} | {op.name: option.mode}
    order, deferred_units = choice.order, choice.deferred
    if not option.is_separate and op.is_pair:
        order, deferred_units = (
            tuple(name for name in names if name != collective_name(op)) for names in (order, deferred_units)
        )
    modes_said = tuple(mode for mode in modes.values() if mode != OpMode(mode.op))
    return replace(choice, modes=modes_said, order=order, deferred=deferred_units)


def _op_options(
    workload: Workload, op_options: Mapping[str, Sequence[OpOption]], choice: Schedule
) -> Iterator[Schedule]:
    """Each op in each other option."""
    chosen = {mode.op: mode for mode in choice.modes}
    for op in workload.ops:
        for option in op_options[op.name]:
            if len(op_options[op.name]) > 1 and option.mode != chosen.get(op.name):
                yield with_option(choice, op, option)


def _chained_or_not(following: Mapping[str, Sequence[str]], choice: Schedule) -> Iterator[Schedule]:
    """Yield schedules with one GEMM more or fewer chained to the pair before it."""
    for name in chain.from_iterable(following.values()):
        chained_ops = tuple(each for each in choice.chained if each != name)
        yield replace(choice, chained=chained_ops if name in choice.chained else (*chained_ops, name))


def _cut(following: Mapping[str, Sequence[str]], choice: Schedule) -> Schedule:
    """``choice`` without GEMMs along pairs that are not cut."""
    cut = {mode.op for mode in choice.modes if mode.body is not None}
    may = {name for pair, names in following.items() if pair in cut for name in names}
    return replace(choice, chained=tuple(name for name in choice.chained if name in may))


def other_paces(
    workload: Workload, op_options: Mapping[str, Sequence[OpOption]], choice: Schedule
) -> Iterator[Schedule]:
    """Each collective that is a part of its own, at each lower rate."""
    chosen = {mode.op: mode for mode in choice.modes}
    for op in workload.ops:
        mode = chosen.get(op.name)
        if mode is not None and any(option.is_whole and option.mode == mode for option in op_options[op.name]):
            yield from (
                with_option(choice, op, option)
                for option in op_options[op.name]
                if option.is_paced and option.mode != mode
            )


def _fillers(workload: Workload, choice: Schedule) -> Iterator[Schedule]:
    """Each kernel that nothing waits for, at each other place."""
    for name in leaves(workload):
        rest = [each for each in choice.order if each != name]
        for place in range(len(rest) + 1):
            order = (*rest[:place], name, *rest[place:])
            if order != choice.order:
                yield replace(choice, order=order)


def _starting_with(workload: Workload, choice: Schedule) -> Iterator[Schedule]:
    """Yield schedules in which a collective that waits for nothing starts with another kernel, or behind all before."""
    kernels = [op.name for op in workload.ops if not op.shape.is_collective]
    started_with = dict(choice.starts_with)
    for op in workload.ops:
        if op.shape.is_collective and is_free(op):
            for kernel in kernels:
                if started_with.get(op.name) != kernel:
                    yield replace(choice, starts_with=tuple((started_with | {op.name: kernel}).items()))
            if op.name in started_with:
                without = tuple((name, kernel) for name, kernel in choice.starts_with if name != op.name)
                yield replace(choice, starts_with=without)


def _priorities(workload: Workload, choice: Schedule) -> Iterator[Schedule]:
    """Sums first or not, and each kernel that nothing waits for last or not."""
    yield replace(choice, sums_first=not choice.sums_first)
    for name in leaves(workload):
        low = tuple(each for each in choice.low if each != name) if name in choice.low else (*choice.low, name)
        yield replace(choice, low=low)


def _ahead(workload: Workload, choice: Schedule) -> Iterator[Schedule]:
    """What is brought of declared tensors a layer earlier, or later."""
    if brings_ahead(workload):
        for layers_ahead in {max(0, choice.prefetch - 1), min(MOST_AHEAD, choice.prefetch + 1)} - {choice.prefetch}:
            yield replace(choice, prefetch=layers_ahead, starts_with=() if layers_ahead else choice.starts_with)


def brings_ahead(workload: Workload) -> bool:
    """Whether layers repeat that begin with collectives of declared tensors, such as weights."""
    carried = {} if workload.repeat is None else workload.repeat.carried
    return workload.repeat is not None and any(
        op.shape.is_collective and is_free(op) and not any(read.tensor in carried for read in op.reads)
        for op in workload.ops
    )


def _swaps(choice: Schedule) -> Iterator[Schedule]:
    """Each two neighbours of the order the other way round."""
    order = choice.order
    for place in range(len(order) - 1):
        swapped = (*order[:place], order[place + 1], order[place], *order[place + 2 :])
        yield replace(choice, order=swapped)
