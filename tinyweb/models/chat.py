"""A chat with a language model: the same entry points an exported page runs, launched from Python.

    chat = Chat(load(folder), Tokenizer.from_folder(folder))
    for part in chat.generate([{"role": "user", "content": "Hello!"}], Settings(temperature=0)): print(part.text)

What is notable:
- An entry point is captured once, as the exporter does, and replayed for every position.
- Nothing but 4 bytes per token comes back from the device; the conversation's ids stay in its `ids` buffer.
- A prompt that begins as the last conversation did is read only from where they part; a state, which cannot go back,
  reads it again where they part before the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tinyweb.across import allocate_pools, compile_calls, replay
from tinyweb.device import Device
from tinyweb.dtype import dtypes
from tinyweb.errors import TinywebError
from tinyweb.formats.huggingface import Config, ModelFolder
from tinyweb.formats.tokenizer import TextStream, Tokenizer
from tinyweb.graph.ir import UOp, Variable
from tinyweb.graph.target import Target
from tinyweb.memory import Buffer
from tinyweb.models.fit import fit_messages
from tinyweb.tensor import Tensor
from tinyweb.tracing import Plan, capture

BLOCKS = (256, 64, 8)  # tokens of a prompt read at a time, largest first; `decode` is the block of one
VERIFY = 8  # tokens checked at a time when speculating: the block of the same size shares its kernels
LAUNCH_COST = 3  # what launching a block costs beside its tokens (reading the weights above all), in tokens
ROOM = 64  # the cache's length is a multiple: rows that divide evenly need no bounds checks
LOOK_BACK = 16  # tokens before a continuation that its first words depend on: whether there is a space, say
NGRAM = (4, 2)  # tokens of the text's end that are looked for in what came before: most and fewest


class ChatModel(Protocol):
    """What a language model offers to be chatted with; `Decoder` says what each does."""

    context: int
    rewinds: bool
    ids: Tensor
    logits: Tensor
    sampling_f: Tensor
    sampling_i: Tensor
    verified: Tensor

    def prefill(self, block: int, start_pos: UOp, count: UOp) -> Tensor: ...
    def decode(self, start_pos: UOp) -> Tensor: ...
    def sample(self, start_pos: UOp) -> Tensor: ...
    def greedy(self, start_pos: UOp) -> Tensor: ...
    def verify(self, block: int, start_pos: UOp) -> Tensor: ...


@dataclass(frozen=True)
class Settings:
    """How to choose tokens, and how many. top_k 0, top_p 1 and repetition_penalty 1 mean "off".

    `speculate`: tokens to guess ahead from what the text said before (prompt lookup; Saxena 2023). Only where the
    likeliest token is always taken (temperature 0, no penalty); the answer stays the same, but where two tokens are
    as likely within what rounded activations tell apart.
    """

    max_tokens: int = 256
    temperature: float = 0.7
    top_k: int = 40
    top_p: float = 0.95
    repetition_penalty: float = 1.0
    seed: int = 0
    speculate: int = 0

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is always taken."""
        return self.temperature == 0 and self.repetition_penalty == 1

    @property
    def seed_word(self) -> int:
        """The seed as a device has it, int32."""
        return (self.seed + 2**31) % 2**32 - 2**31

    def with_seed(self, seed: int) -> Settings:
        """The same, by other chances."""
        return replace(self, seed=seed)

    @classmethod
    def of_folder(cls, folder: ModelFolder) -> Settings:
        """What a model's generation_config.json suggests; ModelFormatError where it makes no sense."""
        given = folder.read_config("generation_config.json", required=False)
        usual = cls()
        return cls(
            max_tokens=given.integer("max_new_tokens", 1, 2**31 - 1, usual.max_tokens),
            temperature=_temperature(given, usual.temperature),
            top_k=given.integer("top_k", 0, 2**31 - 1, usual.top_k),
            top_p=given.number("top_p", 0, 1, usual.top_p),
            repetition_penalty=given.number("repetition_penalty", 0.01, 100, usual.repetition_penalty),
        )


def _temperature(given: Config, usual: float) -> float:
    sampled = given.flag("do_sample", True)
    return given.number("temperature", 0, 100, usual) if sampled else 0.0


