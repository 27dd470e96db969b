"""Which words and names may stand at a place: sections of ``grammar/words.toml``, and kinds of declared names.

The compiler's readers say what is right; this says where to look a word up and what to offer. A new statement of the
language is a word in that file, and a row here if something other than a number may follow it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ..text.names import Kind
from ..text.units import BYTES, FLOP_RATE, FREQUENCY, RATE, UNITS, Quantity, exact_text
from ..text.vocabulary import (
    CACHE_NUMBERS,
    COLLECTIVES,
    EXPERTS_NUMBERS,
    GPU_BLOCKS,
    GPU_NUMBERS,
    LINK_NUMBERS,
    METHOD_NUMBERS,
    PEAK,
    PROGRAM_WORDS,
    STACK_NUMBERS,
    SWITCH_NUMBERS,
    TYPE_BLOCKS,
    Property,
)
from .context import Context

_VALUES = (Kind.LET, Kind.PARAM)
_DEVICE_BLOCKS = ("gpu", "link", "switch", "implementation")


@dataclass(frozen=True, slots=True)
class ExpectedWords:
    """What may stand at a place: words of ``sections``, names of ``kinds``, and names ``local`` to the block.

    Also names of shipped ``libraries``, and of ``stacks``.
    """

    sections: tuple[str, ...] = ()
    kinds: tuple[Kind, ...] = ()
    local: bool = False
    libraries: bool = False
    stacks: bool = False

    def __or__(self, other: "ExpectedWords") -> "ExpectedWords":
        return ExpectedWords(
            tuple(dict.fromkeys((*self.sections, *other.sections))),
            tuple(dict.fromkeys((*self.kinds, *other.kinds))),
            self.local or other.local,
            self.libraries or other.libraries,
            self.stacks or other.stacks,
        )


def _words(*sections: str) -> ExpectedWords:
    return ExpectedWords(sections)


def _names(*kinds: Kind) -> ExpectedWords:
    return ExpectedWords((), kinds)


NOTHING = ExpectedWords()
_NUMBER = ExpectedWords(("function",), _VALUES)
_TEMPLATES = _words("template", "algorithm")
_PROGRAM = _words("program.buffer", "program.clause", "program.number") | _NUMBER
_TERM = replace(_NUMBER, kinds=(Kind.SCHEDULE, *_VALUES)) | _words("expect.schedule", "expect.function")
_EXECUTION = ("transfer", "protocol", "kernel", "wait", "per", "launch")

# What begins a statement of a block.
_STARTS: Mapping[str, ExpectedWords] = {
    "": _words("file"),
    "workload": _words("workload", "workload.step"),
    "schedule": _words("outline", "plan", "graph", "schedule.step"),
    "schedule.rank": NOTHING,
    "schedule.override": NOTHING,
    "explore": _words("knob", "explore", "explore.step") | _names(Kind.PARAM),
    "expect": _words("expect") | _TERM,
}
# What follows the first word of a statement in a block, where that is not only numbers.
_FOLLOWS: Mapping[tuple[str, str], ExpectedWords] = {
    ("gpu", "peak"): _words("dtype") | _NUMBER,
    ("gpu", "cache"): _words("cache"),
    ("gpu.gemm", "calibrated"): _words("dtype") | _NUMBER,
    ("gpu.gemm.type", "calibrated"): _words("dtype") | _NUMBER,
    ("link", "protocols"): _words("value.protocol"),
    ("link", "ordered"): _words("choice"),
    ("stack", "plain_experts"): _words("choice"),
    ("switch", "multicast"): _words("choice"),
    ("switch", "reduces"): _words("choice"),
    ("implementation", "gpus"): _names(Kind.GPU),
    ("implementation", "dtypes"): _words("dtype"),
    ("kernel", "arbitration"): _words("kernel.arbitration"),
    **{("kernel.program", word): _PROGRAM for word in PROGRAM_WORDS},
    ("method", "schedule"): _TEMPLATES,
    ("method", "path"): _words("path"),
    ("method", "gpus"): _names(Kind.GPU),
    ("method", "dtypes"): _words("dtype"),
    ("system", "gpus"): _words("system.gpus") | _names(Kind.GPU, *_VALUES),
    ("system", "fabric"): _words("topology"),
    ("system", "mesh"): _words("system.mesh") | _NUMBER,
    ("workload", "backward"): _names(Kind.WORKLOAD),
    ("workload", "keep"): NOTHING,
    ("workload", "step"): _words("step.then") | _names(Kind.WORKLOAD),
    ("workload", "optimizer"): _words("optimizer", "dtype"),
    **{(block, "pipeline"): _words("pipeline") for block in ("schedule", "explore")},
    **{(block, "keep"): _words("step.keep") for block in ("schedule", "explore")},
    **{(block, "context"): _words("step.context") for block in ("schedule", "explore")},
    ("schedule", "overlap"): _words("step.traffic"),
    ("schedule", "stack"): ExpectedWords(kinds=(Kind.IMPLEMENTATION,), stacks=True),
    ("variability", "skew"): _words("distribution"),
    ("variability", "jitter"): _words("distribution"),
    ("variability", "late"): _words("variability.late") | _NUMBER,
    ("traffic", "rank"): _words("traffic.rank", "distribution") | _NUMBER,
    ("schedule", "split"): _words("outline.split") | _NUMBER,
    ("schedule", "move"): _words("outline.move", "value.transfer", "algorithm") | _NUMBER,
    ("schedule", "group"): _words("outline.group") | _NUMBER,
    ("schedule", "order"): _words("outline.order", "value.order") | _NUMBER,
    ("schedule", "sums"): _words("outline.sums"),
    ("schedule", "sync"): _words("value.wait", "knob"),
    ("schedule", "kernel"): _words("value.kernel"),
    ("schedule", "launch"): _words("value.launch"),
    ("schedule", "plan"): _words("plan.engines", "knob"),
    ("explore", "schedules"): _words("explore.schedules") | _TEMPLATES,
    ("explore", "minimize"): _words("explore.minimize"),
    ("explore", "dominance"): _words("explore.dominance"),
    ("explore", "implementations"): _names(Kind.IMPLEMENTATION),
    ("explore", "engine"): _words("engine"),
    ("explore", "algorithm"): _words("algorithm"),
    ("explore", "order"): _words("value.order"),
    **{("explore", knob): _words(f"value.{knob}") for knob in _EXECUTION},
    ("expect", "granularity"): _words("expect.granularity"),
    ("expect", "verdict"): _words("expect.verdict"),
    ("expect", "sweep"): ExpectedWords(("head", "domain"), (Kind.PARAM, Kind.LET)),
}
# What follows a word of a statement, wherever it stands in it; by the first word.
_BEHIND: Mapping[tuple[str, str], ExpectedWords] = {
    ("move", "by"): _words("engine"),
    ("plan", "by"): _words("engine"),
    ("move", "protocol"): _words("value.protocol"),
    **{(head, knob): _words(f"value.{knob}") for head in ("plan", "sync") for knob in _EXECUTION},
}
_HEADS: Mapping[str, Mapping[str, ExpectedWords]] = {
    "use": {"": ExpectedWords(libraries=True), "as": NOTHING},
    **{word: {"extends": _names(Kind(word))} for word in _DEVICE_BLOCKS},
    "workload": {"on": _names(Kind.SYSTEM)},
    "schedule": {"for": _names(Kind.WORKLOAD)},
    "explore": {"": _names(Kind.WORKLOAD)},
    "expect": {"": _names(Kind.WORKLOAD), "with": _names(Kind.PARAM), ",": _names(Kind.PARAM)},
}
_ENGINES = ("dma", "sm")


def expected_at(place: Context) -> ExpectedWords:
    """Return what may stand at a place."""
    if place.before == "@":
        return _words("origin")
    if place.before == ".":
        return _words("metric") if place.block.startswith("expect") else _words("region")
    if not place.statement:
        return _STARTS.get(section_of(place), _words(section_of(place)))
    if place.callee:
        return _in_call(place)
    if not place.blocks:
        return _in_head(place)
    return _in_definition(place) if place.is_definition else _in_statement(place)


def section_of(place: Context) -> str:
    """Return the section of the words that begin statements here: ``gpu.hbm``, ``method``, ``variability``."""
    block = place.block
    match block.split("."):
        case ["implementation", ("experts" | "stack") as block]:
            return block
        case ["implementation", _]:
            return "method"
        case ["kernel", "program", *_]:
            return "kernel.program"
        case ["system", ("variability" | "traffic") as block]:
            return block
        case ["expect", *_]:
            return "expect"
        case ["gpu", "gemm" | "grouped" as outer, _]:
            return f"gpu.{outer}.type"
        case _:
            return block


def _in_head(place: Context) -> ExpectedWords:
    """Between the first word of a declaration and its block or value."""
    head, before, length = place.head, place.before, len(place.statement)
    if place.holds("EQUAL") and head != "expect":
        return _in_value(place)
    behind = _HEADS.get(head, {})
    if before in behind and length > 1:
        return behind[before]
    if length == 1:
        return behind.get("", NOTHING)
    if head == "expect":
        return _words("head") if before != "=" else _NUMBER
    return _words("head")


def _in_value(place: Context) -> ExpectedWords:
    """Behind the ``=`` of a let, a param or a schedule."""
    if place.head == "schedule":
        return _TEMPLATES | _words("import")
    if place.head == "param" and place.holds("_IN"):
        return _words("domain") | _NUMBER
    return _words("head") | _NUMBER if place.head == "param" else _NUMBER


def _in_definition(place: Context) -> ExpectedWords:
    """Behind ``name =`` in a block: a tensor, an operation, a step."""
    if place.block == "workload":
        if len(place.statement) < 3 or place.statement[2] != "tensor":
            return _words("workload.value", "operation") if place.before == "=" else NOTHING
        if place.before == "tensor":
            return _words("dtype")
        return _words("tensor.shard") if place.before == "shard" else _words("tensor")
    if place.block.startswith("schedule"):
        if place.before == "=":
            return _words("step")
        return replace(_words("clause", "region"), local=True) | _NUMBER
    return _NUMBER


def _in_statement(place: Context) -> ExpectedWords:
    """Behind the first word of a statement."""
    section, outer = section_of(place), place.block.partition(".")[0]
    if place.head == "source":
        return _words("origin")
    if outer == "schedule" and (place.head, place.before) in _BEHIND:
        return _BEHIND[place.head, place.before]
    following = _FOLLOWS.get((section, place.head))
    if following is not None:
        return following
    if section == "expect":
        return _words("expect", "expect.shape", "head") | _TERM
    if section == "explore":
        return _words("domain") | _NUMBER
    return _words("base") | _NUMBER if outer in _DEVICE_BLOCKS else _NUMBER


def _in_call(place: Context) -> ExpectedWords:
    """Inside the brackets of a call or of an index."""
    outer, callee, argument = place.block.partition(".")[0] or place.head, place.callee, place.argument
    if place.statement[place.brackets[-1]].type == "_INDEX":
        return _words("program.number") | _NUMBER if outer == "kernel" else _NUMBER
    if callee in _ENGINES and outer in ("schedule", "explore", "implementation"):
        return _words("engine.mode") | _names(Kind.KERNEL) | _NUMBER
    if outer == "workload" and argument == "type":
        return _words("dtype")
    if outer == "workload":
        named = _words("choice") | _NUMBER if argument else _words("operation", "operation.argument")
        return replace(named, local=True)
    if outer == "system" and place.head == "fabric":
        named = _words("choice") if argument else _words("topology.argument")
        return named | _names(Kind.LINK, Kind.SWITCH, *_VALUES)
    if outer == "expect":
        return _TERM
    if outer in ("schedule", "implementation") and not place.is_definition:
        return _argument_of_template(argument)
    return _NUMBER


def _argument_of_template(argument: str) -> ExpectedWords:
    match argument:
        case "":
            return _words("knob")
        case "engine" | "algorithm":
            return _words(argument)
        case "order" | "transfer" | "protocol" | "kernel" | "wait" | "per" | "launch":
            return _words(f"value.{argument}")
        case _:
            return _NUMBER


_OF_SECTION: Mapping[str, Iterable[Property]] = {
    "gpu": (*GPU_NUMBERS, PEAK),
    "gpu.cache": CACHE_NUMBERS,
    **{f"gpu.{block}": numbers for block, numbers in GPU_BLOCKS.items()},
    **{f"gpu.{block}.type": numbers for block, numbers in TYPE_BLOCKS.items()},
    **{f"gpu.collectives.{part}".rstrip("."): numbers for part, numbers in COLLECTIVES.items()},
    "link": LINK_NUMBERS,
    "switch": SWITCH_NUMBERS,
    "method": METHOD_NUMBERS,
    "experts": EXPERTS_NUMBERS,
    "stack": STACK_NUMBERS,
}
_READ_IN = {
    FREQUENCY: ("GHz", "MHz"),
    FLOP_RATE: ("TFLOP/s", "GFLOP/s"),
    RATE: ("TB/s", "GB/s", "MB/s"),
    BYTES: ("TiB", "GiB", "MiB", "KiB"),
}


def property_of(section: str, word: str) -> Property | None:
    """Return the number that a word of a section stands for, None if it is no number."""
    return next((each for each in _OF_SECTION.get(section, ()) if each.name == word), None)


def property_at(place: Context) -> Property | None:
    """Return the number that the statement at a place says, None if it says no number of a device."""
    return property_of(section_of(place), place.head)


def amount_text(value: Quantity) -> str:
    """Return an exact value in a unit that is easy to read: ``1.98 GHz``, ``989 TFLOP/s``; others as exact text."""
    for unit in _READ_IN.get(value.dimension, ()):
        amount = value.amount / UNITS[unit].factor
        if amount >= 1 and (amount * 1000).denominator == 1:
            return f"{float(amount):,.10g} {unit}"
    return exact_text(value)


def property_doc(wanted: Property) -> str:
    """Return unit and range of a number in words: ``bytes per time, from 1 MB/s to 1000000 GB/s``."""
    low, high = (amount_text(Quantity(end, wanted.dimension)) for end in (wanted.low, wanted.high))
    return f"{wanted.dimension}, from {low} to {high}" + ("" if wanted.required else "; may be left out")


def unit_doc(name: str) -> str:
    """Return what a unit is worth in base units: ``1 KiB = 1,024 B``."""
    unit = UNITS[name]
    per = {0: "", 1: " at the clock of the gpu", -1: " at the clock of the gpu"}[unit.cycles]
    factor = unit.factor
    amount = f"{factor.numerator:,}" if factor.denominator == 1 else f"1/{factor.denominator:,}"
    return f"1 {name} = {amount} {unit.dimension.base_unit}".rstrip() + per
