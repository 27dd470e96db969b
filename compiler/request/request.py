"""The question of a program: a pattern, its sizes and the system, in numbers and names."""

import operator
import re
from dataclasses import dataclass

from ..codes import Code
from ..ir import DType, Pattern
from ..text.diagnostics import did_you_mean, listing
from ..text.vocabulary import MAX_EXTENT, MAX_RANKS
from .errors import RequestError
from .fields import names_in

KERNEL_PATTERNS = (
    Pattern.AG_GEMM,
    Pattern.GEMM_RS,
    Pattern.GEMM_AR,
    Pattern.A2A_GEMM,
    Pattern.GEMM_A2A,
    Pattern.GEMM,
)
"""Patterns with a GEMM whose tensor moves as a whole, or without a collective: m, n and k say it all."""

COLLECTIVE_PATTERNS = (
    Pattern.ALL_GATHER,
    Pattern.REDUCE_SCATTER,
    Pattern.ALL_REDUCE,
    Pattern.ALL_TO_ALL,
    Pattern.BROADCAST,
    Pattern.SEND_RECV,
)
"""Collectives alone, of ``num_bytes``."""

BESIDE_PATTERNS = (Pattern.GEMM_BESIDE_AG, Pattern.GEMM_BESIDE_A2A)
"""A GEMM of m, n and k, and a collective of ``num_bytes`` that needs nothing of it."""

PATTERNS = (*KERNEL_PATTERNS, *COLLECTIVE_PATTERNS, *BESIDE_PATTERNS)

TOPOLOGIES = ("switch", "full_mesh", "ring")
"""Fabrics of one node. Others are said in a file with a ``system``."""

MAX_BYTES = 1 << 40
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_ENGINE = re.compile(r"(dma|sm)(\([a-z0-9_, ]+\))?", re.ASCII)
_LISTS = (("schedules", _NAME), ("engines", _ENGINE), ("implementations", _NAME))


@dataclass(frozen=True, slots=True)
class Request:
    """Which schedule for this pattern, with these sizes, on this system? Checked when it is made.

    Attributes
    ----------
    pattern
        A value of ``Pattern``: ``AG+GEMM``, ``GEMM+RS``, ``all_reduce``, ... (``PATTERNS`` has all).
    m, n, k
        The GEMM that one rank computes, [m, k] x [k, n], as its BLAS sees it: the rows of the gathered tensor, and
        the columns of a sharded weight that are here.
    num_bytes
        Size of the tensor that a collective without a GEMM moves: the whole tensor, as ``size`` of nccl-tests.
    dtype
        Element type: ``bf16``, ``fp16``, ``fp8`` or ``fp32``.
    gpu
        A GPU that ships, ``H100``, or the name that its driver gives it: ``NVIDIA H100 80GB HBM3``.
    ranks
        Number of GPUs.
    topology
        One of ``TOPOLOGIES``; empty is the fabric that the GPU is sold with.
    system_file, system
        A ``.mgs`` file and the name of a system in it, in place of ``gpu``, ``ranks`` and ``topology``. Without a name
        it is the first one.
    schedules, engines
        Templates and engines to choose from, as a file names them: ``hetero_fused_1d``, ``dma(7)``, ``sm(16)``; none
        leaves the choice to the search.
    staging_bytes
        Limit of the extra memory of a rank; None is no limit.
    implementations
        Implementations to compare with, of those that ship; none are those known for the GPU, pattern and type.

    Raises
    ------
    RequestError
        If a value is not one of these, or two contradict each other.
    """

    pattern: str
    m: int = 0
    n: int = 0
    k: int = 0
    num_bytes: int = 0
    dtype: str = "bf16"
    gpu: str = ""
    ranks: int = 0
    topology: str = ""
    system_file: str = ""
    system: str = ""
    schedules: tuple[str, ...] = ()
    engines: tuple[str, ...] = ()
    staging_bytes: int | None = None
    implementations: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        one_of("pattern", self.pattern, [pattern.value for pattern in PATTERNS])
        one_of("dtype", self.dtype, [dtype.value for dtype in DType])
        self._check_sizes()
        self._check_system()
        for field, form in _LISTS:
            object.__setattr__(self, field, names_in(field, getattr(self, field), form))
        if self.staging_bytes is not None:
            self._set_whole("staging_bytes", 0)

    @property
    def kind(self) -> Pattern:
        """The pattern."""
        return Pattern(self.pattern)

    def _check_sizes(self) -> None:
        has_gemm = self.kind in (*KERNEL_PATTERNS, *BESIDE_PATTERNS)
        has_bytes = self.kind in (*COLLECTIVE_PATTERNS, *BESIDE_PATTERNS)
        for field, wanted in (("m", has_gemm), ("n", has_gemm), ("k", has_gemm), ("num_bytes", has_bytes)):
            if wanted:
                self._set_whole(field, 1)
            elif getattr(self, field) != 0:
                raise RequestError(Code.MGS310, field, f"{self.pattern} has none", "leave it out")

    def _check_system(self) -> None:
        for field in ("gpu", "system_file", "system"):
            if not isinstance(getattr(self, field), str):
                raise RequestError(Code.MGS310, field, "it is no text")
        if self.system_file:
            for field in ("gpu", "ranks", "topology"):
                if getattr(self, field):
                    raise RequestError(Code.MGS206, field, "the system file says it", "leave one of them out")
        else:
            self._set_whole("ranks", 1)
            if self.topology:
                one_of("topology", self.topology, TOPOLOGIES, "others are said in a system_file")
            if not self.gpu:
                raise RequestError(Code.MGS209, "gpu", "none is given", "for instance gpu='H100'")
            if self.system:
                raise RequestError(Code.MGS209, "system_file", f"the system '{self.system[:64]}' is in none")
        if self.system and not _NAME.fullmatch(self.system):
            raise RequestError(Code.MGS203, "system", f"'{self.system[:64]}' is no name")

    def _set_whole(self, field: str, least: int) -> None:
        """Check a size, and hold it as an ``int``, whatever kind of whole number it was."""
        value = getattr(self, field)
        most = MAX_BYTES if field in ("num_bytes", "staging_bytes") else MAX_RANKS if field == "ranks" else MAX_EXTENT
        if least and type(value) is int and value == 0:
            raise RequestError(Code.MGS209, field, "none is given")
        try:
            whole = operator.index(value)
        except TypeError:
            raise RequestError(Code.MGS309, field, f"{value!r:.40} is not a whole number") from None
        if isinstance(value, bool) or not least <= whole <= most:
            raise RequestError(Code.MGS307, field, f"{value!r:.40} is not in {least}..{most}")
        object.__setattr__(self, field, whole)


def one_of(field: str, word: object, known: tuple[str, ...] | list[str], hint: str = "") -> None:
    """Check that ``word`` is one of the ``known``.

    Raises
    ------
    RequestError
        If it is not.
    """
    if word not in known:
        guess = did_you_mean(word, known) if isinstance(word, str) else ""
        raise RequestError(
            Code.MGS203, field, f"unknown: {word!r:.64}", guess or f"one of {listing(known)}" + f"; {hint}" * bool(hint)
        )
