"""`tinyweb chat`, and the same as `tinyweb run chat`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from tinyweb.cli.common import (
    AsJson,
    CacheChoice,
    ChatSource,
    Debug,
    DeviceChoice,
    RunQuant,
    TemplateFile,
    Tune,
    app,
    located,
    run_app,
    show_progress,
    stderr,
)


@app.command("chat")
@run_app.command("chat")
def run_chat(
    source: ChatSource,
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
    device: DeviceChoice = None,
    quant: RunQuant = None,
    context: Annotated[
        int | None, typer.Option(min=2, help="Tokens of a conversation (default: what the model allows).")
    ] = None,
    chat_template: TemplateFile = None,
    cache: CacheChoice = None,
    tune: Tune = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Chat with a model in this terminal; a base model continues what you write.

    What no option says about choosing tokens, the model's folder does. /help lists the commands of a conversation.
    """
    from dataclasses import replace

    from tinyweb.cli.conversation import Conversation
    from tinyweb.formats.source import open_model
    from tinyweb.formats.tokenizer import Tokenizer
    from tinyweb.models import load
    from tinyweb.models.chat import Chat, Settings
    from tinyweb.sources import CHAT

    if prompt is None and as_json:
        raise typer.BadParameter("--json needs a --prompt")
    folder = open_model(located(source, CHAT.in_precision(quant), "chat"))
    chosen = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "repetition_penalty": repetition_penalty}
    settings = replace(
        Settings.of_folder(folder),
        max_tokens=max_tokens,
        seed=seed,
        **{name: value for name, value in chosen.items() if value is not None},  # type: ignore[arg-type]
    )
    tokenizer = Tokenizer.from_folder(folder, chat_template)
    if tokenizer.completes and system is not None:
        raise typer.BadParameter("this is a base model, which has no --system prompt: write it into the text")
    with show_progress(stderr()) as progress:
        model = load(folder, quant, context, device, cache=cache)
        if tune:
            from tinyweb.models.chat import entry_points, usual_calls
            from tinyweb.tuning import tune_kernels

            plans = entry_points(model, progress)
            tune_kernels(plans, device, tune, calls=usual_calls(plans), progress=progress)
        chat = Chat(model, tokenizer, settings, progress)
    conversation = Conversation(chat, system)
    if prompt is None:
        conversation.run()
        return
    conversation.messages.append({"role": "user", "content": prompt})
    if not as_json:
        conversation.stream(conversation.prompt())
        return
    text, tokens = chat.answer(conversation.prompt())
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
