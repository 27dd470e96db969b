"""Decorators of a Triton kernel beside ``triton.jit``: one configuration of autotuning is taken, others are refused.

Configurations are read where they are written out: a list of ``triton.Config``, by name, in a function that returns it,
or computed from lists of numbers. Nothing is executed.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from .kernel_calls import NotRecognised, assigned, is_jit, name_of

Setting = int | float | str | bool | None
Names = Mapping[str, object]
_HOOKS = ("pre_hook", "post_hook", "reset_to_zero", "restore_value")
MAX_CONFIGS = 4096
MAX_VALUES = 1 << 18
"""Values of expressions that are read for one list: each of its configurations takes some."""
MAX_NUMBER = 1 << 64
MAX_LISTED = 6


@dataclass(frozen=True, slots=True)
class Config:
    """One configuration: what it gives parameters of the kernel, and options of the launch such as ``num_warps``."""

    settings: Mapping[str, Setting] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """As ``--config`` takes it."""
        return ",".join(f"{name}={value}" for name, value in self.settings.items())

    def has(self, wanted: Mapping[str, Setting]) -> bool:
        """Whether it has all that is ``wanted``."""
        return all(name in self.settings and self.settings[name] == value for name, value in wanted.items())


def config_of(text: str) -> Config:
    """Read ``NAME=VALUE,...``.

    Raises
    ------
    ValueError
        If it is written in another way.
    """
    settings: dict[str, Setting] = {}
    for part in text.split(","):
        name, equals, value = (each.strip() for each in part.partition("="))
        if not equals or not name.isidentifier() or name in settings:
            raise ValueError(f"'{part.strip()}' is no NAME=VALUE, or is said twice")
        try:
            settings[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            settings[name] = value
    return Config(settings)


def take_config(module: ast.Module, function: ast.FunctionDef, wanted: Config | None) -> Config | None:
    """Take the autotuning off ``function``, and return its one configuration, or the one that is ``wanted``.

    Raises
    ------
    NotRecognised
        If there are several that fit or none, or if there is another decorator.
    """
    tuned = [each for each in function.decorator_list if _is(each, "autotune")]
    for each in function.decorator_list:
        if not is_jit(each) and each not in tuned:
            name = ast.unparse(each.func if isinstance(each, ast.Call) else each)
            raise NotRecognised(each, f"{function.name} has the decorator @{name}", _hint(each))
    jits = len(function.decorator_list) - len(tuned)
    if jits > 1 or len(tuned) > 1:
        raise NotRecognised(function, f"{function.name} has a decorator twice", "leave one @triton.jit")
    if not tuned:
        if wanted is not None:
            message = f"{function.name} is not autotuned, so that there is no configuration to choose"
            raise NotRecognised(function, message, "leave --config out, and pass sizes of tiles when it is called")
        return None
    function.decorator_list = [each for each in function.decorator_list if each not in tuned]
    chosen = _chosen(module, tuned[0], wanted)
    names = {each.arg for each in function.args.args}
    strange = [name for name in chosen.settings if name not in names and name not in LAUNCH]
    if strange:
        message = f"{', '.join(strange)} of the configuration is no parameter of {function.name}"
        hint = "a configuration gives constants of the kernel and options of its launch"
        raise NotRecognised(tuned[0], message, hint)
    return chosen


def is_tuned(function: ast.FunctionDef) -> bool:
    """Whether ``function`` has configurations to choose from."""
    return any(_is(each, "autotune") for each in function.decorator_list)


def configs_of(module: ast.Module, function: ast.FunctionDef) -> list[Config]:
    """Return all configurations of ``function``.

    Raises
    ------
    NotRecognised
        If it has none, or they are not read.
    """
    tuned = next((each for each in function.decorator_list if _is(each, "autotune")), None)
    try:
        configs = [] if tuned is None else _configs(module, _listed(tuned).get("configs"))
    except _NotRead as error:
        message = f"the configurations of autotuning are not read: {error}"
        raise NotRecognised(tuned or function, message, "write them out, or say the one to take: --config") from None
    if not configs:
        raise NotRecognised(function, f"{function.name} has no configurations", "explore up { tile [64, 256] }, say")
    return configs


def _listed(tuned: ast.expr) -> dict[str | None, ast.expr]:
    """The arguments of autotuning by name."""
    call = tuned if isinstance(tuned, ast.Call) else ast.Call(tuned, [], [])
    return {**dict(zip(("configs",), call.args, strict=False)), **{each.arg: each.value for each in call.keywords}}


def take_branches(function: ast.FunctionDef, config: Config) -> None:
    """Leave of each ``if`` and ``x if y else z`` of ``function`` that the configuration decides what it decides for."""
    _Decided(config.settings).visit(function)
    ast.fix_missing_locations(function)


class _Decided(ast.NodeTransformer):
    def __init__(self, settings: Mapping[str, Setting]) -> None:
        self._settings = settings

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        decided = self._decide(node.test)
        return node if decided is None else (node.body if decided else node.orelse) or ast.Pass()

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        self.generic_visit(node)
        decided = self._decide(node.test)
        return node if decided is None else node.body if decided else node.orelse

    def _decide(self, test: ast.expr) -> bool | None:
        match test:
            case ast.Name(name) if name in self._settings:
                return bool(self._settings[name])
            case ast.UnaryOp(ast.Not(), operand):
                decided = self._decide(operand)
                return None if decided is None else not decided
            case ast.Compare(ast.Name(name), [ast.Eq() | ast.NotEq() as operator], [ast.Constant(value)]):
                same = None if name not in self._settings else self._settings[name] == value
                return same if same is None or isinstance(operator, ast.Eq) else not same
        return None


_BY_PLACE = ("num_warps", "num_stages", "num_ctas", "maxnreg")
LAUNCH = (*_BY_PLACE, "waves_per_eu", "matrix_instr_nonkdim", "kpack", "ir_override")
"""What a configuration may say of the launch, the first of it without names."""


def _chosen(module: ast.Module, tuned: ast.expr, wanted: Config | None) -> Config:
    options = _listed(tuned)
    for name in _HOOKS:
        if name in options and ast.unparse(options[name]) not in ("None", "[]"):
            message = f"autotuning with {name} changes what the kernel reads or writes before it runs"
            raise NotRecognised(tuned, message, f"leave {name} out")
    try:
        configs = _configs(module, options.get("configs"))
    except _NotRead as error:
        if wanted is not None:
            return wanted
        message = f"the configurations of autotuning are not read: {error}"
        hint = "say the one to take: --config NAME=VALUE,... with the sizes of a tile"
        raise NotRecognised(tuned, message, hint) from None
    fitting = [each for each in configs if wanted is None or each.has(wanted.settings)]
    if len(fitting) == 1:
        return fitting[0]
    shown = "; ".join(each.text for each in (fitting or configs)[:MAX_LISTED])
    more = len(fitting or configs) - MAX_LISTED
    all_of_them = f"{shown}{f'; and {more} more' if more > 0 else ''}"
    if not configs:
        raise NotRecognised(tuned, "autotuning has no configuration", "give it one, or leave @triton.autotune out")
    if not fitting:
        raise NotRecognised(tuned, f"no configuration has {wanted and wanted.text}", f"there are: {all_of_them}")
    message = f"{len(fitting)} configurations{' fit' if wanted else ''}, and tables are made for one size of tiles"
    raise NotRecognised(tuned, message, f"choose one by --config NAME=VALUE,...: {all_of_them}")


def _hint(decorator: ast.expr) -> str:
    if _is(decorator, "heuristics"):
        keys = [key for node in ast.walk(decorator) if isinstance(node, ast.Dict) for key in node.keys]
        names = ", ".join(str(key.value) for key in keys if isinstance(key, ast.Constant)) or "what they compute"
        return f"leave @triton.heuristics out, and pass {names} when the kernel is called"
    return "leave it out: what wraps the kernel launches it with its old parameters, and knows nothing of tables"


def _is(decorator: ast.expr, name: str) -> bool:
    return ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator).split(".")[-1] == name


# Reading lists.


_CIRCLE = object()


class _NotRead(Exception):
    """What is not read of an expression."""


def _configs(module: ast.Module, listed: ast.expr | None) -> list[Config]:
    if listed is None:
        return []
    try:
        made = _Reader(module).value(listed, {})
    except RecursionError:
        raise _NotRead("functions go in circles") from None
    except (TypeError, ValueError) as error:  # a list as a key, or a range without steps
        raise _NotRead(str(error)[:60]) from None
    if not isinstance(made, list) or not all(isinstance(each, Config) for each in made):
        raise _NotRead("they are no list of triton.Config")
    return list({each.text: each for each in made}.values())


@dataclass(slots=True)
class _Reader:
    """Computes lists of configurations from what a file writes out."""

    module: ast.Module
    _num_values: int = 0
    _definitions: dict[str, object] = field(default_factory=dict)
    """By name; a circle while it is read."""

    def value(self, node: ast.expr, names: Names) -> object:
        """Return the value of an expression, in which ``names`` have theirs.

        Raises
        ------
        _NotRead
            If it is not written out, or takes too many values.
        """
        self._num_values += 1
        if self._num_values > MAX_VALUES:
            raise _NotRead(f"they take more than {MAX_VALUES:,} values")
        match node:
            case ast.Constant(value):
                return value
            case ast.List(parts) | ast.Tuple(parts) | ast.Set(parts):
                return [self.value(each, names) for each in parts]
            case ast.Dict(keys, values) if all(key is not None for key in keys):
                pairs = zip((key for key in keys if key is not None), values, strict=True)
                return {self.value(k, names): self.value(v, names) for k, v in pairs}
            case ast.Name(name):
                return names[name] if name in names else self._function(name) or self._defined(name)
            case ast.BinOp(left, ast.Add() | ast.Mult() | ast.FloorDiv() | ast.Pow() | ast.BitOr() as operator, right):
                return _computed(operator, *(self.value(each, names) for each in (left, right)))
            case ast.ListComp(element, generators) | ast.GeneratorExp(element, generators):
                rounds = list(islice(self._rounds(generators, names), MAX_CONFIGS))
                return [self.value(element, each) for each in rounds]
            case ast.Call():
                return self._called(node, names)
        raise _NotRead(ast.unparse(node)[:60])

    def _rounds(self, generators: Sequence[ast.comprehension], names: Names) -> Iterator[Names]:
        if not generators:
            yield names
            return
        first, over = generators[0], self.value(generators[0].iter, names)
        if first.ifs or not isinstance(over, list):
            raise _NotRead(ast.unparse(first)[:60])
        for each in over:
            yield from self._rounds(generators[1:], {**names, **_bound(first.target, each)})

    def _defined(self, name: str) -> object:
        if name not in self._definitions:
            self._definitions[name] = _CIRCLE
            self._definitions[name] = self.value(self._definition(name), {})
        if self._definitions[name] is _CIRCLE:
            raise _NotRead("definitions go in circles")
        return self._definitions[name]

    def _definition(self, name: str) -> ast.expr:
        found = [each.value for each in self.module.body if isinstance(each, ast.Assign) and name in assigned([each])]
        stores = [node for node in ast.walk(self.module) if isinstance(node, ast.Name) and node.id == name]
        written = sum(isinstance(node.ctx, ast.Store) for node in stores)
        changed = (node for node in ast.walk(self.module) if isinstance(node, ast.Call | ast.Subscript))
        if len(found) != 1 or written > 1 or any(_changes(node, name) for node in changed):
            raise _NotRead(f"{name} is not one list that is written out")
        return found[0]

    def _called(self, call: ast.Call, names: Names) -> object:
        name = name_of(call)
        hooks = [each.value for each in call.keywords if each.arg == "pre_hook" and name == "Config"]
        if any(ast.unparse(each) != "None" and names.get(ast.unparse(each), each) is not None for each in hooks):
            hint = "leave pre_hook out, and have descriptors of these blocks when the kernel is called"
            raise NotRecognised(call, "a configuration has a hook before the kernel", hint)
        values = [self.value(each, names) for each in call.args]
        options = {each.arg: self.value(each.value, names) for each in call.keywords if each.arg is not None}
        if name == "Config":
            return _config(call, values, options)
        if name == "dict" and not values:
            return options
        if name == "list" and len(values) == 1:
            return values[0]
        if name == "range" and values and all(isinstance(each, int) for each in values):
            return list(range(*(each for each in values if isinstance(each, int)))[:MAX_CONFIGS])
        if name == "product" and not options:
            return self._products(values)
        function = self._function(name)
        if function is None:
            raise _NotRead(f"{name}() computes them")
        arguments = [each.arg for each in function.args.args]
        defaults = zip(arguments[::-1], function.args.defaults[::-1], strict=False)
        given = {each: self.value(node, {}) for each, node in defaults}
        given |= dict(zip(arguments, values, strict=False)) | options
        for each in function.body:
            match each:
                case ast.Assign([ast.Name(local)], value):
                    given[local] = self.value(value, given)
        returned = [self.value(node, given) for node in _returned(name, function.body)]
        if len(returned) == 1:
            return returned[0]
        return [config for each in returned if isinstance(each, list) for config in each]

    def _function(self, name: str) -> ast.FunctionDef | None:
        found = [each for each in self.module.body if isinstance(each, ast.FunctionDef) and each.name == name]
        return found[0] if len(found) == 1 else None

    def _products(self, lists: Sequence[object]) -> list[object]:
        found: list[list[object]] = [[]]
        for each in lists:
            if not isinstance(each, list) or len(found) * len(each) > MAX_CONFIGS:
                raise _NotRead("a product of what are no lists")
            found = [[*one, more] for one in found for more in each]
        return list(found)


def _returned(name: str, body: Sequence[ast.stmt]) -> Iterator[ast.expr]:
    """Yield what a function returns, on whichever machine it runs."""
    for each in body:
        match each:
            case ast.Return(value) if value is not None:
                yield value
                return
            case ast.If(_, inner, orelse):
                yield from _returned(name, inner)
                if orelse:
                    yield from _returned(name, orelse)
                    return
            case ast.Assign() | ast.Expr(ast.Constant()):
                pass
            case _:
                raise _NotRead(f"{name}() computes them")
    if not body or isinstance(body[-1], ast.Expr):
        raise _NotRead(f"{name}() computes them")


def _changes(node: ast.Call | ast.Subscript, name: str) -> bool:
    """Whether a list is changed by one of its methods, or in place."""
    if isinstance(node, ast.Subscript):
        return isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == name
    return isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) == name


def _config(call: ast.Call, values: Sequence[object], options: Mapping[str, object]) -> Config:
    settings = options.get("kwargs", values[0] if values else {})
    if not isinstance(settings, dict):
        raise _NotRead(ast.unparse(call)[:60])
    launch = dict(zip(_BY_PLACE, values[1:], strict=False))
    more = {name: value for name, value in options.items() if name not in ("kwargs", "pre_hook")}
    return Config({str(name): value for name, value in {**settings, **launch, **more}.items()})


def _computed(operator: ast.operator, one: object, other: object) -> object:
    if isinstance(operator, ast.Add) and isinstance(one, list) and isinstance(other, list):
        if len(one) + len(other) > MAX_CONFIGS:
            raise _NotRead(f"a list of more than {MAX_CONFIGS:,}")
        return [*one, *other]
    if isinstance(operator, ast.BitOr) and isinstance(one, dict) and isinstance(other, dict):
        return one | other
    if isinstance(one, int) and isinstance(other, int) and max(abs(one), abs(other)) < MAX_NUMBER:
        match operator:
            case ast.Add():
                return one + other
            case ast.Mult():
                return one * other
            case ast.FloorDiv() if other:
                return one // other
            case ast.Pow() if 0 <= other < 64:
                return one**other
    raise _NotRead("a number that is computed")


def _bound(target: ast.expr, value: object) -> dict[str, object]:
    if isinstance(target, ast.Name):
        return {target.id: value}
    if isinstance(target, ast.Tuple | ast.List) and isinstance(value, list) and len(value) == len(target.elts):
        parts = (_bound(one, each) for one, each in zip(target.elts, value, strict=True))
        return {name: part for each in parts for name, part in each.items()}
    raise _NotRead(ast.unparse(target))
