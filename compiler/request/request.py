"""The question of a program: a pattern, its sizes and the system, in numbers and names."""

import operator
import re
from dataclasses import dataclass
from functools import cache

from ..codes import Code
from ..ir import DType, Pattern, Rejection
from ..text.diagnostics import Report, Source, did_you_mean, listing
from ..text.load import load
from ..text.names import Kind, shipped_libraries
from ..text.vocabulary import MAX_EXTENT, MAX_RANKS


class RequestError(ValueError):
    """A request that cannot be answered.

    ``field`` is the field that is wrong, ``code`` its permanent code, ``hint`` what to give instead; it may be empty.
    """

    def __init__(self, code: Code, field: str, message: str, hint: str = "") -> None:
        super().__init__(f"{code.name} {field}: {message}" + (f"; {hint}" if hint else ""))
        self.code, self.field, self.message, self.hint = code, field, message, hint

    def __reduce__(self) -> tuple[type["RequestError"], tuple[Code, str, str, str]]:
        return RequestError, (self.code, self.field, self.message, self.hint)  # as it crosses processes

    @property
    def rejection(self) -> Rejection:
        """What is wrong, with its field."""
        return Rejection(self.code, f"{self.field}: {self.message}", self.hint)


def names_in(field: str, words: object, form: re.Pattern[str]) -> tuple[str, ...]:
    """Return the list of names that a field holds, each of which has that ``form``.

    Raises
    ------
    RequestError
        If it is none, or another kind of name is among them.
    """
    if not isinstance(words, tuple | list):
        raise RequestError(Code.MGS310, field, "it is no list of names", f"for instance {field}=({words!r:.40},)")
    for word in words:
        if not isinstance(word, str) or not form.fullmatch(word):
            raise RequestError(Code.MGS203, field, f"{word!r:.64} is no name of that kind")
    return tuple(words)


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

INDEPENDENT_PATTERNS = (Pattern.GEMM_BESIDE_AG, Pattern.GEMM_BESIDE_A2A)
"""A GEMM of m, n and k, and a collective of ``num_bytes`` that needs nothing of it."""

PATTERNS = (*KERNEL_PATTERNS, *COLLECTIVE_PATTERNS, *INDEPENDENT_PATTERNS)

TOPOLOGIES = ("switch", "full_mesh", "ring")
"""Fabrics of one node. Others are said in a file with a ``system``."""

MAX_BYTES = 1 << 40
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
ENGINE = re.compile(r"(dma|sm)(\([a-z0-9_, ]+\))?", re.ASCII)
_LISTS = (("schedules", _NAME), ("engines", ENGINE), ("implementations", _NAME))


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
        has_gemm = self.kind in (*KERNEL_PATTERNS, *INDEPENDENT_PATTERNS)
        has_bytes = self.kind in (*COLLECTIVE_PATTERNS, *INDEPENDENT_PATTERNS)
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
            check_gpu(self.gpu)
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
        object.__setattr__(self, field, whole(field, value, least, most))


def whole(field: str, value: object, least: int, most: int) -> int:
    """Return a number from ``least`` to ``most`` as an ``int``, whatever kind of whole number it was.

    Raises
    ------
    RequestError
        If it is none, or beyond.
    """
    try:
        found = None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        found = None
    if found is None:
        raise RequestError(Code.MGS309, field, f"{value!r:.40} is not a whole number")
    if not least <= found <= most:
        raise RequestError(Code.MGS307, field, f"{value!r:.40} is not in {least}..{most}")
    return found


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


_VENDORS = ("amd/", "nvidia/")
# Boards of the same name with other clocks, memory or links than the one that ships.
_OTHER_BOARDS = frozenset({"pcie", "nvl", "cnx", "mig", "40gb", "64gb", "94gb", "96gb"})
# What drivers say before and behind the name of a GPU.
_MAKERS = frozenset({"nvidia", "amd", "instinct", "tesla", "graphics"})
_OF_A_BOARD = re.compile(r"\d+(\.\d+)?gb|hbm\d*e?|sxm\d*|oam|hgx|vf|\d+g\.\d+gb")
MAX_NAME = 200


