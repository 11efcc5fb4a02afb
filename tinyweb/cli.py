"""The command line: `tinyweb export|serve|run|tune|inspect|doctor`.

Results go to standard output, progress and errors to standard error. What a user did wrong is one sentence and exit
code 2; Ctrl-C is exit code 130. Modules are imported by the command that needs them: `tinyweb --help` is quick.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.exceptions import TyperException

import tinyweb
from tinyweb.errors import TinywebError

if TYPE_CHECKING:
    from rich.console import Console

    from tinyweb.export.compile import Progress
    from tinyweb.models.chat import Chat
    from tinyweb.tuning import Tuned

HELP = {"help_option_names": ["-h", "--help"]}
app = typer.Typer(
    help="Models that run inside the browser.", context_settings=HELP, add_completion=False, no_args_is_help=True
)
export_app = typer.Typer(help="Write a model as a static site.", context_settings=HELP, no_args_is_help=True)
run_app = typer.Typer(help="Run a model on this machine.", context_settings=HELP, no_args_is_help=True)
app.add_typer(export_app, name="export")
app.add_typer(run_app, name="run")
tune_app = typer.Typer(
    help="Find faster kernels for a model by timing them on this machine.", context_settings=HELP, no_args_is_help=True
)
app.add_typer(tune_app, name="tune")


class Activations(StrEnum):
    """What quantised weights are multiplied with."""

    float = "float"
    int8 = "int8"


class Quant(StrEnum):
    """How weights are stored."""

    f32 = "f32"
    f16 = "f16"
    q8 = "q8"
    q4 = "q4"


class Backend(StrEnum):
    """What a bundle has kernels for."""

    webgpu = "webgpu"
    wasm = "wasm"


ModelFolder = Annotated[
    Path, typer.Argument(metavar="FOLDER", help="A Hugging Face folder of a Llama model.", show_default=False)
]
SiteFolder = Annotated[
    Path, typer.Argument(metavar="SITE", help="A folder that `tinyweb export` wrote.", show_default=False)
]
Tune = Annotated[
    float | None,
    typer.Option(
        "--tune", metavar="SECONDS", min=1, help="Look for faster kernels first, about so long; they are remembered."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Debug = Annotated[
    bool, typer.Option("--debug", help="Show the traceback of an error.")
]  # read by main(), wherever it stands


def _version(wanted: bool) -> None:
    if wanted:
        print(f"tinyweb {tinyweb.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
    debug: Debug = False,
) -> None:
    """Models that run inside the browser."""


@export_app.command("chat")
def export_chat(
    folder: ModelFolder,
    output: Annotated[
        Path,
        typer.Option("-o", "--output", metavar="SITE", help="The site's folder; new or empty.", show_default=False),
    ],
    quant: Annotated[Quant, typer.Option(help="Weights: 32 or 16 bit floats, 8 or 4 bit integers.")] = Quant.q8,
    context: Annotated[
        int | None, typer.Option(min=2, help="Tokens of a conversation (default: what the model allows).")
    ] = None,
    shard_bytes: Annotated[int, typer.Option(help="The largest size of one file of weights.")] = 16 * 2**20,
    name: Annotated[str | None, typer.Option(help="The model's name in the page (default: the folder's).")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a site that an earlier export wrote.")] = False,
    activations: Annotated[
        Activations | None,
        typer.Option(help="What 8 or 4 bit weights are multiplied with (default: int8 in WebAssembly, float on GPUs)."),
    ] = None,
    tune: Tune = None,
    debug: Debug = False,
) -> None:
    """Write a chat model as a site that any web host serves, for WebGPU and WebAssembly."""
    from tinyweb.export.chat import ExportOptions
    from tinyweb.export.chat import export_chat as export

    console = _stderr()
    rounded = activations.value if activations else None
    options = ExportOptions(quant.value, context, shard_bytes, name, force, tune or 0.0, rounded)
    with _progress(console) as progress:
        made = export(folder, output, options, progress)
    console.print(
        f"{output}: {made.weight_bytes / 1e6:.1f} MB of weights in {made.shards} file(s), "
        f"{made.kernels_per_token} kernels per token"
    )
    console.print(f"See it with: tinyweb serve {output}", highlight=False)


@export_app.command("function")
def export_function(
    maker: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:NAME",
            help="A Python function without arguments that returns (function, example inputs); it is imported and run.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="SITE", help="The folder; new or empty.", show_default=False)
    ],
    target: Annotated[list[Backend], typer.Option(help="What it is to run on; may be given twice.")] = [  # noqa: B006
        Backend.webgpu,
        Backend.wasm,
    ],
    shard_bytes: Annotated[int, typer.Option(help="The largest size of one file of weights.")] = 16 * 2**20,
    name: Annotated[str | None, typer.Option(help="The model's name (default: the folder's).")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace what an earlier export wrote.")] = False,
    tune: Tune = None,
    debug: Debug = False,
) -> None:
    """Write a function of tensors as a bundle that a page of your own calls: model.run({name: typed array})."""
    from tinyweb.export.function import export_function as export
    from tinyweb.export.function import load_maker

    console = _stderr()
    function, inputs = load_maker(maker)()
    with _progress(console) as progress:
        made = export(
            function,
            inputs,
            output,
            name=name,
            targets=[t.value for t in target],
            shard_bytes=shard_bytes,
            force=force,
            tune=tune or 0.0,
            progress=progress,
        )
    weights = made["weights"]
    console.print(f"{output}: {weights['bytes'] / 1e6:.1f} MB of weights in {len(weights['shards'])} file(s)")


@app.command()
def serve(
    site: SiteFolder,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes any free one.")] = 8080,
    host: Annotated[str, typer.Option(help="The address to listen on; 0.0.0.0 lets other devices in.")] = "127.0.0.1",
    no_isolation: Annotated[
        bool, typer.Option("--no-isolation", help="Leave the headers out that allow threads.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show every request.")] = False,
    debug: Debug = False,
) -> None:
    """Serve an exported site until Ctrl-C."""
    from tinyweb.serve import serve as serve_site

    def log(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    serve_site(
        site,
        host,
        port,
        isolated=not no_isolation,
        say=lambda line: print(line, flush=True),
        log=log if verbose else None,
    )


@run_app.command("chat")
def run_chat(
    folder: ModelFolder,
    prompt: Annotated[str | None, typer.Option(help="What to say (default: chat in this terminal).")] = None,
    system: Annotated[str | None, typer.Option(help="The system prompt.")] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="The longest answer, in tokens.")] = 256,
    temperature: Annotated[float | None, typer.Option(min=0.0, help="0 always takes the likeliest token.")] = None,
    top_k: Annotated[int | None, typer.Option(min=0, help="Choose among so many likeliest tokens; 0: all.")] = None,
    top_p: Annotated[
        float | None, typer.Option(min=0.0, max=1.0, help="Choose among the likeliest of this total probability.")
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same answer.")] = 0,
    repetition_penalty: Annotated[
        float | None, typer.Option(min=0.01, max=100.0, help="Above 1: tokens that occurred become less likely.")
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="CPU, WASM, WEBGPU or INTERPRETER (default: TINYWEB_DEVICE or CPU).")
    ] = None,
    quant: Annotated[Quant | None, typer.Option(help="Precision of weights (default: as they are stored).")] = None,
    context: Annotated[
        int | None, typer.Option(min=2, help="Tokens of a conversation (default: what the model allows).")
    ] = None,
    tune: Tune = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Chat with a model on this machine. What no option says about choosing tokens, the model's folder does."""
    from dataclasses import replace

    from tinyweb.formats.huggingface import ModelFolder
    from tinyweb.formats.tokenizer import Tokenizer
    from tinyweb.models.chat import Chat, Settings
    from tinyweb.models.llama import Llama

    if prompt is None and as_json:
        raise typer.BadParameter("--json needs a --prompt")
    chosen = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "repetition_penalty": repetition_penalty}
    settings = replace(
        Settings.of_folder(ModelFolder(folder)),
        max_tokens=max_tokens,
        seed=seed,
        **{name: value for name, value in chosen.items() if value is not None},  # type: ignore[arg-type]
    )
    tokenizer = Tokenizer.from_folder(folder)
    messages = [{"role": "system", "content": system}] if system is not None else []
    tokenizer.prompt([*messages, {"role": "user", "content": ""}])  # a folder without a template is refused at once
    with _progress(_stderr()) as progress:
        model = Llama.from_folder(folder, quant.value if quant else None, context, device)
        if tune:
            from tinyweb.models.chat import entry_points, usual_calls
            from tinyweb.tuning import tune_kernels

            plans = entry_points(model, progress)
            tune_kernels(plans, device, tune, calls=usual_calls(plans), progress=progress)
        chat = Chat(model, tokenizer, settings, progress)
    if prompt is None:
        _converse(chat, messages)
        return
    messages.append({"role": "user", "content": prompt})
    if not as_json:
        _stream(chat, messages)
        return
    text, tokens = chat.answer(messages)
    answer = {
        "text": text,
        "tokens": tokens,
        "prompt_tokens": len(chat.statistics.prompt_ids),
        "prompt_ids": chat.statistics.prompt_ids,
        "tokens_per_second": round(chat.statistics.tokens_per_second, 2),
        "first_token_seconds": round(chat.statistics.first_token_seconds, 4),
        "device": chat.device.name,
    }
    print(json.dumps(answer, ensure_ascii=False))


