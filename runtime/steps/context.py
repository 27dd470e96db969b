"""Passes of a pipeline, group by group, and what ranks with parts of the same sequences take of each other.

A pass is carried out up to its attention by the ranks of each part. Keys and values of the other parts then come by the
plans of the exchange, what they add to attention is added, and the rest of the pass follows.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import numpy as np

from ..memory import Array
from ..operands import MODULUS
from ..problem import mixture
from .work import GroupWork, KeyExchange, LayerWork, Values

Carry = Callable[[GroupWork, Values, Iterable[str]], Values]
"""Carries a plan out with given numbers, and returns the results that are wanted."""
_MOVED = "x"


def attended(seed: int, of: KeyExchange, made: Array, blocks: Sequence[Array], own: int) -> Array:
    """Return what attention of a part makes, with what the ``blocks`` of the other parts add."""
    where = np.arange(made.shape[0]), np.arange(made.shape[1])
    others = [
        mixture(seed, f"{of.op} of part {own}, block {number}", [block], *where, by_rows=False)
        for number, block in enumerate(blocks)
        if number != own
    ]
    return np.asarray(sum(others, made) % MODULUS)


def gradient_of_block(seed: int, of: KeyExchange, back: Array, own: int, number: int) -> Array:
    """Return what a part adds to the gradient of the keys and values of another one, from the gradient ``back``."""
    name = f"{of.op} of part {own}, gradient of block {number}"
    return mixture(seed, name, [back], np.arange(len(back)), np.arange(of.cols), by_rows=False) % MODULUS


def keys_of(of: KeyExchange, operands: Iterable[Array]) -> Array:
    """Return keys and values of the ``operands`` of attention on one rank."""
    return np.concatenate(list(operands), axis=1)[:, -of.cols :]


def with_gradient(of: KeyExchange, made: Array, gradient: Array) -> Array:
    """Return gradients of a part with what other parts add to those of its keys and values."""
    found = made.copy()
    found[:, -of.cols :] += gradient
    return np.asarray(found % MODULUS)


def carried_out(
    kind: LayerWork, work: GroupWork, given: Values, wanted: Iterable[str], seed: int, carry: Carry
) -> Values:
    """Carry a pass of a layer out on all ranks of a pipeline, with the numbers ``given`` of each, by place."""
    of, wanted = work.exchange, list(wanted)
    if of is None:
        return _by_group(kind, work, given, wanted, carry)
    needed = {*wanted, *of.operands, of.gradient, of.made, *(read.tensor for read in of.rest.workload.declared_reads)}
    between = [name for name, _, _ in of.first.workload.results if name in needed]
    found = _by_group(kind, of.first, given, between, carry)
    known = {**given, **{name: tuple(part % MODULUS for part in found[name]) for name in between}}
    made = list(known[of.made])
    for places in kind.contexts:
        own = [{name: parts[place] for name, parts in known.items()} for place in places]
        for place, values in zip(places, _exchanged(of, own, seed, carry), strict=True):
            made[place] = values
    known[of.made] = tuple(made)
    later = [name for name in wanted if name not in between]
    rest = carried_out(kind, of.rest, known, later, seed, carry) if later else {}
    return {name: known[name] for name in wanted if name in between} | rest


def arriving(
    kind: LayerWork, values: Sequence[Array], send: GroupWork, rejoin: GroupWork | None, carry: Carry
) -> list[Array]:
    """Return what arrives of the ``values`` of each rank of a pipeline: with ``rejoin`` parts, which groups gather."""
    leaves, index = list(values), {place: number for group in kind.groups for number, place in enumerate(group)}
    if rejoin is not None:
        leaves = [np.split(whole, len(kind.groups[0]))[index[place]] for place, whole in enumerate(values)]
    arrived = [carry(send, {_MOVED: (part, part)}, [""])[""][1] for part in leaves]
    if rejoin is None:
        return arrived
    whole = list(values)
    for group in kind.groups:
        parts = tuple(arrived[place].reshape(1, -1) for place in group)
        for place, made in zip(group, carry(rejoin, {_MOVED: parts}, [""])[""], strict=True):
            whole[place] = made.reshape(values[place].shape)
    return whole


def _by_group(kind: LayerWork, work: GroupWork, given: Values, wanted: Iterable[str], carry: Carry) -> Values:
    """The same, of a pass in which no group takes anything of another one."""
    made: dict[str, dict[int, Array]] = {name: {} for name in wanted}
    for group in kind.groups:
        found = carry(work, {name: tuple(parts[place] for place in group) for name, parts in given.items()}, made)
        for name, parts in found.items():
            made[name] |= zip(group, parts, strict=True)
    return {name: tuple(parts[place] for place in sorted(parts)) for name, parts in made.items()}


def _exchanged(of: KeyExchange, known: Sequence[Mapping[str, Array]], seed: int, carry: Carry) -> list[Array]:
    """What attention of each part makes in the end, of the ranks at one place of their groups."""
    keys = [keys_of(of, (each[name] for name in of.operands)) for each in known]
    shift = partial(_shifted, of, carry=carry)
    blocks = _in_turn(keys, shift) if of.is_ring else _gathered(of, keys, carry)
    made = [attended(seed, of, each[of.made], blocks[own], own) for own, each in enumerate(known)]
    if not of.gradient:
        return made
    gradient = partial(gradient_of_block, seed, of)
    backs, parts = [each[of.gradient] for each in known], range(len(known))
    if of.is_ring:  # they go with their block, and one neighbour further at the end
        home = [np.zeros_like(each) for each in keys]
        for hop in parts[1:]:
            home = shift(home) if hop > 1 else home
            own = [gradient(backs[part], part, (part - hop) % len(parts)) for part in parts]
            home = [(old + new) % MODULUS for old, new in zip(home, own, strict=True)]
        home = shift(home)
    else:
        zero = np.zeros_like(keys[0])
        all_of = [[zero if part == to else gradient(backs[part], part, to) for to in parts] for part in parts]
        assert of.scatter is not None, "gradients are scattered"
        stacked = tuple(np.stack([each.ravel() for each in row]) for row in all_of)
        home = [each.reshape(keys[0].shape) for each in carry(of.scatter, {_MOVED: stacked}, [""])[""]]
    return [with_gradient(of, *each) for each in zip(made, home, strict=True)]


def _gathered(of: KeyExchange, keys: Sequence[Array], carry: Carry) -> list[list[Array]]:
    """The blocks of all parts, as each part gets them."""
    found = carry(of.gather, {_MOVED: tuple(each.reshape(1, -1) for each in keys)}, [""])[""]
    return [[block.reshape(keys[0].shape) for block in each] for each in found]


def _in_turn(keys: Sequence[Array], shift: Callable[[Sequence[Array]], list[Array]]) -> list[list[Array]]:
    """The same, block by block from neighbour to neighbour."""
    parts, here = range(len(keys)), list(keys)
    found = [[block] * len(keys) for block in keys]
    for hop in parts[1:]:
        here = shift(here)
        for part in parts:
            found[part][(part - hop) % len(keys)] = here[part]
    return found


def _shifted(of: KeyExchange, values: Sequence[Array], *, carry: Carry) -> list[Array]:
    """What each part has once all have sent theirs to the next one."""
    found = list[Array]()
    for part in range(len(values)):
        pair = tuple(values[each].reshape(1, -1) for each in (part - 1, part))
        found.append(carry(of.gather, {_MOVED: pair}, [""])[""][1][0].reshape(values[part].shape))
    return found
