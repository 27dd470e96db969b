"""Commands that answer: the space, advice, tables and rules for runtimes."""

import os
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from ..drawing import Shows
from ..text.door import Exit, has_screen, missing, say, splash
from .options import (
    DEFAULT_WORKERS,
    MAX_SEED,
    BespokeOption,
    Count,
    FileArgument,
    JsonOption,
    NoCacheOption,
    NoVerifyOption,
    Out,
    OutOption,
    OverOption,
    PlotOption,
    PngOption,
    SchedulerOption,
    SensitivityOption,
    SetOption,
    ShowsOption,
    StrictOption,
    SvgOption,
    SweptOption,
    ToleranceOption,
    TopOption,
    TraceOption,
    TunedOption,
    WorkersOption,
    WorkloadOption,
    given_options,
    seconds_of,
    settings_of,
)


def schedules(
    file: FileArgument,
    workload: WorkloadOption = None,
    limit: Annotated[int | None, Count("--limit", help="List at most N.")] = None,
    settings: SetOption = None,
    json: JsonOption = False,
) -> None:
    """List the feasible schedules, and the lower bound on all."""
    from ..commands.answers.export import list_schedules
    from ..commands.inputs import ScenarioInput

    source = ScenarioInput(file, settings_of(settings), workload)
    raise typer.Exit(list_schedules(source, limit=limit, as_json=json))


def advise(
    file: FileArgument,
    workload: Annotated[
        str | None, typer.Option("--workload", metavar="W", help="The workload; default: all, as a table.")
    ] = None,
    top: TopOption = 8,
    bespoke: BespokeOption = 400,
    no_verify: NoVerifyOption = False,
    within: Annotated[
        str | None,
        typer.Option("--within", metavar="TIME", help="Answer after this time, such as 10s, as well as found."),
    ] = None,
    threshold: Annotated[
        bool, typer.Option("--threshold", help="Find the rows (M) from which overlap pays; simulates more.")
    ] = False,
    over: OverOption = None,
    sensitivity: SensitivityOption = False,
    seeds: Annotated[
        int,
        typer.Option(
            "--seeds", min=0, max=4096, metavar="N", help="Compare schedules over N draws of the routing of experts."
        ),
    ] = 0,
    kernel: TunedOption = None,
    how: Annotated[bool, typer.Option("--how", help="Tell step by step how to carry the schedule out.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Print all schedules, bound, ties, losses, reasons.")] = False,
    trace: TraceOption = None,
    svg: SvgOption = None,
    png: PngOption = None,
    draw: ShowsOption = Shows.TIMELINE,
    settings: SetOption = None,
    strict: StrictOption = False,
    json: JsonOption = False,
    workers: WorkersOption = DEFAULT_WORKERS,
    no_cache: NoCacheOption = False,
) -> None:
    """Recommend a schedule, with its gain and the proof."""
    from ...advisor import AdviceOptions
    from ..commands.answers.advise import AdviseOptions, advise_file
    from ..commands.inputs import ScenarioInput
    from ..commands.out import Pictures

    limit_s = None if within is None else seconds_of(within)
    advice = AdviceOptions(
        top, not no_verify, bespoke, workers=workers, within_s=limit_s, threshold=threshold, sensitivity=sensitivity
    )
    pictures = Pictures(trace, svg, png, draw)
    said = given_options("--top", "--bespoke", "--no-verify")
    options = AdviseOptions(advice, how, full, over, seeds, pictures, strict, json, said, kernel)
    raise typer.Exit(advise_file(ScenarioInput(file, settings_of(settings), workload), options))


