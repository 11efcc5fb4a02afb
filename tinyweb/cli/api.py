"""`tinyweb api`."""

from __future__ import annotations

from typing import Annotated

import typer

from tinyweb.cli.common import (
    FROM,
    AllowHost,
    CacheChoice,
    Debug,
    DeviceChoice,
    RunQuant,
    TemplateFile,
    app,
    located,
    show_progress,
    stderr,
)
from tinyweb.errors import TinywebError

MISSING = "`tinyweb api` needs Starlette and Uvicorn, which are not installed: run `pip install tinyweb[api]`"


@app.command("api")
def api(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE…", help=f"Models of texts, chat and embedding models alike: {FROM}.", show_default=False
        ),
    ],
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes any free one.")] = 8000,
    host: Annotated[str, typer.Option(help="The address to listen on; 0.0.0.0 lets other devices in.")] = "127.0.0.1",
    name: Annotated[
        list[str] | None,
        typer.Option(help="What requests call the models, in their order (default: their folders' or files' names)."),
    ] = None,
    api_key: Annotated[
        str | None,
        typer.Option(metavar="KEY", envvar="TINYWEB_API_KEY", help="Answer only to those who send this key."),
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN", help="Let pages of this origin ask (repeatable; *: any), beside those of this machine."
        ),
    ] = None,
    allow_host: AllowHost = None,
    device: DeviceChoice = None,
    quant: RunQuant = None,
    context: Annotated[
        int | None, typer.Option(min=2, help="Tokens of a conversation (default: what the model allows).")
    ] = None,
    cache: CacheChoice = None,
    parallel: Annotated[int, typer.Option(min=1, max=256, help="Answers that are made at the same time.")] = 64,
    cache_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Tokens that all answers under way have room for (default: some whole contexts)."),
    ] = None,
    chat_template: TemplateFile = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show every request.")] = False,
    debug: Debug = False,
) -> None:
    """Answer OpenAI's HTTP protocol with models on this machine, until Ctrl-C: to develop a page against them."""
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise TinywebError(MISSING) from None
    from tinyweb.api.app import Api
    from tinyweb.api.models import Options, serve_model
    from tinyweb.api.server import serve
    from tinyweb.api.worker import Worker
    from tinyweb.formats.source import open_model
    from tinyweb.sources import CHAT, model_name

    if api_key is not None and (api_key != api_key.strip() or not api_key):
        raise typer.BadParameter("the key must have characters, and no spaces around them", param_hint="--api-key")
    paths = [located(source, CHAT.in_precision(quant), "api") for source in sources]
    names = [*(name or ()), *map(model_name, paths[len(name or ()) :])]
    if len(set(names)) < len(names) or len(names) > len(sources):
        raise typer.BadParameter("each model needs one --name of its own")
    options = Options(quant, context, device, cache, parallel, cache_tokens, chat_template)
    console = stderr()
    models = []
    for path, called in zip(paths, names, strict=True):
        with show_progress(console) as progress:
            models.append(serve_model(open_model(path), called, options, progress))
        if models[-1].note is not None:
            console.print(f"Note: {called}: {models[-1].note}", markup=False)
    worker = Worker([m.engine for m in models if m.engine is not None])
    served = Api(models, worker, api_key, allow_origin or (), hosts=(host, *(allow_host or ())))
    serve(served, host, port, lambda line: print(line, flush=True), verbose)