def _stream(chat: Chat, messages: list[dict[str, str]]) -> str:
    """Write an answer as it comes."""
    text = ""
    for part in chat.generate(messages):
        text += part.text
        print(part.text, end="", flush=True)
    print(flush=True)
    return text


def _converse(chat: Chat, messages: list[dict[str, str]]) -> None:
    """A conversation in the terminal, until the input ends."""
    if sys.stdin.isatty():
        print("Say something; an empty line or Ctrl-D ends the chat.", file=sys.stderr)
    while True:
        try:
            said = input("> " if sys.stdin.isatty() else "")
        except EOFError:
            return
        if not said.strip():
            return
        messages.append({"role": "user", "content": said})
        messages.append({"role": "assistant", "content": _stream(chat, messages)})


Seconds = Annotated[float, typer.Option("--seconds", min=1, help="About how long to look.")]
TuneDevice = Annotated[
    str | None, typer.Option(help="CPU, WASM or WEBGPU (default: TINYWEB_DEVICE or CPU).", show_default=False)
]


@tune_app.command("chat")
def tune_chat(
    folder: ModelFolder,
    seconds: Seconds = 300.0,
    device: TuneDevice = None,
    quant: Annotated[Quant, typer.Option(help="Weights: 32 or 16 bit floats, 8 or 4 bit integers.")] = Quant.q8,
    context: Annotated[
        int | None, typer.Option(min=2, help="Tokens of a conversation (default: what the model allows).")
    ] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Find faster kernels for a chat model on a device; later runs on this machine use them."""
    from tinyweb.models.chat import entry_points, usual_calls
    from tinyweb.models.llama import Llama
    from tinyweb.tuning import tune_kernels

    with _progress(_stderr()) as progress:
        plans = entry_points(Llama.from_folder(folder, quant.value, context, device), progress)
        _show_tuned(tune_kernels(plans, device, seconds, calls=usual_calls(plans), progress=progress), as_json)


@tune_app.command("function")
def tune_function(
    maker: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:NAME",
            help="A Python function without arguments that returns (function, example inputs); it is imported and run.",
            show_default=False,
        ),
    ],
    seconds: Seconds = 60.0,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Find faster kernels for a function of tensors, on the device of its example inputs."""
    from tinyweb.export.function import load_maker
    from tinyweb.tuning import tune

    function, inputs = load_maker(maker)()
    arguments = (lambda: function(**inputs)) if isinstance(inputs, dict) else (lambda: function(*inputs))
    with _progress(_stderr()) as progress:
        _show_tuned(tune(arguments, seconds, progress=progress), as_json)


def _show_tuned(tuned: list[Tuned], as_json: bool) -> None:
    """What search found, kernel by kernel."""
    if as_json:
        print(json.dumps([t.record() for t in tuned], indent=2, ensure_ascii=False))
    else:
        print(*tuned, sep="\n")


@app.command()
def inspect(
    site: SiteFolder,
    verify: Annotated[bool, typer.Option("--verify", help="Check the hash of every file of weights.")] = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Tell what a site needs: kernels per token, memory, limits, variants."""
    from tinyweb.export.inspect import inspect_site, table

    report = inspect_site(site, verify)
    if as_json:
        print(json.dumps(report, indent=2, ensure_ascii=False))
    else:
        from rich.console import Console

        Console().print(table(report))


@app.command()
def doctor(as_json: AsJson = False, debug: Debug = False) -> None:
    """Tell which devices work here, which do not, and why."""
    from tinyweb.doctor import diagnose

    findings = diagnose()
    if as_json:
        report = {
            "version": tinyweb.__version__,
            "works": {f["name"]: f["works"] for f in findings},
            "findings": findings,
        }
        print(json.dumps(report, indent=2, ensure_ascii=False))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(show_header=False, box=None)
    for f in findings:
        mark = Text("works", style="green") if f["works"] else Text("does not work", style="red")
        grid.add_row(Text(f["name"], style="bold"), mark, Text(f["detail"] or f["reason"]))
    Console().print(grid)


def _stderr() -> Console:
    from rich.console import Console

    return Console(stderr=True, highlight=False, soft_wrap=True)


@contextmanager
def _progress(console: Console) -> Iterator[Progress]:
    """Progress bars on standard error, one for every kind of step; where that is no terminal, a line for each."""
    from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    if not console.is_terminal:
        said: set[str] = set()

        def say(step: str, done: int, total: int) -> None:
            if step not in said:
                said.add(step)
                console.print(f"tinyweb: {step}")

        yield say
        return
    with Bars(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console
    ) as bars:
        tasks: dict[str, TaskID] = {}

        def show(step: str, done: int, total: int) -> None:
            if step not in tasks:
                tasks[step] = bars.add_task(step, total=total)
            bars.update(tasks[step], completed=done, total=total)

        yield show


def _terminated(signum: int, frame: FrameType | None) -> None:
    sys.exit(128 + signum)  # unwinds, so that what is half-written goes away


def _sentence(error: BaseException) -> str | None:
    """What a user is told about an error; None for a defect of tinyweb, which keeps its traceback."""
    if isinstance(error, TinywebError | TyperException):
        text = error.format_message() if isinstance(error, TyperException) else str(error)
        text = text.strip().replace("Value error, ", "")
        return text if text.endswith((".", "!", "?")) or not text else text + "."
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return f"The disk is full{_where(error)}: make room and try again."
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}{_where(error)}."
    if isinstance(error, MemoryError):
        detail = f" ({error})" if str(error) else ""
        return f"There is not enough memory{detail}: close other programs or take a smaller model."
    return None


def _where(error: OSError) -> str:
    return f": {error.filename}" if error.filename else ""


def main(arguments: list[str] | None = None) -> None:
    """The `tinyweb` command; never returns."""
    arguments = sys.argv[1:] if arguments is None else arguments
    signal.signal(signal.SIGTERM, _terminated)
    # a script that starts us in the background leaves interrupts ignored; whoever sends one means it
    signal.signal(signal.SIGINT, signal.default_int_handler)
    command: Callable[..., Any] = typer.main.get_command(app)
    try:
        code = command(arguments, prog_name="tinyweb", standalone_mode=False)
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:  # the reader of our output has gone, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except Exception as error:
        sentence = _sentence(error)
        if sentence is None or "--debug" in arguments:
            raise
        if sentence:  # none where the help was shown instead
            print(f"tinyweb: {sentence}", file=sys.stderr)
        code = 2
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
