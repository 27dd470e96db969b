"""``--over``: the parameter of a file that a threshold of several ops is a value of."""

from ...advisor.sensitivity.threshold_several import ParamAxis, values_around
from ...compiler.ir import GraphScenario
from ...compiler.pipeline import compile_text
from ..text.door import say
from .inputs import ScenarioInput, is_stdin, source_of


def axis_over(source: ScenarioInput, name: str | None) -> ParamAxis | None:
    """Return the values of a parameter, and the scenario at each; None where there is none, which is said.

    Without a ``name`` it is the only parameter with a whole number.

    Raises
    ------
    CompileError
        If the file has an error.
    """
    if is_stdin(source.file):
        say("magus: --threshold of several ops reads the file again: give its name")
        return None
    text = source_of(source.file)
    params = compile_text(text.text, text.path, source.settings).params
    whole = {each.name: each for each in params if each.value.isdecimal()}
    if name not in whole and (name is not None or len(whole) != 1):
        names = f"one of {', '.join(whole)}" if whole else "but the file has no parameter with a whole number"
        say(f"magus: --threshold of several ops is about a parameter: name it with --over, {names}")
        return None
    param = whole[name] if name is not None else next(iter(whole.values()))
    others = tuple((key, value) for key, value in source.settings if key != param.name)

    def at(value: int) -> GraphScenario:
        return compile_text(text.text, text.path, (*others, (param.name, str(value)))).scenario(source.workload)

    listed = tuple(sorted(int(each) for each in param.choices if each.isdecimal()))
    now = int(param.value)
    return ParamAxis(param.name, now, listed or values_around(now), at)