def sweep(
    file: FileArgument,
    settings: SweptOption = None,
    workload: WorkloadOption = None,
    tolerance: ToleranceOption = 2.0,
    top: TopOption = 8,
    bespoke: BespokeOption = 0,
    no_verify: NoVerifyOption = False,
    json: JsonOption = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print the points as CSV and nothing else.")] = False,
    workers: WorkersOption = DEFAULT_WORKERS,
    scheduler: SchedulerOption = None,
    plot: PlotOption = None,
    no_cache: NoCacheOption = False,
) -> None:
    """Advise on a grid of sizes, and say where schedules change."""
    from ...advisor import AdviceOptions
    from ..commands.answers.sweep import SweepForm, SweepRequest, sweep_file

    if json and csv:
        raise typer.BadParameter("--json and --csv exclude each other")
    advice = AdviceOptions(top, not no_verify, bespoke, workers=workers)
    request = SweepRequest(file, settings_of(settings), workload, advice, tolerance / 100, scheduler)
    raise typer.Exit(sweep_file(request, SweepForm(json, csv, plot)))


def report(
    file: FileArgument,
    out: Annotated[Path, Out("-o", help="Write the page to this file, OUT.html.")],
    workload: WorkloadOption = None,
    settings: SetOption = None,
    top: TopOption = 8,
    bespoke: BespokeOption = 400,
    no_verify: NoVerifyOption = False,
    sensitivity: SensitivityOption = False,
    no_sweep: Annotated[bool, typer.Option("--no-sweep", help="Leave out the sweep over the file's param.")] = False,
    sweep_within: Annotated[
        str, typer.Option("--sweep-within", metavar="TIME", help="The longest time of the sweep, such as 2min.")
    ] = "30s",
    workers: WorkersOption = DEFAULT_WORKERS,
    no_cache: NoCacheOption = False,
) -> None:
    """Write the answer as a page to send: one HTML file.

    It has the gain, the timeline, the losses and a sweep.
    """
    from ...advisor import AdviceOptions
    from ..commands.inputs import ScenarioInput
    from ..commands.out import ReportOptions, report_file

    advice = AdviceOptions(top, not no_verify, bespoke, workers=workers, sensitivity=sensitivity)
    options = ReportOptions(out, advice, 0.0 if no_sweep else seconds_of(sweep_within))
    raise typer.Exit(report_file(ScenarioInput(file, settings_of(settings), workload), options))


def export(
    file: FileArgument,
    to: Annotated[str, typer.Option("--to", metavar="TARGET", help="What to write, such as policy.")],
    settings: SweptOption = None,
    options: Annotated[
        list[str] | None, typer.Option("--with", metavar="NAME=VALUE", help="Set an option of the target.")
    ] = None,
    out: OutOption = None,
    workload: WorkloadOption = None,
    tolerance: ToleranceOption = 2.0,
    top: TopOption = 8,
    no_verify: NoVerifyOption = False,
    workers: WorkersOption = DEFAULT_WORKERS,
    scheduler: SchedulerOption = None,
    no_cache: NoCacheOption = False,
) -> None:
    """Write the rules of a sweep as a file that a runtime reads."""
    from ...advisor import AdviceOptions
    from ..commands.answers.export import NAMES, export_file
    from ..commands.answers.sweep import SweepRequest

    if to not in NAMES:
        raise typer.BadParameter(f"'{to}' is none of {', '.join(NAMES)}", param_hint="--to")
    advice = AdviceOptions(top, not no_verify, bespoke=0, workers=workers)
    request = SweepRequest(file, settings_of(settings), workload, advice, tolerance / 100, scheduler)
    raise typer.Exit(export_file(request, to, dict(settings_of(options, "--with")), out))


