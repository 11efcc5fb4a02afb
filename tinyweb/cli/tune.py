"""`tinyweb tune`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from tinyweb.cli.common import (
    AsJson,
    CacheChoice,
    ChatSource,
    Debug,
    DeviceChoice,
    RunQuant,
    located,
    show_progress,
    stderr,
    tune_app,
    users_code,
)

if TYPE_CHECKING:
    from tinyweb.tuning import Tuned

Seconds = Annotated[float, typer.Option("--seconds", min=1, help="About how long to look.")]


@tune_app.command("chat")
def tune_chat(
    source: ChatSource,
    seconds: Seconds = 300.0,
    device: DeviceChoice = None,
    quant: RunQuant = None,
    context: Annotated[
        int | None, typer.Option(min=2, help="Tokens of a conversation (default: what the model allows).")
    ] = None,
    cache: CacheChoice = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Find faster kernels for a chat model on a device; later runs on this machine use them."""
    from tinyweb.models import load
    from tinyweb.models.chat import entry_points, usual_calls
    from tinyweb.sources import CHAT
    from tinyweb.tuning import tune_kernels

    folder = located(source, CHAT, "chat")
    with show_progress(stderr()) as progress:
        plans = entry_points(load(folder, quant, context, device, cache=cache), progress)
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

    with users_code(), show_progress(stderr()) as progress:
        function, inputs = load_maker(maker)()
        arguments = (lambda: function(**inputs)) if isinstance(inputs, dict) else (lambda: function(*inputs))
        _show_tuned(tune(arguments, seconds, progress=progress), as_json)


def _show_tuned(tuned: list[Tuned], as_json: bool) -> None:
    """What search found, kernel by kernel."""
    if as_json:
        print(json.dumps([t.record() for t in tuned], indent=2, ensure_ascii=False))
    else:
        print(*tuned, sep="\n")
