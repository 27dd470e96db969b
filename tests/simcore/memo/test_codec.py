"""Values as JSON and back: what comes back is equal, and what is no value of the type is refused."""

from dataclasses import dataclass
from enum import Enum, IntEnum
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from magus.simcore.memo.codec import MalformedError, decode, encode


class Colour(Enum):
    RED = "#f00"
    BLUE = "#00f"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Pair(NamedTuple):
    left: int
    right: str


@dataclass(frozen=True, slots=True)
class Empty:
    pass


@dataclass(frozen=True, slots=True)
class Leaf:
    count: int
    name: str


@dataclass(frozen=True, slots=True)
class Tree:
    leaves: tuple[Leaf, ...]
    either: Leaf | Colour | Empty | None
    ratio: Fraction | float
    colour: Colour
    level: Level
    pair: Pair
    range: tuple[int, bool]
    share: float | None = None


LEAVES = st.builds(Leaf, st.integers(), st.text())
TREES = st.builds(
    Tree,
    st.lists(LEAVES, max_size=3).map(tuple),
    LEAVES | st.sampled_from(Colour) | st.builds(Empty) | st.none(),
    st.fractions() | st.floats(allow_nan=False) | st.integers(),
    st.sampled_from(Colour),
    st.sampled_from(Level),
    st.builds(Pair, st.integers(), st.text()),
    st.tuples(st.integers(), st.booleans()),
    st.none() | st.floats(allow_nan=False),
)
TREE = Tree((Leaf(1, "a"),), Leaf(2, "b"), Fraction(1, 3), Colour.RED, Level.LOW, Pair(1, "x"), (3, True), 0.1)


@given(TREES)
def test_what_is_read_is_what_was_written(tree: Tree) -> None:
    read = decode(encode(tree), Tree)

    assert read == tree
    assert repr(read) == repr(tree)


def test_what_is_given_is_left_out_and_comes_back_as_it_is() -> None:
    data = encode(TREE, TREE.leaves)

    assert b'[[{"given":0}]' in data.replace(b'["Tree",', b"[")
    assert decode(data, Tree, TREE.leaves) == TREE
    assert decode(data, Tree, TREE.leaves).leaves[0] is TREE.leaves[0]
    for others in ((), (Colour.RED,)):
        with pytest.raises(MalformedError):
            decode(data, Tree, others)


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        (b'"Tree"', b'"Leaf"'),
        (b'["Leaf",1,"a"]', b'["Leaf",1]'),
        (b'["Leaf",1,"a"]', b'["Leaf",1,"a",2]'),
        (b'["Leaf",1,"a"]', b'["Leaf",1.0,"a"]'),
        (b'["Leaf",1,"a"]', b'["Leaf",true,"a"]'),
        (b'["Leaf",1,"a"]', b'["Leaf","a","a"]'),
        (b'["Leaf",1,"a"]', b'{"given":0}'),
        (b'["Leaf",1,"a"]', b'{"leaf":0}'),
        (b'["Leaf",1,"a"]', b"null"),
        (b'["Leaf",2,"b"]', b'["Pair",2,"b"]'),
        (b'["Leaf",2,"b"]', b"7"),
        (b'["Fraction",1,3]', b'["Fraction",1,0]'),
        (b'["Colour","RED"]', b'["Colour","GREEN"]'),
        (b'["Colour","RED"]', b'["Colour","__class__"]'),
        (b"[3,true]", b"[3,1]"),
        (b"[3,true]", b"[3,true,3]"),
        (b",1,[1,", b",9,[1,"),
    ],
)
def test_what_is_no_such_value_is_refused(good: bytes, bad: bytes) -> None:
    data = encode(TREE)
    assert data.count(good) == 1

    with pytest.raises(MalformedError):
        decode(data.replace(good, bad), Tree)


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[" * 100_000, b'["Tree"]', b"NaN"])
def test_what_is_no_json_or_another_value_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedError):
        decode(data, Tree)


@dataclass(frozen=True)
class Grown:
    """A value that got a field since."""

    number: int
    newer: tuple[int, ...] = ()


def test_fields_that_are_newer_than_the_data_have_their_usual_value() -> None:
    assert decode(b'["Grown",3]', Grown) == Grown(3)
    assert decode(encode(Grown(3, (1, 2))), Grown) == Grown(3, (1, 2))
    for bad in (b'["Grown"]', b'["Grown",3,[],4]'):
        with pytest.raises(MalformedError):
            decode(bad, Grown)


@pytest.mark.parametrize("value", [np.int64(3), {1, 2}, object(), Tree, b"bytes"])
def test_what_is_no_plain_data_is_not_written(value: object) -> None:
    with pytest.raises(TypeError):
        encode((value,))
