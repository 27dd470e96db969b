"""Values of names in a Triton kernel: numbers as sums of products of its parameters, and the axes of tensors.

``rows[:, None] * stride`` with ``rows = m * BM + tl.arange(0, BM)`` is the sum of ``m BM stride`` and ``i stride``,
where i counts along axis 0, of the size ``BM``. Two numbers are the same if they are the same sum.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

ONE = "1"
"""The size of an axis that is broadcast."""
Atom = tuple[str, int]
"""A number that is not taken apart, and the axis along which it varies; SCALAR: along none."""
SCALAR = -1
Product = tuple[Atom, ...]
Sum = Mapping[Product, int]


@dataclass(frozen=True, slots=True)
class KernelValue:
    """A number, a pointer or a tensor.

    ``terms`` is what it is the sum of, None if that is not followed. ``axes`` are the sizes of its axes as the kernel
    writes them, none of a number, None if they are not followed. ``uses`` are the atoms that it depends on, ``base``
    the parameters that are added to as pointers are, ``loads`` the parameters that its numbers were loaded through.
    """

    terms: Sum | None = None
    axes: tuple[str, ...] | None = ()
    uses: frozenset[str] = frozenset()
    base: frozenset[str] = frozenset()
    loads: frozenset[str] = frozenset()

    @property
    def text(self) -> str:
        """The same for the same numbers; of what is not followed a text of its own."""
        if self.terms is None:
            return f"?{id(self)}"
        parts = sorted(
            (sorted(f"{name}@{axis}" for name, axis in atoms), factor) for atoms, factor in self.terms.items()
        )
        return " + ".join("*".join([str(factor), *names]) for names, factor in parts) or "0"

    @property
    def is_number(self) -> bool:
        """Whether it has no axes."""
        return self.axes == ()


@dataclass(frozen=True, slots=True)
class BlockPointer:
    """A tile of ``axes`` at ``offsets`` in a matrix of ``shape`` and ``strides``.

    ``tl.make_block_ptr`` makes it, and a tensor descriptor where it loads or stores. Without ``strides`` the host has
    made the descriptor, whose columns lie side by side.
    """

    base: KernelValue
    shape: tuple[KernelValue, ...]
    strides: tuple[KernelValue, ...]
    offsets: tuple[KernelValue, ...]
    axes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Descriptor:
    """What ``tl.make_tensor_descriptor`` makes: a matrix at ``base``, of which blocks of ``axes`` move."""

    base: KernelValue
    shape: tuple[KernelValue, ...]
    strides: tuple[KernelValue, ...]
    axes: tuple[str, ...]


Known = KernelValue | BlockPointer | Descriptor | tuple["Known", ...]


def atom(name: str, axis: int = SCALAR, axes: tuple[str, ...] = (), base: Iterable[str] = ()) -> KernelValue:
    """Return a number of its own name, or what counts along an axis."""
    return KernelValue({((name, axis),): 1}, axes, frozenset([name]), frozenset(base))


def constant(number: int) -> KernelValue:
    """Return a whole number."""
    return KernelValue({(): number} if number else {})


def combined(*values: KernelValue, terms: Sum | None = None) -> KernelValue:
    """Return what comes of an operation on each element of ``values``, with the sum that is known of it."""
    uses, base, loads = (
        frozenset[str]().union(*parts)
        for parts in zip(*((each.uses, each.base, each.loads) for each in values), strict=True)
    )
    return KernelValue(terms, broadcast(*(each.axes for each in values)), uses, base, loads)


def broadcast(*axes: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Return the axes of an operation on tensors with these; None if sizes differ."""
    rank = max((len(each) for each in axes if each is not None), default=0)
    found = [ONE] * rank
    for each in axes:
        if each is None:
            return None
        for place, size in enumerate(each, rank - len(each)):
            if size != ONE and found[place] not in (ONE, size):
                return None
            found[place] = found[place] if size == ONE else size
    return tuple(found)


def added(one: KernelValue, other: KernelValue, sign: int = 1) -> KernelValue:
    """Return ``one + sign * other``."""
    left, right = _aligned(one, other)
    if left.terms is None or right.terms is None:
        return combined(left, right)
    total = dict(left.terms)
    for product, factor in right.terms.items():
        total[product] = total.get(product, 0) + sign * factor
    return combined(left, right, terms={product: factor for product, factor in total.items() if factor})


def multiplied(one: KernelValue, other: KernelValue) -> KernelValue:
    """Return the product; it is no pointer."""
    left, right = _aligned(one, other)
    terms: dict[Product, int] | None = None
    if left.terms is not None and right.terms is not None:
        terms = {}
        for product, factor in left.terms.items():
            for more, times in right.terms.items():
                whole = tuple(sorted((*product, *more)))
                terms[whole] = terms.get(whole, 0) + factor * times
    return replace(combined(left, right, terms=terms), base=frozenset())


def opaque(text: str, *parts: KernelValue) -> KernelValue:
    """Return a number that is the same wherever ``text`` is, computed from ``parts``; of tensors nothing is known."""
    made = replace(combined(*parts) if parts else KernelValue(), base=frozenset())
    number = made.is_number and all(part.terms is not None for part in parts)
    return replace(made, terms={((text, SCALAR),): 1}, uses=made.uses | {text}) if number else made


def unfollowed(value: Known, name: str) -> Known:
    """Return what is left of a value that a loop changes: its axes, and where it comes from."""
    if not isinstance(value, KernelValue):
        return value
    known: Sum | None = {((name, SCALAR),): 1} if value.is_number and not value.base else None
    return replace(value, terms=known, uses=value.uses | {name})


def with_axes(value: KernelValue, order: tuple[int | None, ...]) -> KernelValue:
    """Return a tensor with its axes in another order; None is a new axis of size 1."""
    if value.axes is None or any(each is not None and each >= len(value.axes) for each in order):
        return replace(value, axes=None, terms=None)
    axes = tuple(ONE if each is None else value.axes[each] for each in order)
    terms = value.terms
    if terms is not None:
        places = {old: new for new, old in enumerate(order) if old is not None} | {SCALAR: SCALAR}
        terms = {
            tuple(sorted((name, places[axis]) for name, axis in product)): factor for product, factor in terms.items()
        }
    return replace(value, axes=axes, terms=terms)


def _aligned(one: KernelValue, other: KernelValue) -> tuple[KernelValue, KernelValue]:
    """Give the tensor with fewer axes new ones in front."""
    if one.axes is None or other.axes is None or one.is_number or other.is_number:
        return one, other
    rank = max(len(one.axes), len(other.axes))
    left, right = (
        with_axes(each, (*(None for _ in range(rank - len(each.axes or ()))), *range(len(each.axes or ()))))
        for each in (one, other)
    )
    return left, right
