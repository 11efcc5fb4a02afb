"""The protocol as its client sees it: the `openai` package."""

from __future__ import annotations

import base64
import json
import threading
import urllib.request
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import openai
import pytest

from tests.api.running import Running, running, served
from tests.formats.gguf.converted import convert, metadata_of
from tinyweb import Tensor
from tinyweb.formats.tokenizer import Tokenizer
from tinyweb.models import load
from tinyweb.models.chat import Chat, Settings
from tinyweb.models.image_text import open_embedder

QUESTION: list[Any] = [{"role": "user", "content": "What is the capital of France?"}]
STORY: list[Any] = [{"role": "user", "content": "Tell me a story about a dog."}]
GREEDY: dict[str, Any] = {"model": "tinychat", "temperature": 0}


def text_of(chunks: Any) -> str:
    return "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)


def test_models(server: Running) -> None:
    client = server.client()
    assert [m.id for m in client.models.list()] == ["tinychat", "tinyembed"]
    assert client.models.retrieve("tinyembed").object == "model"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-5")


def test_golden_answers(server: Running, model_folder: Path) -> None:
    """Asked for side by side, each is what the model says alone."""
    items = json.loads((model_folder / "golden.json").read_text())["items"]
    client, found = server.client(), dict[str, Any]()

    def ask(item: dict[str, Any]) -> None:
        found[item["id"]] = client.chat.completions.create(messages=item["messages"], max_tokens=64, **GREEDY)

    threads = [threading.Thread(target=ask, args=(item,)) for item in items]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    eos = Tokenizer.from_folder(model_folder).eos
    for item in items:
        answer, ids = found[item["id"]], item["output_ids"]
        assert answer.choices[0].message.content == item["output_text"]
        assert answer.choices[0].finish_reason == ("stop" if ids[-1] in eos else "length")
        assert answer.usage.prompt_tokens == len(item["prompt_ids"])
        assert answer.usage.completion_tokens == len(ids)
        assert answer.usage.total_tokens == len(item["prompt_ids"]) + len(ids)


def test_streams(server: Running) -> None:
    client = server.client()
    whole = client.chat.completions.create(messages=STORY, max_tokens=40, **GREEDY)
    chunks = list(client.chat.completions.create(messages=STORY, max_tokens=40, stream=True, **GREEDY))
    assert text_of(chunks) == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant" and len(chunks) > 20
    assert [c.choices[0].finish_reason for c in chunks if c.choices[0].finish_reason] == ["length"]
    assert len({c.id for c in chunks}) == 1 and all(c.usage is None for c in chunks)
    chunks = list(
        client.chat.completions.create(
            messages=STORY, max_tokens=40, stream=True, stream_options={"include_usage": True}, **GREEDY
        )
    )
    assert chunks[-1].choices == [] and chunks[-1].usage == whole.usage
    assert all(c.usage is None for c in chunks[:-1])


def test_a_stream_as_it_is_sent(server: Running) -> None:
    body = {**GREEDY, "messages": QUESTION, "stream": True}
    with urllib.request.urlopen(f"{server.url}/chat/completions", json.dumps(body).encode(), timeout=60) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = answer.read().decode().split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""] and all(e.startswith("data: {") for e in events[:-2])


def test_the_settings_are_those_of_a_chat(server: Running, model_folder: Path) -> None:
    settings = Settings(temperature=0.8, top_p=0.9, top_k=20, seed=12, max_tokens=30)
    tokenizer = Tokenizer.from_folder(model_folder)
    want, _ = Chat(load(model_folder), tokenizer).answer(STORY, settings)
    got = server.client().chat.completions.create(
        model="tinychat", messages=STORY, temperature=0.8, top_p=0.9, seed=12, max_completion_tokens=30,
        extra_body={"top_k": 20},
    )  # fmt: skip
    assert got.choices[0].message.content == want


def test_seeds(server: Running) -> None:
    client = server.client()

    def say(**options: Any) -> list[str | None]:
        options = {"temperature": 1.2, "max_tokens": 24, **options}
        answer = client.chat.completions.create(model="tinychat", messages=STORY, **options)
        return [c.message.content for c in answer.choices]

    assert say(seed=5) == say(seed=5) and say(seed=5) != say(seed=6)
    several = say(seed=5, n=3)
    assert len(set(several)) == 3 and several[0] == say(seed=5)[0]
    assert len({say()[0] for _ in range(3)}) > 1  # without a seed: by chance