def distill(
    pattern: Annotated[str, typer.Argument(metavar="PATTERN", help="Such as AG+GEMM, GEMM+RS, GEMM+AR.")],
    gpu: Annotated[str, typer.Option("--gpu", metavar="NAME", help="A GPU of the library, such as h100.")],
    ranks: Annotated[int, typer.Option("--ranks", min=2, metavar="N", help="Number of GPUs.")] = 8,
    topology: Annotated[
        str, typer.Option("--topology", metavar="NAME", help="switch, full_mesh or ring; default: as it is sold.")
    ] = "",
    dtype: Annotated[str, typer.Option("--dtype", metavar="TYPE", help="A type, such as bf16 or fp8.")] = "bf16",
    shapes: Annotated[int, typer.Option("--shapes", min=40, max=3000, metavar="N", help="Shapes to estimate.")] = 1000,
    seed: Annotated[int, typer.Option("--seed", min=0, max=MAX_SEED, metavar="N", help="Seed of the shapes.")] = 0,
    static: Annotated[
        bool, typer.Option("--static", help="By FiCCO's inputs, of its four schedules, for large shapes.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Write JSON instead of Python.")] = False,
    out: OutOption = None,
) -> None:
    """Write a small rule, schedule(m, n, k), for one system.

    It says how often it is right.
    """
    from ..commands.answers.export import write_rule

    question: dict[str, object] = {
        "pattern": pattern,
        "gpu": gpu,
        "topology": topology,
        "dtype": dtype,
    }
    raise typer.Exit(write_rule(question, ranks, num_shapes=shapes, seed=seed, static=static, as_json=json, out=out))


ModelsOption = Annotated[
    list[str], typer.Option("--model", metavar="NAME", help="A model that ships, or its config.json; several, or all.")
]
FRAMEWORKS = "vllm, sglang, trtllm; megatron, transformer-engine, torchtitan, deepspeed or maxtext; also vllm@0.11."
FrameworkOption = Annotated[str, typer.Option("--for", metavar="NAME", help=FRAMEWORKS)]


def ask(
    models: ModelsOption,
    gpu: Annotated[str, typer.Option("--gpu", metavar="NAME", help="A GPU of the library, such as b200.")],
    framework: FrameworkOption,
    tp: Annotated[int | None, Count("--tp", help="GPUs that share attention; default: 8.")] = None,
    dp: Annotated[int | None, Count("--dp", help="Attention by data.")] = None,
    ep: Annotated[int | None, Count("--ep", help="GPUs that share experts.")] = None,
    prefill: Annotated[int | None, typer.Option("--prefill", min=1, metavar="TOKENS", help="A prefill.")] = None,
    decode: Annotated[int | None, Count("--decode", help="A step of N sequences.")] = None,
    keys: Annotated[int, Count("--keys", help="Keys of each, in decode.")] = 4096,
    train: Annotated[bool, typer.Option("--train", help="A forward and a backward pass.")] = False,
    seq_len: Annotated[int, Count("--seq-len", help="Tokens of a sequence.")] = 4096,
    micro_batch: Annotated[int, Count("--micro-batch", help="Sequences at a time.")] = 1,
    gpus: Annotated[int | None, Count("--gpus", help="Which layout of so many GPUs?")] = None,
    sequences: Annotated[int | None, Count("--sequences", help="Of a prefill, or the batch with --gpus.")] = None,
    cp: Annotated[int | None, Count("--cp", help="Ranks that share a sequence, in a step of --gpus.")] = None,
    full: Annotated[bool, typer.Option("--full", help="Then all that advise says.")] = False,
    out: Annotated[Path | None, Out("-o", help="Write the file that switches on what pays.")] = None,
    json: JsonOption = False,
    scheduler: SchedulerOption = None,
    no_cache: NoCacheOption = False,
) -> None:
    """Say what to switch on for a model, with a framework.

    It names the gain over what the framework does today.
    """
    from ..commands.answers.ask import answer, answer_many, answer_step

    model, several = models[0], len(models) > 1 or "all" in models or scheduler is not None
    groups = tuple(name for name, size in (("tp", tp), ("dp", dp), ("ep", ep), ("cp", cp)) if size is not None)
    of_one = several and (full or out is not None or gpus is not None)
    wrong = _not_together(groups, gpus, train=train, of_one=of_one, writes=out is not None)
    if wrong:
        say(f"magus: {wrong}")
        raise typer.Exit(Exit.USAGE)
    if train and gpus is not None:
        raise typer.Exit(answer_step(model, gpu, framework, (gpus, sequences or 128, seq_len), cp=cp, as_json=json))
    one = {"tp": tp or 8, "dp": dp or 1, "ep": ep or 1, "train": train, "seq_len": seq_len, "micro_batch": micro_batch}
    question: dict[str, object] = {"gpu": gpu, "framework": framework, "prefill": prefill, "decode": decode}
    question |= {"keys": keys, "sequences": sequences, **(one if gpus is None else {"gpus": gpus})}
    if several:
        raise typer.Exit(answer_many(models, question, scheduler=scheduler, as_json=json))
    raise typer.Exit(answer(question | {"model": model}, workers=DEFAULT_WORKERS, full=full, as_json=json, out=out))


