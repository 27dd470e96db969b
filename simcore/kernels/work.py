"""What every kernel model hands to lowering: equal work units, each with SM time and memory traffic."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KernelWork:
    """A kernel alone on its SMs.

    ``num_units`` work units take one SM slot each for ``unit_ticks``; a tile of two SMs is two units. Byte counts are
    of the whole kernel: ``l2_hit_bytes`` are operand reads that L2 serves, ``hbm_read_bytes`` come from memory through
    L2, ``hbm_write_bytes`` leave through L2, ``mall_read_bytes`` come through L2 from the cache in front of memory.
    ``start_ticks`` is launch and drain. ``stall_ticks`` is the part of
    ``unit_ticks`` that is neither math nor tile overhead: what the fitted form adds for imperfect overlap of its
    terms, the fractional last wave and split-K (it may be negative, for the last wave). ``missed_bytes`` are those of
    the reads below L2 that hit the L2 with which the form was fitted.
    """

    num_units: int
    unit_ticks: int
    start_ticks: int
    waves: int
    l2_hit_bytes: int
    hbm_read_bytes: int
    hbm_write_bytes: int
    stall_ticks: int
    label: str
    mall_read_bytes: int = 0
    missed_bytes: int = 0

    @property
    def body_ticks(self) -> int:
        """Duration without launch when nothing else runs."""
        return self.waves * self.unit_ticks

    @property
    def below_l2_bytes(self) -> int:
        """Bytes read through L2 that it does not hold."""
        return self.hbm_read_bytes + self.mall_read_bytes

    @property
    def alone_ticks(self) -> int:
        """Duration with launch when nothing else runs."""
        return self.start_ticks + self.body_ticks
