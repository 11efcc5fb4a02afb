"""What the commands share: the app and its groups, options that several take, progress."""

from __future__ import annotations

import os
import re
import sysconfig
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import tinyweb
from tinyweb.errors import ExportError, TinywebError
from tinyweb.kinds import Activations, CacheKind, ExportQuant, Quant

if TYPE_CHECKING:
    from rich.console import Console

    from tinyweb.export.compile import Progress
    from tinyweb.export.profiles import Fit
    from tinyweb.quantization import QuantOptions, Report
    from tinyweb.sources import Wanted

LIBRARIES = (Path(tinyweb.__file__).parent, *{Path(sysconfig.get_path(p)) for p in ("stdlib", "purelib", "platlib")})
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


class Backend(StrEnum):
    """What a bundle has kernels for."""

    webgpu = "webgpu"
    wasm = "wasm"


FROM = "a folder or file here, a name on the Hugging Face hub (org/model, with @REVISION, :FILE), or an address"


def source_argument(what: str) -> Any:
    """Where the model comes from; `located` makes a path of it."""
    return typer.Argument(metavar="SOURCE", help=f"{what}: {FROM}.", show_default=False)


ChatSource = Annotated[str, source_argument("A chat model")]
SiteFolder = Annotated[
    Path, typer.Argument(metavar="SITE", help="A folder that `tinyweb export` wrote.", show_default=False)
]
# What the exports take alike.
Output = Annotated[
    Path, typer.Option("-o", "--output", metavar="SITE", help="The site's folder; new or empty.", show_default=False)
]
WeightQuant = Annotated[
    ExportQuant | None,
    typer.Option(
        help="Weights: as they are stored, 32 or 16 bit floats, integers of 8 to 3 bits, or mixed by --bytes (default: "
        "as stored where that is quantised, as in GGUF files, else q8)."
    ),
]
RunQuant = Annotated[Quant | None, typer.Option(help="Precision of weights (default: as they are stored).")]
GROUP = "32"
Group = Annotated[
    str, typer.Option("--group", metavar="N", help="Weights that share a scale: 32, 64, 128, or channel: a whole row.")
]
ZeroPoints = Annotated[
    bool, typer.Option("--zero-points", help="Give each group an integer that stands for 0 (default: symmetric).")
]
QuantEmbedding = Annotated[
    str | None,
    typer.Option(
        "--quant-embedding", metavar="QUANT", help="The table of words (default: as --quant, but at least q8)."
    ),
]
QuantHead = Annotated[
    str | None,
    typer.Option("--quant-head", metavar="QUANT", help="The matrix of logits (default: as the table of words)."),
]
Bytes = Annotated[
    str | None,
    typer.Option("--bytes", metavar="SIZE", help="Of --quant mixed: all weights, at most, as in 700MB or 1.5GiB."),
]
Calibrate = Annotated[
    Path | None,
    typer.Option(
        "--calibrate", metavar="FILE", help="Fit integers to what the model does with this text.", show_default=False
    ),
]
Profile = Annotated[
    str | None,
    typer.Option(
        help="Choose what fits a kind of device: desktop, integrated, phone, old-phone, wasm-4g, wasm-2g.",
        show_default=False,
    ),
]
Evaluate = Annotated[
    Path | None,
    typer.Option(
        "--evaluate", metavar="FILE", help="Compare with f32 on this text (default: a held-out part of --calibrate).",
        show_default=False,
    ),
]  # fmt: skip
ActivationsChoice = Annotated[
    Activations | None,
    typer.Option(
        help="What weights are multiplied with (default: int8 in WebAssembly with quantised ones, else float)."
    ),
]
CacheChoice = Annotated[
    CacheKind | None,
    typer.Option(help="Keys and values of earlier tokens (default: f16; f32 beside weights of 32 bits)."),
]
Targets = Annotated[list[Backend], typer.Option("--target", help="What it is to run on; may be given twice.")]
ALL_TARGETS = [*Backend]
ShardBytes = Annotated[int, typer.Option(help="The largest size of one file of weights.")]
SHARD_BYTES = 16 * 2**20
Name = Annotated[str | None, typer.Option(help="The model's name in the page (default: its folder's or file's).")]
Force = Annotated[bool, typer.Option("--force", help="Replace what an earlier export wrote.")]
Tune = Annotated[
    float | None,
    typer.Option(
        "--tune", metavar="SECONDS", min=1, help="Look for faster kernels first, about so long; they are remembered."
    ),
]
Dims = Annotated[
    list[str] | None,
    typer.Option(
        "--dim", metavar="NAME=N", help="What a symbolic size of an ONNX graph is (repeatable): NAME=1; NAME=16,64, "
        "each a function of its own; NAME=1:512, or in steps NAME=32:640:32, any of these, told by a call's inputs; "
        "NAME=OTHER, the same as another size."
    ),
]  # fmt: skip
Fixed = Annotated[
    list[str] | None,
    typer.Option("--fix", metavar="NAME=VALUE", help="An input of one number that is known (repeatable)."),
]
Page = Annotated[bool, typer.Option("--page/--no-page", help="Put a page beside the bundle that tries it.")]
TemplateFile = Annotated[
    Path | None,
    typer.Option(
        "--chat-template", metavar="FILE", help="A chat template (Jinja2) to take in place of the model's.",
        show_default=False,
    ),
]  # fmt: skip
LARGEST = (1 << 31) - 1  # of a size
DEVICES = "A device, as CPU, WEBGPU or, the second of its kind, CPU:1; several, as CPU,CPU:1, divide a language model"
DeviceChoice = Annotated[
    str | None, typer.Option("--device", help=f"{DEVICES} (default: TINYWEB_DEVICE or CPU).", show_default=False)
]


