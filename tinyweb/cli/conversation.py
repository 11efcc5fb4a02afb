"""A conversation in the terminal, or a text that a base model continues: lines in, answers out as they come."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, ClassVar

from tinyweb.errors import TinywebError
from tinyweb.models.fit import pieces

if TYPE_CHECKING:
    from tinyweb.models.chat import Chat

Messages = list[dict[str, str]]


class Conversation:
    """What has been said, and the commands that change it. Results go to standard output, all else to standard error.

    `COMMANDS`: what each does, for people; a method of its name carries it out, with the words behind it.
    """

    COMMANDS: ClassVar[dict[str, str]] = {
        "help": "list the commands",
        "reset": "forget what was said; the system prompt stays",
        "system": "set the system prompt: /system TEXT; without a text there is none",
        "undo": "take the last exchange back",
        "retry": "answer the last message once more, by other chances",
        "stats": "tokens and times of the last answer",
        "exit": "end (so does Ctrl-D)",
    }

    def __init__(self, chat: Chat, system: str | None = None):
        self.chat, self.system = chat, system
        self.messages: Messages = []
        self._chances = 0

    # -- the loop -------------------------------------------------------------------------------------------------
    def run(self) -> None:
        """Until the input ends, or /exit."""
        asked = sys.stdin.isatty()
        if asked:
            with suppress(ImportError):  # arrow keys and earlier lines in `input`; Windows has its own
                import readline  # noqa: F401
            does = "Write a text, and it goes on" if self.chat.tokenizer.completes else "Say something"
            self.tell(f"{does}; Ctrl-C stops an answer, /help lists the commands, Ctrl-D ends.")
        while True:
            try:
                line = _line("> " if asked else "")
            except EOFError:
                return
            except KeyboardInterrupt:  # of a line that was begun
                if not asked:
                    raise
                self.tell("")
                continue
            if line.startswith("/") and not line.startswith("//"):
                if line.strip() in ("/exit", "/quit"):
                    return
                self.command(line)
            elif line.strip():
                self.say(line.removeprefix("/") if line.startswith("//") else line)

    def command(self, line: str) -> None:
        name, _, words = line[1:].strip().partition(" ")
        if name not in self.COMMANDS:
            self.tell(
                f"There is no /{name}: /help lists the commands. A message that begins with / is written with two."
            )
            return
        does: Callable[[str], None] = getattr(self, f"do_{name}")
        does(words.strip())

    def say(self, text: str) -> None:
        """One message, and its answer; what cannot be answered is taken back."""
        before = list(self.messages)
        self.messages.append({"role": "user", "content": text})
        self._answer(before)

    def _answer(self, before: Messages) -> None:
        try:
            text = self.stream(self.prompt())
        except TinywebError as error:
            self.messages = before
            self.tell(f"{error}.".replace("..", "."))
            return
        self.messages.append({"role": "assistant", "content": text})
        if dropped := self.chat.statistics.dropped:
            self.tell(f"(the oldest {dropped} messages no longer fit into the context)")

    def prompt(self) -> Messages:
        """What the model reads."""
        if self.chat.tokenizer.completes:
            return pieces("".join(m["content"] for m in self.messages))
        head = [{"role": "system", "content": self.system}] if self.system is not None else []
        return [*head, *self.messages]

    def stream(self, messages: Messages) -> str:
        """Writes an answer as it comes, until it ends or Ctrl-C; its text."""
        text = ""
        settings = self.chat.defaults.with_seed(self.chat.defaults.seed + self._chances)
        with _stops(self.chat):
            for part in self.chat.generate(messages, settings):
                text += part.text
                print(part.text, end="", flush=True)
        print(flush=True)
        return text

    def tell(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    # -- commands -------------------------------------------------------------------------------------------------
    def do_help(self, words: str) -> None:
        self.tell("\n".join(f"/{name:8}{does}" for name, does in self.COMMANDS.items()))
        self.tell("A line that ends with \\ goes on in the next one.")

    def do_reset(self, words: str) -> None:
        self.messages = []
        self.tell("Forgotten.")

    def do_system(self, words: str) -> None:
        if self.chat.tokenizer.completes:
            self.tell("This is a base model, without roles: write into the text what it is to know.")
            return
        self.system = words or None
        self.tell("The system prompt is set." if words else "There is no system prompt now.")

    def do_undo(self, words: str) -> None:
        if self.messages:
            self._take_back()
            self.tell("Taken back.")
        else:
            self.tell("Nothing was said yet.")

    def do_retry(self, words: str) -> None:
        if not self.messages:
            self.tell("Nothing was said yet.")
            return
        before = list(self.messages)
        asked = self._take_back()
        self.messages.append(asked)
        self._chances += 1
        self._answer(before)

    def do_stats(self, words: str) -> None:
        s = self.chat.statistics
        self.tell(
            f"{len(s.prompt_ids)} tokens read, {s.reused} of them were in the cache; first token after "
            f"{s.first_token_seconds:.2f} s, then {s.tokens_per_second:.1f} tokens/s on {self.chat.device.name}"
        )

    def _take_back(self) -> dict[str, str]:
        """The last message of the user, which goes with all that follows it."""
        last = max(i for i, m in enumerate(self.messages) if m["role"] == "user")
        asked = self.messages[last]
        self.messages = self.messages[:last]
        return asked


def _line(prompt: str) -> str:
    """What is typed; of lines that end with a backslash, all together."""
    lines = [input(prompt)]
    while lines[-1].endswith("\\"):
        lines[-1] = lines[-1][:-1]
        lines.append(input(prompt and ". "))
    return "\n".join(lines)


@contextmanager
def _stops(chat: Chat) -> Iterator[None]:
    """Ctrl-C ends the answer, not the program; twice, where the first is not heeded, the program."""

    def stop(signum: int, frame: FrameType | None) -> None:
        chat.stop()
        signal.signal(signal.SIGINT, before)

    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