def test_several_streams_of_one_request(server: Running) -> None:
    texts = ["", "", ""]
    options: dict[str, Any] = {"temperature": 1.2, "max_tokens": 12, "seed": 5, "n": 3}
    client = server.client()
    for chunk in client.chat.completions.create(model="tinychat", messages=STORY, stream=True, **options):
        texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    whole = client.chat.completions.create(model="tinychat", messages=STORY, **options)
    assert texts == [c.message.content for c in whole.choices]


def test_system_messages(server: Running, model_folder: Path) -> None:
    """Through the model's template; `developer` is the newer name of their role, and content may come in parts."""
    chat = Chat(load(model_folder), Tokenizer.from_folder(model_folder))
    said = [{"role": "system", "content": "You are a pirate."}, {"role": "user", "content": "Hello!"}]
    want, _ = chat.answer(said, Settings(temperature=0, max_tokens=30))
    client = server.client()
    parts = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo!"}]
    for role, content in (("system", "Hello!"), ("developer", parts)):
        messages: Any = [{"role": role, "content": "You are a pirate."}, {"role": "user", "content": content}]
        got = client.chat.completions.create(messages=messages, max_tokens=30, **GREEDY)
        assert got.choices[0].message.content == want
        assert got.usage is not None and got.usage.prompt_tokens == len(chat.tokenizer.prompt(said))


@pytest.mark.parametrize("stream", [False, True])
def test_stop(server: Running, stream: bool) -> None:
    client = server.client()
    whole = client.chat.completions.create(messages=QUESTION, **GREEDY).choices[0].message.content
    assert whole == "The capital of France is Paris."
    for stop, want in (("France", "The capital of "), (["zzz", "l of F"], "The capita"), (["."], whole[:-1])):
        answer: Any = client.chat.completions.create(messages=QUESTION, stop=stop, stream=stream, **GREEDY)
        if stream:
            chunks = list(answer)
            assert text_of(chunks) == want and chunks[-1].choices[0].finish_reason == "stop"
        else:
            assert answer.choices[0].message.content == want and answer.choices[0].finish_reason == "stop"


def test_logprobs(server: Running, model_folder: Path) -> None:
    client = server.client()
    options: dict[str, Any] = {"messages": QUESTION, "logprobs": True, "top_logprobs": 3, **GREEDY}
    answer = client.chat.completions.create(**options)
    content = answer.choices[0].logprobs.content
    assert "".join(t.token for t in content) == answer.choices[0].message.content
    assert all(bytes(t.bytes).decode() == t.token and len(t.top_logprobs) == 3 for t in content)
    assert all(t.top_logprobs[0].token == t.token and t.top_logprobs[0].logprob == t.logprob <= 0 for t in content)
    chunks = list(client.chat.completions.create(stream=True, **options))
    streamed = [t for c in chunks if c.choices[0].logprobs for t in c.choices[0].logprobs.content]
    assert [t.token for t in streamed] == [t.token for t in content]
    np.testing.assert_allclose([t.logprob for t in streamed], [t.logprob for t in content], atol=1e-3)
    # what the model says of this text, but for the last bits of its cache
    tokenizer = Tokenizer.from_folder(model_folder)
    prompt = tokenizer.prompt(QUESTION)
    ids = np.array([*prompt, *tokenizer.encode(answer.choices[0].message.content)], np.int32)
    logits = load(model_folder)(Tensor(ids[None])).numpy()[0].astype(np.float64)
    chances = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    want = [chances[i - 1, ids[i]] for i in range(len(prompt), len(ids))]
    np.testing.assert_allclose([t.logprob for t in content], want, atol=2e-2)


def test_completions(server: Running, model_folder: Path) -> None:
    client, tokenizer = server.client(), Tokenizer.from_folder(model_folder)
    answer = client.completions.create(prompt=["Once upon", "Hello"], max_tokens=5, n=2, logprobs=2, **GREEDY)
    texts = [c.text for c in answer.choices]
    assert [c.index for c in answer.choices] == [0, 1, 2, 3] and texts[0] == texts[1] and texts[2] == texts[3]
    first = answer.choices[0].logprobs
    assert "".join(first.tokens) == texts[0] and all(len(t) == 2 for t in first.top_logprobs)
    assert first.text_offset == [sum(map(len, first.tokens[:i])) for i in range(len(first.tokens))]
    ids = [*tokenizer.begin, *tokenizer.encode("Once upon")]
    for prompt in (ids, [ids]):
        assert client.completions.create(prompt=prompt, max_tokens=5, **GREEDY).choices[0].text == texts[0]
    chunks = list(client.completions.create(prompt="Once upon", max_tokens=5, stream=True, **GREEDY))
    assert "".join(c.choices[0].text for c in chunks) == texts[0]
    assert chunks[-1].choices[0].finish_reason is not None


