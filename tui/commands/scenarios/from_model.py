"""``magus from-model``: the workloads of a layer of a model, as a scenario."""

from pathlib import Path

from ....compiler.from_model.config import read_config
from ....compiler.from_model.layer import Parallelism, layer_text, number_text
from ....compiler.request.errors import RequestError
from ....compiler.text.formatting.fmt import format_text
from ...exit_codes import Exit
from ...text.door import put_text
from ..console import report_errors, save, say_request_error


def write_layer(config: Path, parallel: Parallelism, out: Path | None, *, whole: bool) -> Exit:
    """Write the scenario of the model in ``config`` to ``out`` or stdout, as a ``whole`` layer if that can be."""

    def action() -> Exit:
        model = read_config(config)
        try:
            text = format_text(layer_text(model, parallel, whole=whole))
        except RequestError as error:
            say_request_error(error)
            return Exit.INPUT
        if out is not None:
            return save(out, text, f"{out}: a layer of {model.name}, {number_text(model.parameters)} parameters")
        put_text(text)
        return Exit.DONE

    return report_errors(action)