def prefill_name(block: int) -> str:
    """The entry point that reads `block` tokens of a prompt at once."""
    return f"prefill_{block}"


def verify_name(block: int) -> str:
    """The entry point that reads and checks `block` tokens at once."""
    return f"verify_{block}"


def prefill_blocks(context: int) -> tuple[int, ...]:
    """Block sizes worth having for a context, largest first: none larger than it."""
    return tuple(b for b in BLOCKS if b <= context)


def verify_block(context: int, rewinds: bool = True) -> int:
    """Tokens that are checked at once; 0 where the context is too short, or wrong ones cannot be taken back."""
    return VERIFY if context >= VERIFY and rewinds else 0


def positions(context: int) -> int:
    """Positions of the cache and of `ids`: the token after the last of the context has a place, too."""
    return -(-(context + 1) // ROOM) * ROOM


def choose_block(blocks: Sequence[int], tokens: int) -> int:
    """The block to begin with so that reading `tokens` of a prompt costs least. `blocks`: largest first, with 1."""
    if tokens >= blocks[0]:
        return blocks[0]
    costs, choice = [0], 1
    for n in range(1, tokens + 1):
        # the first of equals: fewer launches
        least, choice = min((LAUNCH_COST + b + costs[max(0, n - b)], -b) for b in blocks)
        costs.append(least)
    return -choice


def draft(ids: Sequence[int], count: int) -> list[int]:
    """At most `count` tokens that followed the last place that reads like the end of `ids`; none without one."""
    for n in range(NGRAM[0], NGRAM[1] - 1, -1):
        end = list(ids[-n:])
        for start in range(len(ids) - n - 1, -1, -1):
            if list(ids[start : start + n]) == end:
                return list(ids[start + n : start + n + count])
    return []


def entry_points(
    model: ChatModel, progress: Callable[[str, int, int], None] | None = None, target: Target | None = None
) -> dict[str, Plan]:
    """The plans of a chat by name: prefill_B for every block, decode, sample, greedy, verify_B; for a target other than
    the device's, where one is given."""
    start = Variable("start_pos", 0, model.context - 1).bind(0)

    def begin(block: int) -> UOp:
        """A position from which a block stays inside of the cache."""
        return Variable("start_pos", 0, min(model.context - 1, positions(model.context) - block)).bind(0)

    def prefill(block: int) -> Callable[[], Tensor]:
        return lambda: model.prefill(block, begin(block), Variable("count", 1, block).bind(1))

    wanted: dict[str, Callable[[], Tensor]] = {prefill_name(b): prefill(b) for b in prefill_blocks(model.context)}
    wanted |= {
        "decode": lambda: model.decode(start),
        "sample": lambda: model.sample(start),
        "greedy": lambda: model.greedy(start),
    }
    if verify := verify_block(model.context, model.rewinds):
        wanted[verify_name(verify)] = lambda: model.verify(verify, begin(verify))
    plans: dict[str, Plan] = {}
    for done, (name, function) in enumerate(wanted.items()):
        if progress:
            progress("planning", done, len(wanted))
        plans[name] = capture(function, target, across=target is None)
    if progress:
        progress("planning", len(wanted), len(wanted))
    return plans


def usual_calls(plans: Iterable[str], tokens: int = 64) -> dict[str, int]:
    """How often entry points run for one answer of so many tokens: what tuning weighs their kernels by."""
    rarer = {"prefill": tokens, "verify": 8}  # drafts are rarely found
    return {name: max(tokens // rarer.get(name.split("_")[0], 1), 1) for name in plans}


@dataclass(frozen=True)
class Part:
    """A token of the answer and the text that became final with it."""

    token: int
    text: str


@dataclass
class Statistics:
    """Of the last answer."""

    prompt_ids: list[int] = field(default_factory=list)
    reused: int = 0  # tokens of the prompt that were still in the cache
    dropped: int = 0  # messages that did not fit into the context
    first_token_seconds: float = 0.0
    tokens_per_second: float = 0.0  # after the first token; 0 where there is only one


class Chat:
    """A model with its entry points compiled for the device its weights are on."""

    def __init__(
        self,
        model: ChatModel,
        tokenizer: Tokenizer,
        defaults: Settings | None = None,
        progress: Callable[[str, int, int], None] | None = None,
    ):
        self.model, self.tokenizer, self.defaults = model, tokenizer, defaults or Settings()
        self.statistics = Statistics()
        self._stopping = False
        self._cached: list[int] = []  # ids whose keys and values are in the cache, from position 0
        self._stands = 0  # tokens that a state has read: it goes on behind them only
        self._plans = entry_points(model, progress)
        self._blocks = (*prefill_blocks(model.context), 1)
        self.device = Device.place(model.ids.device)
        if progress:
            progress(f"compiling kernels for {self.device.name}", 0, 1)
        compile_calls(self.device.name, [c for plan in self._plans.values() for c in plan.calls])
        if progress:
            progress(f"compiling kernels for {self.device.name}", 1, 1)
        plans = self._plans
        sizes = [sorted(plan.pool_bytes, reverse=True) for plan in plans.values()]
        shared = () if any(plan.memory.pool_devices for plan in plans.values()) else range(max(map(len, sizes)))
        pools = [Buffer(self.device.runtime, max(s[i] for s in sizes if i < len(s)), dtypes.uint8) for i in shared]
        self._replays = {
            name: replay(self.device.name, plan.calls, _place(plan, pools), ()) for name, plan in plans.items()
        }

    def generate(self, messages: Sequence[Mapping[str, str]], settings: Settings | None = None) -> Iterator[Part]:
        """The assistant's answer, token by token; the end token comes last, without text.

        Of a conversation that is too long for the context the oldest turns are left out (see `fit_messages`). The
        messages of a base model are pieces of one text (see `pieces`), which it continues.
        """
        settings = settings or self.defaults
        fitted = fit_messages(messages, self.model.context, settings.max_tokens, self.tokenizer.prompt)
        stream = TextStream(self.tokenizer, fitted.ids[-LOOK_BACK:] if self.tokenizer.completes else ())
        last: int | None = None
        for token in self.generate_ids(fitted.ids, settings):
            self.statistics.dropped = fitted.dropped
            if last is not None:
                yield Part(last, stream.push(last))
            last = token
        if last is not None:
            ended = last in self.tokenizer.eos
            yield Part(last, ("" if ended else stream.push(last)) + stream.finish())

    def generate_ids(self, prompt: Sequence[int], settings: Settings | None = None) -> Iterator[int]:
        """Token ids that follow `prompt`, the end token included; stops at `max_tokens`, where the context is full, and
        after `stop`.

        Raises TinywebError for a prompt that is empty or leaves no room for an answer.
        """
        settings = settings or self.defaults
        context = self.model.context
        if not 0 < len(prompt) <= context:
            raise TinywebError(
                f"The prompt has {len(prompt)} tokens, and 1 to {context} are possible: "
                "shorten it, or choose a larger --context."
            )
        begin = time.perf_counter()
        self._stopping = False
        self._settle(settings)
        self._read_prompt(list(prompt))
        if self._stopping:
            return
        ids = list(prompt)
        first = begin
        for token in self._tokens(ids, settings):
            ids.append(token)
            now = time.perf_counter()
            produced = len(ids) - len(prompt)
            if produced == 1:
                self.statistics.first_token_seconds, first = now - begin, now
            else:
                self.statistics.tokens_per_second = (produced - 1) / (now - first)
            yield token
            # the cache holds `context` positions; the token after the last of them can still be chosen
            ended = token in self.tokenizer.eos or produced == settings.max_tokens or len(ids) > context
            if ended or self._stopping:
                return

    def answer(self, messages: Sequence[Mapping[str, str]], settings: Settings | None = None) -> tuple[str, list[int]]:
        """The whole answer: its text, and its ids with the end token."""
        parts = list(self.generate(messages, settings))
        return "".join(p.text for p in parts), [p.token for p in parts]

    def stop(self) -> None:
        """End the answer that is being made, after the token or the block of its prompt that is under way. A handler of
        signals may call it."""
        self._stopping = True

    def forget(self) -> None:
        """Read the next prompt from its beginning, whatever the cache holds."""
        self._cached, self._stands = [], 0

    def _tokens(self, ids: list[int], settings: Settings) -> Iterator[int]:
        """Tokens without end; the caller appends each to `ids`, which begin with a prompt that was just read."""
        choose = "greedy" if settings.greedy else "sample"
        most = (
            min(settings.speculate, verify_block(self.model.context, self.model.rewinds) - 1) if settings.greedy else 0
        )
        self._launch(choose, start_pos=len(ids) - 1)
        yield self._token(len(ids))
        while True:
            position = len(ids) - 1  # of the token chosen last, which is not in the cache
            inside = position + VERIFY <= positions(self.model.context)
            guesses = draft(ids, most) if most > 0 and inside else []
            if guesses:
                said = self._verify(position, guesses)
            else:
                self._decode(position)
                self._launch(choose, start_pos=position)
                said = [self._token(position + 1)]
            for token in said:
                self._cached.append(ids[len(self._cached)])
                yield token

    def _verify(self, position: int, guesses: list[int]) -> list[int]:
        """The guesses that are right, and the token after them; `ids` on the device is as without guessing."""
        self._write(self.model.ids, np.array(guesses, np.int32), position + 1)
        self._launch(verify_name(VERIFY), start_pos=position)
        data = self.device.memory(self.model.verified.uop.buffer).read(4 * (len(guesses) + 1))
        said = [int(token) for token in np.frombuffer(data, np.int32)]
        right = next((i for i, (guess, token) in enumerate(zip(guesses, said)) if guess != token), len(guesses))
        self._write(self.model.ids, np.array(said[right : right + 1], np.int32), position + right + 1)
        return said[: right + 1]

    def _settle(self, settings: Settings) -> None:
        """Put the settings on the device."""
        floats = [settings.temperature, settings.top_p, settings.repetition_penalty, 0.0]
        integers = [settings.top_k, settings.seed_word]
        self._write(self.model.sampling_f, np.array(floats, np.float32))
        self._write(self.model.sampling_i, np.array(integers, np.int32))

    def _read_prompt(self, prompt: list[int]) -> None:
        """Bring the keys and values of `prompt` into the cache and its last logits into `logits`."""
        shared = 0
        while shared < min(len(self._cached), len(prompt) - 1) and self._cached[shared] == prompt[shared]:
            shared += 1
        if not self.model.rewinds and shared != self._stands:
            shared = 0
        self.statistics = replace(Statistics(), prompt_ids=prompt, reused=shared)
        self._cached = prompt[:shared]
        self._write(self.model.ids, np.array(prompt[shared:], np.int32), shared)
        while shared < len(prompt) and not self._stopping:
            left = len(prompt) - shared
            room = positions(self.model.context) - shared
            block = choose_block([b for b in self._blocks if b <= room], left)
            count = min(block, left)
            if block == 1:
                self._decode(shared)
            else:
                self._launch(prefill_name(block), start_pos=shared, count=count)
                self._stands = shared + count
            self._cached += prompt[shared : shared + count]
            shared += count

    def _decode(self, position: int) -> None:
        self._launch("decode", start_pos=position)
        self._stands = position + 1

    def _launch(self, entry: str, **variables: int) -> None:
        self._replays[entry](variables)

    def _write(self, state: Tensor, values: npt.NDArray[np.float32] | npt.NDArray[np.int32], at: int = 0) -> None:
        self.device.memory(state.uop.buffer).fill(memoryview(values.tobytes()), at * values.itemsize)

    def _token(self, position: int) -> int:
        data = self.device.memory(self.model.ids.uop.buffer).read(4, position * 4)
        return int.from_bytes(data, "little", signed=True)


def _place(plan: Plan, pools: list[Buffer]) -> dict[UOp, Buffer]:
    """Where a plan's temporaries lie in pools that all plans share: the largest in the largest, and so on. A plan of
    several devices has its own."""
    if plan.memory.pool_devices:
        own = allocate_pools(plan.memory, plan.device)
        return {buffer: own[pool] for buffer, pool in plan.memory.pool_of.items()}
    order = sorted(range(len(plan.pool_bytes)), key=lambda p: -plan.pool_bytes[p])
    rank = {pool: r for r, pool in enumerate(order)}
    return {buffer: pools[rank[pool]] for buffer, pool in plan.memory.pool_of.items()}
