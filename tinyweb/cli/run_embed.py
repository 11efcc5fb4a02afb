"""`tinyweb run embed`."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from typing import Annotated

import typer

from tinyweb.cli.common import Debug, DeviceChoice, RunQuant, located, run_app, stderr
from tinyweb.cli.export_embed import EmbedSource, PassagePrefix, Pooling, QueryPrefix, given_prefixes


class Kind(StrEnum):
    """What a text is: what is looked for, or what is found."""

    query = "query"
    passage = "passage"


@run_app.command("embed")
def run_embed(
    source: EmbedSource,
    texts: Annotated[
        list[str] | None, typer.Argument(metavar="[TEXT]…", help="Texts (default: the lines of standard input).")
    ] = None,
    kind: Annotated[Kind, typer.Option(help="What the texts are; some models tell them apart.")] = Kind.passage,
    query_prefix: QueryPrefix = None,
    passage_prefix: PassagePrefix = None,
    pooling: Pooling = None,
    quant: RunQuant = None,
    device: DeviceChoice = None,
    debug: Debug = False,
) -> None:
    """Print the embeddings of texts as JSON: a list of vectors."""
    from tinyweb.models.image_text import open_embedder
    from tinyweb.sources import EMBED

    prefixes = given_prefixes(query_prefix, passage_prefix)
    model = located(source, EMBED, "embed")
    embedder = open_embedder(model, quant, device, prefixes=prefixes, pooling=pooling)
    if embedder.note is not None:
        stderr().print(f"Note: {embedder.note}", markup=False)
    given = texts if texts else [line.rstrip("\n") for line in sys.stdin]
    vectors = embedder.encode(given, kind.value)
    print("[" + ",\n ".join(json.dumps([round(float(x), 7) for x in v]) for v in vectors) + "]")
