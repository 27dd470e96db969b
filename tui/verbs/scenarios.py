"""Commands on scenarios and plans: check, write, simulate, carry out."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..drawing import Shows
from .options import (
    DEFAULT_WORKERS,
    Count,
    FileArgument,
    FilesArgument,
    JsonOption,
    NoCacheOption,
    Out,
    OutOption,
    PngOption,
    ScheduleOption,
    SetOption,
    ShowsOption,
    StrictOption,
    SvgOption,
    TraceOption,
    WorkersOption,
    WorkloadOption,
    given_options,
    settings_of,
)

if TYPE_CHECKING:
    from ...compiler.targets.kernel_tuning import Config


class Format(StrEnum):
    """Format of diagnostics."""

    TEXT = "text"
    JSON = "json"


class PlanFormat(StrEnum):
    """Format of a plan."""

    MGS = "mgs"
    JSON = "json"
    MSCCLPP = "mscclpp"
    SYNCOPATE = "syncopate"
    STEPS = "steps"
    TRITON = "triton"


class Carrier(StrEnum):
    """What carries plans out with real data."""

    NUMPY = "numpy"
    TORCH = "torch"


class Granularity(StrEnum):
    """Size of a simulated unit: a cache line, or a packet of 1 KiB."""

    LINE = "line"
    PACKET = "packet"


def check(
    files: FilesArgument,
    output: Annotated[Format, typer.Option("--format", help="Format of diagnostics.")] = Format.TEXT,
    settings: SetOption = None,
) -> None:
    """Show every error and warning of the files."""
    from ..commands.scenarios.files import check_files

    raise typer.Exit(check_files(files, settings_of(settings), as_json=output is Format.JSON))


def fmt(
    files: FilesArgument,
    check_only: Annotated[bool, typer.Option("--check", help="Change nothing; exit 1 if a file would change.")] = False,
    derived: Annotated[
        bool, typer.Option("--derived", help="Change nothing; print the files with backward passes written out.")
    ] = False,
) -> None:
    """Rewrite the files in the canonical form."""
    from ..commands.scenarios.files import format_files, print_derived

    if derived:
        raise typer.Exit(print_derived(files))
    raise typer.Exit(format_files(files, check_only=check_only))


def lsp() -> None:
    """Serve an editor: mistakes, completion and names of .mgs files."""
    from ..commands.scenarios.files import serve_editor

    raise typer.Exit(serve_editor())


def test(
    files: FilesArgument,
    settings: SetOption = None,
    json: JsonOption = False,
    workers: WorkersOption = DEFAULT_WORKERS,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 3 if a file has nothing to check.")] = False,
    no_cache: NoCacheOption = False,
) -> None:
    """Check every expect block of the files."""
    from ..commands.scenarios.run_tests import test_files

    raise typer.Exit(test_files(files, settings_of(settings), workers, as_json=json, strict=strict))


def simulate(
    file: FileArgument,
    workload: WorkloadOption = None,
    schedule: ScheduleOption = None,
    granularity: Annotated[
        Granularity, typer.Option("--granularity", help="What is simulated as one unit.")
    ] = Granularity.LINE,
    settings: SetOption = None,
    no_fold: Annotated[
        bool, typer.Option("--no-fold", help="Simulate every rank, not one for all that are alike.")
    ] = False,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, metavar="N", help="Draw the variability of the system with seed N.")
    ] = None,
    seeds: Annotated[
        int,
        typer.Option(
            "--seeds", min=0, max=4096, metavar="N", help="Add percentiles over N seeds, from --seed or 0 on."
        ),
    ] = 0,
    record_writes: Annotated[
        Path | None, Out("--record-writes", metavar="CSV", help="Write the writes of peers to rank 0 to this file.")
    ] = None,
    trace: TraceOption = None,
    svg: SvgOption = None,
    png: PngOption = None,
    draw: ShowsOption = Shows.TIMELINE,
    strict: StrictOption = False,
    json: JsonOption = False,
    no_cache: NoCacheOption = False,
) -> None:
    """Simulate one schedule: times, traffic and losses."""
    from ..commands.inputs import ScenarioInput
    from ..commands.out import Pictures, SimulateOptions
    from ..commands.scenarios.simulate import simulate_file

    options = SimulateOptions(
        schedule=schedule,
        at_line=granularity is Granularity.LINE,
        given=given_options("--granularity"),
        fold=not no_fold,
        seed=seed,
        num_seeds=seeds,
        record=record_writes,
        pictures=Pictures(trace, svg, png, draw),
        strict=strict,
        as_json=json,
    )
    raise typer.Exit(simulate_file(ScenarioInput(file, settings_of(settings), workload), options))


def run(
    file: FileArgument,
    workload: WorkloadOption = None,
    schedule: Annotated[
        str | None,
        typer.Option(
            "--schedule",
            metavar="S",
            help="A declared name, a template expression or a plan file; default: all that the file declares.",
        ),
    ] = None,
    settings: SetOption = None,
    seed: Annotated[int, typer.Option("--seed", min=0, metavar="N", help="The first seed.")] = 0,
    seeds: Annotated[int, Count("--seeds", max=4096, help="Carry each schedule out N times, in other orders.")] = 3,
    on: Annotated[
        Carrier, typer.Option("--on", help="numpy: in this process; torch: a process for each rank, over gloo.")
    ] = Carrier.NUMPY,
    json: JsonOption = False,
) -> None:
    """Carry schedules out with real data: is the result right?"""
    from ..commands.inputs import ScenarioInput
    from ..commands.scenarios.run import run_file

    source = ScenarioInput(file, settings_of(settings), workload)
    over_torch, wanted = on is Carrier.TORCH, range(seed, seed + seeds)
    raise typer.Exit(run_file(source, schedule=schedule, seeds=wanted, over_torch=over_torch, as_json=json))


def plan(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="A scenario, FILE.mgs; - reads it from stdin.")
    ] = None,
    workload: WorkloadOption = None,
    schedule: ScheduleOption = None,
    settings: SetOption = None,
    output: Annotated[
        PlanFormat,
        typer.Option("--format", help="Magus, JSON, steps in words, a Triton GEMM kernel, MSCCL++ or Syncopate."),
    ] = PlanFormat.MGS,
    rank: Annotated[
        int | None, typer.Option("--rank", min=0, metavar="R", help="With triton: the tables of rank R alone.")
    ] = None,
    kernel: Annotated[
        Path | None,
        typer.Option(
            "--kernel", metavar="KERNEL.py[::NAME]", help="With triton: rewrite the GEMM of this file, or the one NAME."
        ),
    ] = None,
    config: Annotated[
        str, typer.Option("--config", metavar="NAME=VALUE,...", help="With --kernel: the configuration of its tuning.")
    ] = "",
    out: OutOption = None,
    layers: Annotated[int | None, Count("--layers", max=64, help="With json: N of the layers that repeat.")] = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of plans.")] = False,
) -> None:
    """Write a schedule as a plan, in steps, or for another program.

    A plan has transfers, kernels and what each waits for.
    """
    from ..commands.inputs import ScenarioInput
    from ..commands.scenarios import plan as plans

    if schema:
        raise typer.Exit(plans.print_schema(out))
    if file is None:
        raise typer.BadParameter("name a scenario", param_hint="FILE")
    source = ScenarioInput(file, settings_of(settings), workload)
    if layers is not None and output is not PlanFormat.JSON:
        raise typer.BadParameter("--layers belongs to --format json")
    if output is PlanFormat.TRITON:
        chosen = _config(config, kernel)
        raise typer.Exit(plans.print_triton(source, schedule, rank=rank, kernel_file=kernel, config=chosen, out=out))
    if (rank, kernel, config) != (None, None, ""):
        raise typer.BadParameter("--rank, --kernel and --config belong to --format triton")
    if output in (PlanFormat.MSCCLPP, PlanFormat.SYNCOPATE):
        write = plans.print_mscclpp if output is PlanFormat.MSCCLPP else plans.print_syncopate
        raise typer.Exit(write(source, schedule=schedule, out=out))
    if output is PlanFormat.STEPS:
        raise typer.Exit(plans.print_steps(source, schedule=schedule, out=out))
    as_json = output is PlanFormat.JSON
    raise typer.Exit(plans.print_plan(source, schedule=schedule, as_json=as_json, layers=layers, out=out))


def _config(text: str, kernel: Path | None) -> "Config | None":
    from ...compiler.targets.kernel_tuning import config_of

    if not text:
        return None
    if kernel is None:
        raise typer.BadParameter("--config belongs to --kernel", param_hint="--config")
    try:
        return config_of(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--config") from None


def import_file(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="A dump, a log, or traces of ranks; - is stdin.")
    ],
    out: OutOption = None,
    gpu: Annotated[str, typer.Option("--gpu", metavar="NAME", help="Take the GPUs for this one of the library.")] = "",
    collective: Annotated[
        str, typer.Option("--collective", metavar="OP", help="The collective of a log, such as all_gather.")
    ] = "",
    traffic: Annotated[
        bool, typer.Option("--traffic", help="Write what GPUs send each other in profiles of a run, as a table.")
    ] = False,
) -> None:
    """Read in a machine, a log of nccl-tests or a trace of PyTorch.

    A machine comes from NCCL, RCCL, nvidia-smi, rocm-smi or InfraGraph, traffic also from rocprofv3 and Nsight Systems.
    """
    from ..commands.scenarios.import_file import import_files

    raise typer.Exit(import_files(files, gpu=gpu, collective=collective, traffic=traffic, out=out))


def replay(
    files: Annotated[
        list[Path], typer.Argument(metavar="TRACE...", help="A trace of torch.profiler or Chakra; then of other ranks.")
    ],
    out: Annotated[Path | None, Out("-o", help="Write the step as a scenario, too.")] = None,
    gpu: Annotated[str, typer.Option("--gpu", metavar="NAME", help="Take the GPUs for this one of the library.")] = "",
    step: Annotated[
        int | None, typer.Option("--step", metavar="N", help="A step that the trace marks; else the last.")
    ] = None,
    no_advise: Annotated[bool, typer.Option("--no-advise", help="Do not search how it could be.")] = False,
    no_cache: NoCacheOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Show a step of a trace: measured, simulated, as it could be.

    All kernels of the trace become a workload, with their streams and the times in which none ran. Traces of several
    ranks are simulated together.
    """
    from ..commands.scenarios.run import replay_trace

    raise typer.Exit(replay_trace(files, gpu=gpu, number=step, advise=not no_advise, out=out, as_json=as_json))


