"""How soon an editor is answered, on a scenario of 300 lines.

    python -m benchmarks.language

Each figure is that of a text that was changed at another place before: nothing of the old text is known again. That of
``magus lsp`` is from the change to the diagnostics of a client over stdio.
"""

import asyncio
import importlib.util
import statistics
import sys
import time
from collections.abc import Iterator
from functools import partial

from magus.compiler.pipeline import compile_text
from magus.compiler.services.completion import complete
from magus.compiler.services.document import colours, read_document
from magus.compiler.services.hover import hover

from .harness.report import Figure, main, timed

LINES, CHANGES = 300, 7
TARGET_S = 0.2


def scenario() -> str:
    """A scenario of 300 lines or a few more, without errors: a layer after the other, each with questions."""
    lines = ['use "amd/mi300x"', "param M = 8192 in 16..65536 x2"]
    while len(lines) < LINES:
        lines += _layer(len(lines))
    text = "\n".join(lines) + "\n"
    compile_text(text)
    return text


def _layer(part: int) -> list[str]:
    """A score of lines about one more layer: a system, a workload, two schedules, what to explore and to expect."""
    gpus, k = (4, 8)[part % 2], 4096 + 64 * part
    return f"""
# layer {part}
let k{part} = {k}
system node{part} {{ gpus {gpus} x MI300X; fabric full_mesh(xgmi) }}

workload up{part} on node{part} {{
  x = tensor bf16[M, k{part}] shard rows
  w = tensor bf16[k{part}, 16384] shard cols
  y = gemm(all_gather(x), w)
}}

schedule fine{part} for up{part} = uniform_fused_1d(chunks=64, engine=dma({gpus - 1}))
schedule uneven{part} for up{part} {{
  split rows into 4; group own alone, by piece; order own first
  move by dma({gpus - 1})
}}

explore up{part} {{ schedules all; chunks 8..64 x2; engine dma, sm(16); staging <= 2 GiB }}
expect up{part} {{ fine{part}.makespan < 20 ms; speedup(best, serial) >= 1 }}
expect up{part} with M = {1024 * (1 + part % 4)} {{ verdict == serial }}
""".splitlines()


def measure() -> Iterator[Figure]:
    """Yield the figures."""
    text = scenario()
    texts = [f"{text}let z{idx} = 1 s + {idx} B\n" for idx in range(CHANGES)]
    place = text.index("chunks=64")
    for name, ask, target in (
        ("mistakes of a changed text", lambda each: read_document(each, "a.mgs").diagnostics, TARGET_S),
        ("completion, mistakes known", lambda each: complete(read_document(each, "a.mgs"), place), 0.05),
        ("hover, mistakes known", lambda each: hover(read_document(each, "a.mgs"), place), 0.05),
        ("colours of a changed text", colours, 0.05),
    ):
        median_s = statistics.median(timed(partial(ask, each))[0] for each in texts)
        yield Figure(name, median_s, "s", "lower", target)
    if importlib.util.find_spec("pygls") is not None:
        yield Figure(
            "magus lsp: from a change to its diagnostics", asyncio.run(_served_s(texts)), "s", "lower", TARGET_S
        )


async def _served_s(texts: list[str]) -> float:
    """The median time from a change to its diagnostics, of a real client."""
    from lsprotocol import types
    from pygls.lsp.client import LanguageClient

    client, published = LanguageClient("bench", "1"), asyncio.Queue[types.PublishDiagnosticsParams]()

    @client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)  # type: ignore[untyped-decorator]
    def publish(params: types.PublishDiagnosticsParams) -> None:
        published.put_nowait(params)

    await client.start_io(sys.executable, "-m", "magus.tui.cli", "lsp")
    await client.initialize_async(types.InitializeParams(types.ClientCapabilities()))
    uri, times = "file:///a.mgs", []
    client.text_document_did_open(types.DidOpenTextDocumentParams(types.TextDocumentItem(uri, "mgs", 0, texts[0])))
    await published.get()
    for version, text in enumerate(texts[1:], 1):
        begin = time.perf_counter()
        which = types.VersionedTextDocumentIdentifier(version=version, uri=uri)
        change = types.TextDocumentContentChangeWholeDocument(text)
        client.text_document_did_change(types.DidChangeTextDocumentParams(which, [change]))
        found = await published.get()
        assert found.diagnostics, "the text has a mistake"
        times.append(time.perf_counter() - begin)
    await client.shutdown_async(None)
    client.exit(None)
    await client.stop()  # type: ignore[no-untyped-call]
    return statistics.median(times)


if __name__ == "__main__":
    sys.exit(main(__doc__.split("\n")[0], measure))