def _host_names(given: list[str] | None) -> list[str] | None:
    from tinyweb.hosts import is_name

    for name in given or ():
        if not is_name(name):
            raise typer.BadParameter(f"{name[:100]!r} is no name of a host: write it without scheme and port")
    return given


AllowHost = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME", callback=_host_names,
        help="One more host name to answer to (repeatable), beside localhost and the address itself.",
    ),
]  # fmt: skip
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Debug = Annotated[
    bool, typer.Option("--debug", help="Show the traceback of an error.")
]  # read by main(), wherever it stands


def stderr() -> Console:
    from rich.console import Console

    return Console(stderr=True, highlight=False, soft_wrap=True)


@contextmanager
def users_code() -> Iterator[None]:
    """Where a user's own Python is called: what it raises becomes a sentence, with the last line of it."""
    try:
        yield
    except (TinywebError, NotImplementedError, OSError, MemoryError):
        raise
    except Exception as error:
        places = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
        if isinstance(error, SyntaxError) and error.filename:
            places.append((error.filename, error.lineno))
        own = [
            (Path(file), line)
            for file, line in places
            if Path(file).is_file() and not any(Path(file).is_relative_to(library) for library in LIBRARIES)
        ]
        if not own:  # nothing of it is the user's: a defect
            raise
        file, line = own[-1]
        said = f"{type(error).__name__}: {error.msg if isinstance(error, SyntaxError) else error}"
        raise TinywebError(f"{os.path.relpath(file)}, line {line}: {said} (--debug shows more)") from error


def located(source: str, wanted: Wanted, command: str) -> Path:
    """The model's folder or file on this machine, one of those that `tinyweb run COMMAND` takes; what has to be
    downloaded is shown."""
    from tinyweb.export.inspect_source import expect
    from tinyweb.sources import locate

    with show_progress(stderr()) as progress:
        path = locate(source, wanted, progress)
    expect(path, command)
    return path


@contextmanager
def show_progress(console: Console) -> Iterator[Progress]:
    """Progress bars on standard error, one for every kind of step; where that is no terminal, a line for each."""
    from tinyweb.cli.progress import bars, lines

    with (bars if console.is_terminal else lines)(console) as progress:
        yield progress


def say_devices(console: Console, site: Path) -> None:
    """What to expect of a site that was exported on kinds of devices, and how to see it."""
    from tinyweb.export.inspect import inspect_site
    from tinyweb.export.profiles import Fit, line

    for device in inspect_site(site)["devices"]:
        console.print(f"  {device['title']}: {line(Fit(**device))}", markup=False)
    console.print(f"See it with: tinyweb serve {site} (--lan: on a phone)", markup=False)


def quant_options(
    group: str, zero_points: bool, embedding: str | None, head: str | None, size: str | None, calibrate: Path | None,
    evaluate: Path | None,
) -> QuantOptions:  # fmt: skip
    """What was said of a quantisation; TinywebError for what is none."""
    from tinyweb.quantization import QuantOptions
    from tinyweb.quantization.options import check_kind, parse_bytes, parse_group

    return QuantOptions(
        parse_group(group), zero_points, check_kind("--quant-embedding", embedding), check_kind("--quant-head", head),
        None if size is None else parse_bytes(size), calibrate, evaluate,
    )  # fmt: skip


def say_report(console: Console, report: Report) -> None:
    """What became of the weights."""
    from tinyweb.quantization.report import lines

    for line in lines(report):
        console.print(f"  {line}", markup=False)


def say_fit(console: Console, fit: Fit | None, chosen: str) -> None:
    """What was chosen for the device of a profile."""
    from tinyweb.export.profiles import size

    if fit is not None:
        console.print(f"For a {fit.title}: {chosen}, {size(fit.needs)} of {size(fit.memory)}", markup=False)


def sizes(given: list[str]) -> dict[str, Sequence[int] | str]:
    """What `--dim` says: NAME=N, NAME=N,M, NAME=LO:HI, NAME=LO:HI:STEP, NAME=OTHER."""
    found: dict[str, Sequence[int] | str] = {}
    for text in given:
        name, equals, values = text.rpartition("=")
        if name and re.fullmatch(r"[^\W\d].*", values):
            found[name] = values
            continue
        between = ":" in values
        try:
            told = [int(v) for v in values.split(":" if between else ",")]
            if not equals or not name or (between and len(told) not in (2, 3)):
                raise ValueError
        except ValueError:
            raise ExportError(
                f"--dim {text[:60]!r} is no size: write NAME=1, NAME=16,64, NAME=1:4, NAME=32:640:32 or NAME=OTHER."
            ) from None
        if min(told) < 0 or max(told) > LARGEST or told[2:] == [0]:
            raise ExportError(f"--dim {text[:60]!r} has no sizes, or one that is not from 0 to {LARGEST}.")
        found[name] = range(told[0], told[1] + 1, *told[2:]) if between else list(dict.fromkeys(told))
        if not found[name]:
            raise ExportError(f"--dim {text[:60]!r} has no sizes, or one that is not from 0 to {LARGEST}.")
    return found


def numbers(given: list[str]) -> dict[str, float]:
    """What `--fix` says."""
    found = {}
    for text in given:
        name, equals, value = text.rpartition("=")
        try:
            found[name] = float(value)
        except ValueError:
            equals = ""
        if not equals or not name:
            raise ExportError(f"--fix {text[:60]!r} is no number: write NAME=16000.")
    return found