def from_model(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="A model that ships, or its config.json.")],
    gpu: Annotated[str, typer.Option("--gpu", metavar="NAME", help="A GPU of the library, such as h100.")],
    tp: Annotated[int, Count("--tp", help="GPUs that share each layer.")] = 8,
    framework: Annotated[
        str, typer.Option("--for", metavar="NAME", help="As a framework shares the layer, such as vllm.")
    ] = "",
    dp: Annotated[int, Count("--dp", help="With --for: attention by data.")] = 1,
    ep: Annotated[int, Count("--ep", help="With --for: GPUs that share experts.")] = 1,
    node: Annotated[int, Count("--node", help="GPUs of a node; rails join several.")] = 8,
    no_sequence_parallel: Annotated[
        bool, typer.Option("--no-sequence-parallel", help="Activations are whole on every GPU: all_reduce.")
    ] = False,
    pairs: Annotated[
        bool, typer.Option("--pairs", help="Each GEMM beside its collective alone, and not the layer as a whole.")
    ] = False,
    decode: Annotated[
        int | None,
        typer.Option("--decode", min=1, metavar="KEYS", help="A step of decode, of sequences with so many keys."),
    ] = None,
    gpus: Annotated[int | None, Count("--gpus", help="A training step on so many GPUs.")] = None,
    sequences: Annotated[int, Count("--sequences", help="With --gpus: the batch.")] = 128,
    seq_len: Annotated[int, Count("--seq-len", help="With --gpus: their tokens.")] = 4096,
    out: OutOption = None,
) -> None:
    """Write the workloads of a layer of a model as a scenario."""
    from ..commands.scenarios.import_file import ModelOptions, write_layer, write_step

    if gpus is not None:
        raise typer.Exit(write_step(config, gpu, gpus, node, (sequences, seq_len), out))
    options = ModelOptions(gpu, tp, node, not no_sequence_parallel, framework, dp, ep, decode)
    raise typer.Exit(write_layer(config, options, out, whole=not pairs))