@dataclass(frozen=True, slots=True)
class ShippedGpu:
    """A GPU of the library ``library``, its link, and its switch; empty if it is sold without one."""

    name: str
    library: str
    link: str
    switch: str

    def fabric(self, topology: str = "") -> str:
        """Return a fabric in the language; an empty ``topology`` is the one that the GPU is sold with.

        >>> ShippedGpu("H100", "nvidia/h100", "nvlink", "nvswitch").fabric()
        'switch(nvswitch, link=nvlink)'
        """
        kind = topology or ("switch" if self.switch else "full_mesh")
        if kind != "switch":
            return f"{kind}({self.link})"
        if not self.switch:
            raise RequestError(Code.MGS203, "topology", f"no switch ships for {self.name}", "'full_mesh' or 'ring'")
        return f"switch({self.switch}, link={self.link})"

    def rails(self, node: int, nic: str) -> str:
        """Return the fabric of several nodes of ``node`` GPUs, each with a link ``nic`` to its rail.

        >>> ShippedGpu("H100", "nvidia/h100", "nvlink", "nvswitch").rails(8, "ib")
        'rails(nvswitch, link=nvlink, node=8, nic=ib)'

        Raises
        ------
        RequestError
            If the GPU is sold without a switch.
        """
        if not self.switch:
            message = f"nodes of {self.name} have no switch, and rails join those that have one"
            raise RequestError(Code.MGS203, "gpu", message, "as many GPUs as a node has, or a system of your own")
        return f"rails({self.switch}, link={self.link}, node={node}, nic={nic})"


@cache
def check_gpu(gpu: object) -> None:
    """Check that a GPU is named.

    Raises
    ------
    RequestError
        If it is no text, or empty.
    """
    if not isinstance(gpu, str):
        raise RequestError(Code.MGS310, "gpu", "it is no text")
    if not gpu:
        raise RequestError(Code.MGS209, "gpu", "none is given", "for instance gpu='H100'")


def shipped_gpu(name: str) -> ShippedGpu:
    """Return the GPU of that name, or the one that a driver's name is about.

    Raises
    ------
    RequestError
        If none ships.

    >>> shipped_gpu("NVIDIA H100 80GB HBM3").name, shipped_gpu("AMD Instinct MI300X").name
    ('H100', 'MI300X')
    """
    by_name = {
        library.split("/")[1].upper(): library for library in shipped_libraries() if library.startswith(_VENDORS)
    }
    words = re.split(r"[ _-]+", name.lower()) if len(name) <= MAX_NAME else []
    found = [gpu for gpu in by_name if gpu.lower() in words]
    place = words.index(found[0].lower()) if found else 0
    board = all(each in _OTHER_BOARDS or _OF_A_BOARD.fullmatch(each) for each in words[place + 1 :])
    if len(found) != 1 or not board or not _MAKERS.issuperset(words[:place]):
        hint = did_you_mean(name, by_name) or f"GPUs that ship: {listing(by_name)}"
        raise RequestError(Code.MGS203, "gpu", f"unknown GPU '{name[:64]}'", hint)
    if others := _OTHER_BOARDS.intersection(words):
        message = f"'{name[:64]}' is another board than the {found[0]} that ships ({', '.join(sorted(others))})"
        hint = "say it in a file: gpu mine extends ...; system_file names the file"
        raise RequestError(Code.MGS203, "gpu", message, hint)
    return _read(found[0], by_name[found[0]])


def _read(name: str, library: str) -> ShippedGpu:
    scope = load(Source("<shipped>", f'use "{library}"'), Report())
    links, switches = scope.names(Kind.LINK), scope.names(Kind.SWITCH)
    return ShippedGpu(name, library, links[0], switches[0] if switches else "")
