"""An OpPlan has the steps of one op: which pieces are copied, which tiles are computed, and what each waits for.

A plan is written once, for rank r. Peers are relative: peer ``+k`` is rank (r + k) mod n. A region lies in the
shard of one owner, given relative too, so the same text serves every rank; exceptions are explicit overrides.
All waits are local to a rank: a step waits for signals that arrived here and for steps issued here.
"""

from dataclasses import dataclass, field
from enum import Enum

from .options import USUAL_OPTIONS, Direction, ExecutionOptions, GroupKernel, PeerOrder
from .region import IndexRange, Region
from .tensors import Word


class EngineKind(Word):
    """Who moves bytes; the value is the word in the language."""

    DMA = "dma"
    SM = "sm"


class EngineMode(Word):
    """How engines are used; the value is the word in the language, none for the usual use.

    OWN: engines take commands as they come, copying SMs are taken from the kernels. SHARED: copies by SMs queue for the
    same SMs as the kernels. PRELAUNCHED: the commands of a DMA engine were written before and wait there for a flag.
    BROADCAST: one command of a DMA engine serves two destinations. LIBRARY: the SMs run the library's collective, which
    moves everything in one call by the algorithm and the protocol that it picks; the steps say what is moved. TILES:
    each tile stores what it has computed at the ranks that want it, from inside its kernel; all SMs do. CHANNELS: each
    lane is a queue two deep, in which a free engine of the pool prepares the next copy while bytes of the one before
    move; SMs are dealt evenly to the lanes. PORTS: SMs copy inside a node,
    and beyond it a network card does, at their command: it needs no SM and no engine, and cannot add.
    """

    OWN = ""
    SHARED = "shared"
    PRELAUNCHED = "prelaunched"
    BROADCAST = "broadcast"
    LIBRARY = "library"
    TILES = "tiles"
    CHANNELS = "channels"
    PORTS = "ports"