@pytest.mark.parametrize("form", ["float", "base64", None])
def test_embeddings(server: Running, model_folder: Path, form: Any) -> None:
    texts = ["A dog in a garden.", "Trains run on rails.", "The puppy plays outside."] * 12
    options = {} if form is None else {"encoding_format": form}
    answer = server.client().embeddings.create(model="tinyembed", input=texts, **options)
    embedder = open_embedder(model_folder.parent / "tinyembed")
    given: list[Any] = [d.embedding for d in answer.data]
    found = [np.frombuffer(base64.b64decode(v), "<f4") if form == "base64" else v for v in given]
    np.testing.assert_allclose(found, embedder.encode(texts), atol=1e-5)
    assert answer.usage.prompt_tokens == sum(map(len, embedder.tokens(texts))) == answer.usage.total_tokens
    one = server.client().embeddings.create(model="tinyembed", input=texts[0])
    np.testing.assert_allclose(one.data[0].embedding, found[0], atol=1e-5)


def test_embeddings_of_a_language_model(server: Running) -> None:
    """The mean of what it makes of the tokens."""
    answer = server.client().embeddings.create(model="tinychat", input=["A dog.", "A dog.", "A train."])
    vectors = np.array([d.embedding for d in answer.data])
    np.testing.assert_allclose(vectors[0], vectors[1], atol=1e-5)
    assert vectors.shape == (3, 256) and np.abs(vectors[0] - vectors[2]).max() > 1e-3


def test_health(server: Running) -> None:
    status, told, _ = server.ask("/health", method="GET")
    assert status == 200 and told["status"] == "ok"


def test_a_model_with_states_answers_one_by_one(tmp_path: Path, model_folder: Path) -> None:
    """Mamba: no pages of a cache; answers wait for each other, and are the same."""
    from tests.models.decoder_folders import STATES

    STATES["Mamba-2"].write(tmp_path)
    vocabulary = {f"t{i}": i for i in range(67)}
    tokenizer = {
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "t0"}, "added_tokens": [],
        "pre_tokenizer": {"type": "Whitespace"}, "version": "1.0",
    }  # fmt: skip
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    model = served(tmp_path, "mamba", context=40)
    assert model.note is not None and "one answer at a time" in model.note
    with running([model]) as found:
        client, answers = found.client(), list[str]()

        def ask() -> None:
            answer = client.completions.create(
                model="mamba", prompt="t5 t6 t7", max_tokens=12, temperature=0, logprobs=1
            )
            answers.append(answer.choices[0].text)

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(300)
        with pytest.raises(openai.BadRequestError, match="base model"):
            client.chat.completions.create(model="mamba", messages=STORY)
        with pytest.raises(openai.BadRequestError, match="makes no vectors"):
            client.embeddings.create(model="mamba", input="t5")
    assert len(answers) == 4 and len(set(answers)) == 1 and answers[0]


@pytest.mark.slow
def test_a_gguf_file(model_folder: Path, tmp_path: Path) -> None:
    """Blocks as they are stored: what it says is what the chat does."""
    kind = gguf.GGMLQuantizationType.Q8_0
    file = convert(model_folder, tmp_path / "tiny-Q8_0.gguf", "llama", kind, metadata_of(model_folder))
    want, _ = Chat(load(file), Tokenizer.from_folder(file)).answer(STORY, Settings(temperature=0, max_tokens=40))
    with running([served(file, "tiny", parallel=4)]) as found:
        answer = found.client().chat.completions.create(model="tiny", messages=STORY, temperature=0, max_tokens=40)
        assert answer.choices[0].message.content == want
        vectors = found.client().embeddings.create(model="tiny", input=["A dog.", "A dog."]).data
        np.testing.assert_allclose(vectors[0].embedding, vectors[1].embedding, atol=1e-5)
