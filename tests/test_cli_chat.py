"""`tinyweb chat`: a conversation in the terminal, its commands, and base models."""

import json
import os
import re
import select
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.export.small_model import write_small_model
from tests.test_cli import COMMAND, Refused, refused, run
from tinyweb.cli.conversation import Conversation
from tinyweb.formats.tokenizer import TextStream, Tokenizer
from tinyweb.models import load
from tinyweb.models.chat import Chat, Settings
from tinyweb.models.fit import PIECE, pieces

assert refused  # a fixture


@pytest.fixture
def base_model(tmp_path: Path, model_folder: Path) -> Path:
    """A model of random weights, without a chat template."""
    folder = write_small_model(tmp_path / "base", model_folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config.pop("chat_template")
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def test_commands_of_a_conversation(model_folder: Path) -> None:
    lines = [
        "Hello, my name is Mira!",
        "What is my name?",
        "/retry",
        "/undo",
        "",
        "What is \\\nmy name?",
        "/stats",
        "/reset",
        "What is my name?",
        "/undo",
        "/undo",
        "/retry",
        "/system Be brief.",
        "/system",
        "/dance",
        "/help",
        "/exit",
        "Not read any more.",
    ]
    done = run("chat", model_folder, "--temperature", "0", input="\n".join(lines) + "\n")
    assert done.returncode == 0, done.stderr
    answers = done.stdout.splitlines()
    assert len(answers) == 5
    assert all("Mira" in a for a in answers[:3]) and "Mira" not in answers[4]
    assert answers[1] == answers[2]  # the likeliest once more
    said = [line for line in done.stderr.splitlines() if not line.startswith("tinyweb: ")]
    assert re.match(r"\d+ tokens read, \d+ of them were in the cache; first token after ", said[1]), said
    assert said[0] == "Taken back." and said[2] == "Forgotten."
    assert said[3:5] == ["Taken back.", "Nothing was said yet."] and said[5] == "Nothing was said yet."
    assert said[6:8] == ["The system prompt is set.", "There is no system prompt now."]
    assert said[8].startswith("There is no /dance: /help lists")
    assert {line.split()[0] for line in said[9:16]} == {
        "/help", "/reset", "/system", "/undo", "/retry", "/stats", "/exit",
    }  # fmt: skip


def test_what_cannot_be_answered_is_taken_back(model_folder: Path) -> None:
    done = run("chat", model_folder, "--temperature", "0", "--context", "64", input="x " * 200 + "\nHello!\n")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1
    assert "too long by" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.skipif(os.name == "nt", reason="there are no such terminals")
def test_ctrl_c_in_a_terminal(model_folder: Path) -> None:
    """It drops the line that was begun, and the program goes on."""
    import pty

    controller, terminal = pty.openpty()
    command = [*COMMAND, "chat", str(model_folder), "--temperature", "0"]
    child = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=subprocess.PIPE, text=True)
    os.close(terminal)

    def until(what: str) -> str:
        read, deadline = "", time.monotonic() + 240
        while what not in read:
            assert time.monotonic() < deadline, read
            if select.select([controller], [], [], 0.1)[0]:
                read += os.read(controller, 4096).decode(errors="replace")
        return read

    def interrupt() -> None:
        """Once more where nothing comes of it: readline heeds a signal only while it waits for a key."""
        for _ in range(80):
            child.send_signal(signal.SIGINT)
            if select.select([controller], [], [], 3)[0]:
                break

    try:
        until("> ")
        os.write(controller, b"I begin")
        until("I begin")
        interrupt()
        until("> ")
        os.write(controller, b"Hello!\n")
        assert "help" in until("\n> ")
        os.write(controller, b"/exit\n")
        assert child.wait(120) == 0
        assert child.stderr is not None and "Ctrl-C stops an answer" in child.stderr.read()
    finally:
        child.kill()
        os.close(controller)


def test_ctrl_c_stops_an_answer(
    model_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = Chat(load(model_folder), Tokenizer.from_folder(model_folder), Settings(temperature=0))
    whole, _ = chat.answer([{"role": "user", "content": "Tell me a story."}])
    conversation = Conversation(chat)
    generate = chat.generate

    def interrupted(*arguments):
        for number, part in enumerate(generate(*arguments)):
            if number == 3:
                signal.raise_signal(signal.SIGINT)
            yield part

    monkeypatch.setattr(chat, "generate", interrupted)
    before = signal.getsignal(signal.SIGINT)
    conversation.say("Tell me a story.")
    assert signal.getsignal(signal.SIGINT) is before
    said = conversation.messages[-1]
    assert said["role"] == "assistant" and whole.startswith(said["content"]) and 0 < len(said["content"]) < len(whole)
    assert capsys.readouterr().out == said["content"] + "\n"


def test_stopping_an_answer(model_folder: Path) -> None:
    chat = Chat(load(model_folder), Tokenizer.from_folder(model_folder))
    messages = [{"role": "user", "content": "Tell me a story."}]
    whole = [p.token for p in chat.generate(messages, Settings(temperature=0))]
    begun = []
    for part in chat.generate(messages, Settings(temperature=0)):
        begun.append(part.token)
        if len(begun) == 3:
            chat.stop()
    assert begun == whole[: len(begun)] and 3 <= len(begun) <= 5 < len(whole)
    assert [p.token for p in chat.generate(messages, Settings(temperature=0))] == whole


def test_a_base_model_continues(base_model: Path, refused: Refused) -> None:
    done = run("chat", base_model, "--temperature", "0", "--max-tokens", "8", input="Once upon\n/system x\n a time\n")
    assert done.returncode == 0, done.stderr
    assert "a base model, without roles" in done.stderr
    first = json.loads(
        run(
            "run", "chat", base_model, "--prompt", "Once upon", "--json", "--temperature", "0", "--max-tokens", "8"
        ).stdout
    )
    tokenizer = Tokenizer.from_folder(base_model)
    assert first["prompt_ids"] == [*tokenizer.begin, *tokenizer.encode("Once upon")]
    assert done.stdout.startswith(first["text"] + "\n")
    assert "this is a base model" in refused("chat", base_model, "--system", "x")


def test_a_template_that_is_given(base_model: Path, tmp_path: Path, refused: Refused) -> None:
    file = tmp_path / "chat.jinja"
    file.write_text("{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}")
    arguments = ["run", "chat", base_model, "--prompt", "Hi", "--json", "--max-tokens", "2"]
    answer = json.loads(run(*arguments, "--chat-template", file).stdout)
    assert answer["prompt_ids"] == Tokenizer.from_folder(base_model).encode("[user]Hi")
    assert "does not exist" in refused("chat", base_model, "--chat-template", tmp_path / "none.jinja")
    file.write_text("{% for %}")
    assert "chat template" in refused("chat", base_model, "--chat-template", file)


def test_pieces_are_the_text() -> None:
    for text in ("", "a", "word " * 1000, "x" * (5 * PIECE), "line\n" * 200 + "end", " " * 1000):
        cut = [m["content"] for m in pieces(text)]
        assert "".join(cut) == text
        assert all(0 < len(piece) <= 2 * PIECE for piece in cut) or cut == [""]


def test_a_text_goes_on_with_its_spaces(model_folder: Path) -> None:
    tokenizer = Tokenizer.from_folder(model_folder)
    ids = tokenizer.encode("Once upon a time there was")
    for cut in range(1, len(ids)):
        stream = TextStream(tokenizer, ids[:cut])
        text = "".join(map(stream.push, ids[cut:])) + stream.finish()
        assert tokenizer.decode(ids[:cut]) + text == tokenizer.decode(ids)