def _not_together(groups: tuple[str, ...], gpus: int | None, *, train: bool, of_one: bool, writes: bool) -> str:
    """Why options of ``ask`` do not go together, empty if they do; ``groups`` are the sizes that are given."""
    if "cp" in groups and not (train and gpus is not None):
        return "--cp is of a training step: --train --gpus N"
    if of_one:
        return "--full, -o and --gpus are about one model, asked without --scheduler"
    if writes and train and gpus is not None:
        return "-o is of --tp, --dp and --ep: the answer about a training step has the options of its framework"
    if gpus is not None and set(groups) - {"cp"}:
        return "--gpus asks which layout: leave --tp, --dp and --ep out"
    return ""


def serve(
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="Where to listen; others than this machine must be named.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, metavar="N", help="The port.")] = 8377,
    answer_within: Annotated[
        str, typer.Option("--within", metavar="TIME", help="The longest time of one answer, such as 30s.")
    ] = "30s",
    at_once: Annotated[int, Count("--at-once", max=64, help="Answers at a time.")] = 2,
    allowed: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-host",
            metavar="NAME",
            help="Another name under which the service is asked, such as that of a proxy, or * for any; repeatable.",
        ),
    ] = None,
    no_cache: NoCacheOption = False,
) -> None:
    """Answer requests of runtimes over HTTP, in JSON."""
    try:
        from ..service.server import serve as serve_http
    except ImportError as error:
        raise typer.Exit(missing(error, "serve")) from None
    raise typer.Exit(serve_http(host, port, seconds_of(answer_within), at_once, allowed or ()))


def tui(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE|FOLDER]", help="A scenario, or a folder of them; default: a list to choose from."
        ),
    ] = None,
    workload: WorkloadOption = None,
    settings: SetOption = None,
    no_cache: NoCacheOption = False,
) -> None:
    """Browse, change and compare in the terminal."""
    served = "TEXTUAL_DRIVER" in os.environ  # textual serve: the screen is a browser
    if not served and not has_screen():
        why = ", and TERM=dumb is none that can be drawn on" if os.environ.get("TERM") == "dumb" else ""
        say(f"magus tui needs a terminal{why}; use magus advise FILE to print the answer")
        raise typer.Exit(Exit.USAGE)
    if str(file) == "-":
        say("magus tui reads no scenario from stdin, which is the keyboard; use magus advise - to print the answer")
        raise typer.Exit(Exit.USAGE)
    with nullcontext() if served else splash(f"magus  {file or ''}  ..."):
        from ..app.app import MagusApp
        from ..app.background import wait_for_threads
        from ..app.session.listed_files import user_folder
    if os.environ.get("NO_COLOR") == "":
        del os.environ["NO_COLOR"]  # empty means unset (no-color.org), but Textual obeys it
    requested = (file, settings_of(settings), workload)
    screen = MagusApp(*requested, workers=DEFAULT_WORKERS, state_folder=user_folder(), at_once=True)
    try:
        screen.run()
    finally:
        wait_for_threads()
    raise typer.Exit(screen.return_code or Exit.DONE)
