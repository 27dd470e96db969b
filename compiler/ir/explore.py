"""The space that a file asks to search, as data."""

from dataclasses import dataclass

from .schedule import CopyProtocol, Direction, EngineChoice, Kernels, LaunchMode, PeerOrder, Wait, WaitPer


@dataclass(frozen=True, slots=True)
class Explore:
    """The space to search; a limit of None means no limit.

    An empty tuple leaves the choice to the search: of templates, chunks, engines and streams it tries several, of the
    other knobs the usual value. ``depths`` are tried beside holding everything. With ``dominance`` schedules are left
    out that an assumption says are not faster than others of the space.
    """

    templates: tuple[str, ...] = ()
    chunks: tuple[int, ...] = ()
    engines: tuple[EngineChoice, ...] = ()
    staging_limit_bytes: int | None = None
    directions: tuple[Direction, ...] = ()
    protocols: tuple[CopyProtocol, ...] = ()
    kernels: tuple[Kernels, ...] = ()
    waits: tuple[Wait, ...] = ()
    waits_per: tuple[WaitPer, ...] = ()
    launches: tuple[LaunchMode, ...] = ()
    orders: tuple[PeerOrder, ...] = ()
    depths: tuple[int, ...] = ()
    streams: tuple[int, ...] = ()
    algorithms: tuple[str, ...] = ()
    dominance: bool = True