PLAN_MODES = tuple(mode for mode in EngineMode if mode is not EngineMode.LIBRARY)
"""Modes of plans written out: they say what is moved when, where the library moves everything in one call."""


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """``dma(count)`` copy engines or ``sm(count)`` SMs, used as ``mode`` says; all SMs if tiles move data."""

    kind: EngineKind
    count: int
    mode: EngineMode = EngineMode.OWN

    @property
    def kernel(self) -> GroupKernel | None:
        """The kernel whose work-groups copy; None where SMs copy at the rate of the profile, or engines do."""
        return None

    @property
    def by_library(self) -> bool:
        """Whether the library moves the data, all of it in one call."""
        return self.mode is EngineMode.LIBRARY

    @property
    def copy_engines(self) -> int:
        """How many DMA engines of a GPU move data."""
        return self.count if self.kind is EngineKind.DMA else 0

    @property
    def copy_sms(self) -> int:
        """How many SMs of a GPU move data in kernels of their own; 0 where the library or the tiles do."""
        return 0 if self.copy_engines or self.by_library or self.by_tiles else self.count

    @property
    def by_tiles(self) -> bool:
        """Whether tiles store what they have computed, or pull what they read, from inside their kernel."""
        return self.mode is EngineMode.TILES

    def sms_of(self, step: "Transfer", sharing: int) -> int:
        """SMs of one copy: all in a lane or to all, else as many as each of ``sharing`` has (``num_sharing``)."""
        alone = step.reach is Reach.ALL or (step.lane is not None and self.mode is not EngineMode.CHANNELS)
        return self.count if alone else max(1, self.count // sharing)

    @property
    def leaves_all_sms(self) -> bool:
        """Whether no SM is taken from the kernels for as long as they run; ``on_kernels_sms`` share them in turn."""
        return self.kind is EngineKind.DMA or self.on_kernels_sms

    @property
    def on_kernels_sms(self) -> bool:
        """Whether what moves data queues for the SMs of the kernels: copies, the library's channels, or tiles."""
        return self.mode in (EngineMode.SHARED, EngineMode.LIBRARY, EngineMode.TILES)

    def __str__(self) -> str:
        if self.by_tiles:
            return f"{self.kind.value}({self.mode.value})"
        mode = f", {self.mode.value}" if self.mode.value else ""
        return f"{self.kind.value}({self.count}{mode})"


@dataclass(frozen=True, slots=True)
class GroupEngine(EngineChoice):
    """``sm(NAME)``: SMs that run the kernel ``program``, which says what its work-groups do.

    ``count`` is the number of work-groups. A lane is one work-group, which alone moves what is in the lane.

    This is a class of its own, so that results of other engines that are kept on disk stay valid.
    """

    program: GroupKernel = field(kw_only=True)

    @property
    def kernel(self) -> GroupKernel | None:
        """The kernel whose work-groups copy."""
        return self.program

    def sms_of(self, step: "Transfer", sharing: int) -> int:
        """One SM in a lane, else as of any engine."""
        return 1 if step.lane is not None else EngineChoice.sms_of(self, step, sharing)

    def __str__(self) -> str:
        return f"{self.kind.value}({self.program.name})"


class Reach(Enum):
    """Whom a transfer concerns: one peer, or all other ranks at once through a switch that copies or sums."""

    PEER = "peer"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Transfer:
    """A copy: rank r moves ``region`` of the moved tensor to (put) or from (get) rank r + ``peer``.

    Attributes
    ----------
    name
        Its name, by which other steps of the rank wait for it.
    direction
        Whether the source issues it (put) or the destination (get).
    region
        What is moved.
    peer
        The other rank, relative to r; 0 if ``reach`` is ALL.
    signal
        The flag that is set at the destination when the last byte has arrived.
    after
        Steps of this rank, and signals set at this rank, that it waits for.
    lane
        The engine of the pool that carries it out; None for the first free one.
    reduce
        Whether the bytes are added to the destination instead of stored (by SMs only).
    reach
        With ALL a switch copies a put to all other ranks; a get with ``reduce`` is the sum, made by the switch, of what
        all ranks have.
    origin
        In an all_to_all, the block is that of rank r + ``origin``: 0 for the own one, else one that the rank passes on.
    peer_after
        For a get, steps of the peer and signals set there that it waits for: the peer then sends a flag to this rank.
    """

    name: str
    direction: Direction
    region: Region
    peer: int
    signal: str
    after: tuple[str, ...] = ()
    lane: int | None = None
    reduce: bool = False
    reach: Reach = Reach.PEER
    origin: int = 0
    peer_after: tuple[str, ...] = ()

    @property
    def passes(self) -> bool:
        """Whether it puts a block for one rank, not this one, to another: in an all_to_all that one passes it on."""
        puts = self.direction is Direction.PUT and self.reach is Reach.PEER
        return puts and self.region.owner not in (0, self.peer)


@dataclass(frozen=True, slots=True)
class TileGroup:
    """A kernel that computes some tiles of the output.

    Attributes
    ----------
    name
        Its name, by which other steps of the rank wait for it.
    regions
        The blocks of the output that it computes, all with the same columns. After a collective their rows are rows of
        what arrives.
    k
        The slice of the inner dimension. Of attention after a collective: the columns of what arrives, which are heads.
    after
        Steps of this rank, and signals set at this rank, that it waits for.
    stream
        Kernels of one stream run one after the other, streams run side by side.
    accumulate
        Whether it adds to what an earlier slice, or earlier keys, left in the output.
    kernel
        Which kernel of the op it is, 0 or 1, if the op has two.
    more_k
        Further slices that a lone GEMM adds up in the same launch: those of blocks side by side.
    """

    name: str
    regions: tuple[Region, ...]
    k: IndexRange
    after: tuple[str, ...] = ()
    stream: int = 0
    accumulate: bool = False
    kernel: int = 0
    more_k: tuple[IndexRange, ...] = ()

    @property
    def slices(self) -> tuple[IndexRange, ...]:
        """All slices of the inner dimension."""
        return (self.k, *self.more_k)

    @property
    def inner(self) -> int:
        """Inner indices in all slices."""
        return sum([each.size for each in self.slices])

    @property
    def inner_cuts(self) -> set[int]:
        """Where slices begin and end."""
        return {edge for each in self.slices for edge in (each.start, each.stop)}


@dataclass(frozen=True, slots=True)
class Reduction:
    """A kernel that sums the ``num_parts`` partial results of ``region``, which lies in this rank's own block."""

    name: str
    region: Region
    num_parts: int
    after: tuple[str, ...] = ()
    stream: int = 0


Step = Transfer | TileGroup | Reduction


@dataclass(frozen=True, slots=True)
class Override:
    """On absolute rank ``rank``, the step of the same name is replaced by ``step``."""

    rank: int
    step: Step


@dataclass(frozen=True, slots=True)
class OpPlan:
    """The steps of one op, for every rank.

    ``expression`` is its name and identity. ``steps`` are those of rank r in issue order, ``overrides`` replace some of
    single ranks. If ranks differ, as in a tree, ``by_rank`` holds the steps of the first ranks, which then repeat, and
    ``steps`` those of rank 0; peers and owners stay relative. ``engine`` is the pool of all transfers, ``compute_sms``
    are the SMs of a GPU that are left to kernels. ``staging_bytes`` is the memory of a rank for what is neither input
    nor output. ``tactics`` are the execution options.
    """

    expression: str
    steps: tuple[Step, ...]
    engine: EngineChoice
    compute_sms: int
    staging_bytes: int
    overrides: tuple[Override, ...] = ()
    tactics: ExecutionOptions = USUAL_OPTIONS
    by_rank: tuple[tuple[Step, ...], ...] = ()

    @property
    def symmetric(self) -> bool:
        """Whether every rank does the same, relative to itself."""
        return not self.overrides and not self.by_rank

    def period(self, num_ranks: int) -> int:
        """Ranks after which the plan repeats, a divisor of ``num_ranks``."""
        return num_ranks if self.overrides else len(self.by_rank) or 1

    def each_rank(self, num_ranks: int) -> tuple[tuple[Step, ...], ...]:
        """``by_rank`` of all ranks, empty where ranks do not differ."""
        return self.by_rank * (num_ranks // max(1, len(self.by_rank)))

    def steps_of(self, rank: int) -> tuple[Step, ...]:
        """The steps of one absolute rank, overrides applied."""
        if self.by_rank:
            return self.by_rank[rank % len(self.by_rank)]
        if not self.overrides:
            return self.steps
        mine = {override.step.name: override.step for override in self.overrides if override.rank == rank}
        return tuple(mine.get(step.name, step) for step in self.steps)


@dataclass(frozen=True, slots=True)
class OpChoice:
    """How one op is carried out: a template with values of its knobs.

    ``chunks`` is the number of pieces of the whole moved tensor, ``engine`` what copies them, ``streams`` the number of
    streams of kernels. A comment below each of the other knobs says what it is.
    """

    template: str
    chunks: int
    engine: EngineChoice
    streams: int = 1
    tactics: ExecutionOptions = USUAL_OPTIONS
    algorithm: str = ""
    """The collective algorithm (``compiler/collectives``), empty for the usual one of the template."""
    order: PeerOrder = PeerOrder.ROTATED
    depth: int = 0
    """How many pieces of what is gathered are held at a time, 0 for all of them."""
    lanes: int = 0
    """Engines to which copies of ``bespoke`` and ``forest`` are dealt; 0 where the first free one takes the next."""
    parts: tuple[tuple[int, ...], ...] = ()
    """Rows of each batch of ``bespoke``: own ones, then those of each peer."""
    slices: tuple[tuple[int, ...], ...] = ()
    """For each of the parts the sizes of its slices of the inner dimension, none where it is whole."""
    columns: tuple[tuple[int, ...], ...] = ()
    """For each of the parts the sizes of its slices of the output's columns, none where it is whole."""
    waves: int = 1
    """Waves of the algorithm that one kernel of ``pipelined`` takes."""
    sums: int = 1
    """Streams to which the sums of ``pipelined`` are dealt in turn."""
    trees: tuple[tuple[int, ...], ...] = ()
    """Trees of ``forest``: of each its root, its weight, and the parent of each rank."""


@dataclass(frozen=True, slots=True)
class WrittenPlan:
    """A plan as a file says it, from which an ``OpPlan`` is made.

    ``by_rank`` is as in ``OpPlan``. Without ``overlaps`` kernels and transfers of a rank never run at the same time, so
    kernels also use the SMs that copy.
    """

    engine: EngineChoice
    steps: tuple[Step, ...]
    overrides: tuple[Override, ...] = ()
    tactics: ExecutionOptions = USUAL_OPTIONS
    by_rank: tuple[tuple[Step, ...], ...] = ()
    overlaps: bool = True


@dataclass(frozen=True, slots=True)
class NamedSchedule:
    """A schedule declared in a file: a name for a template expression or for an explicit plan."""

    name: str
    body: OpChoice | WrittenPlan
