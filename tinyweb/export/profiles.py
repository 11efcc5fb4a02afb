"""Whether a bundle fits on a kind of device, and what to expect there, from its bytes and a few numbers of the device.

An estimate, made before anybody opens the page: a token of an answer reads every weight once and the cache as far as it
is filled (the roofline of Williams et al. 2009, where bandwidth is the roof), and launches its kernels; a token of a
prompt is two operations for each weight. Bandwidth is taken as what such devices reach, about 0.7 of their data
sheets; memory as what browsers let a page have.

Everything here is of a finished bundle, by its manifest; `estimate.py` is for what is not exported yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tinyweb.errors import ExportError
from tinyweb.kinds import STORED

GIB, MIB = 1 << 30, 1 << 20
PAGE_BYTES = 64 * MIB  # the page itself: code, tokenizer, shards on their way
PROMPT = 256  # tokens until the first of an answer


@dataclass(frozen=True)
class Profile:
    """A kind of device. `memory`: bytes a page may have; `binding`: of one buffer (WebGPU's
    `maxStorageBufferBindingSize`); `bandwidth`: bytes/s; `operations`: of float32, or of bytes in WebAssembly, in one
    second; `launch`: seconds for each kernel."""

    name: str
    title: str
    target: str
    memory: int
    binding: int
    bandwidth: float
    operations: float
    launch: float


PROFILES = (
    Profile("desktop", "desktop graphics card", "webgpu", 8 * GIB, 2 * GIB, 350e9, 8e12, 5e-6),
    Profile("integrated", "integrated graphics", "webgpu", 4 * GIB, 1 * GIB, 50e9, 1e12, 8e-6),
    Profile("phone", "recent phone", "webgpu", 2 * GIB, 256 * MIB, 35e9, 6e11, 15e-6),
    Profile("old-phone", "old phone", "webgpu", 1 * GIB, 128 * MIB, 10e9, 1e11, 30e-6),
    Profile("wasm-4g", "WebAssembly, 4 GiB", "wasm", 4 * GIB, 4 * GIB, 15e9, 2e11, 2e-6),
    Profile("wasm-2g", "WebAssembly, 2 GiB", "wasm", 2 * GIB, 2 * GIB, 8e9, 5e10, 4e-6),
)


@dataclass(frozen=True)
class Fit:
    """A bundle on a device. `first_token` in seconds, `tokens_per_second`: of a chat, else None. `advice`: what would
    make it fit."""

    profile: str
    title: str
    fits: bool
    needs: int
    memory: int
    limit: str | None = None
    first_token: float | None = None
    tokens_per_second: float | None = None
    advice: str | None = None

    def record(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class _Chat:
    """What a chat reads for a token. `position`: bytes of the cache for one position."""

    weights: int
    position: float
    context: int
    parameters: int
    prefill: tuple[tuple[int, str], ...]  # block sizes, largest first, and their entry points


def named_profile(name: str) -> Profile:
    """ExportError where there is none of that name."""
    found = next((p for p in PROFILES if p.name == name), None)
    if found is None:
        raise ExportError(f"there is no profile {name!r}: choose one of {', '.join(p.name for p in PROFILES)}")
    return found


def fits(manifest: Mapping[str, Any], kernels: Mapping[str, Mapping[str, int]]) -> list[Fit]:
    """A bundle on every device whose target it has. `kernels`: of each entry point, by target."""
    chat = _chat(manifest) if manifest["task"] == "chat" else None
    return [_fit(p, manifest, chat, kernels[p.target]) for p in PROFILES if p.target in manifest["targets"]]


def _fit(profile: Profile, manifest: Mapping[str, Any], chat: _Chat | None, kernels: Mapping[str, int]) -> Fit:
    section = manifest["targets"][profile.target]
    needs = sum(section["bytes"].values()) + PAGE_BYTES
    limit = _limit(profile, section, needs)
    first = rate = None
    if chat is not None:
        middle = chat.weights + chat.position * chat.context / 2
        rate = 1 / (middle / profile.bandwidth + kernels[manifest["chat"]["decode"]] * profile.launch)
        first = _prompt(profile, chat, kernels)
    advice = None if limit is None else _advice(profile, needs, section, chat, manifest)
    return Fit(profile.name, profile.title, limit is None, needs, profile.memory, limit, first, rate, advice)


def _limit(profile: Profile, section: Mapping[str, Any], needs: int) -> str | None:
    """What is in the way."""
    largest = section.get("limits", {}).get("maxStorageBufferBindingSize", 0)
    if largest > profile.binding:
        return f"a buffer of {size(largest)}, where one may have {size(profile.binding)}"
    if needs > profile.memory:
        return f"memory: {size(needs)} of {size(profile.memory)}"
    return None


def _prompt(profile: Profile, chat: _Chat, kernels: Mapping[str, int]) -> float:
    """Seconds to read a prompt of PROMPT tokens: each block reads the weights once."""
    left, seconds = min(PROMPT, chat.context), 0.0
    while left > 0:
        block, entry = next(((b, e) for b, e in chat.prefill if b <= left), chat.prefill[-1])
        work = 2.0 * chat.parameters * block / profile.operations
        seconds += max(work, chat.weights / profile.bandwidth) + kernels[entry] * profile.launch
        left -= block
    return seconds


def _chat(manifest: Mapping[str, Any]) -> _Chat:
    facts, model = manifest["chat"], manifest["model"]
    buffers = {b["id"]: b for b in manifest["buffers"]}
    read = {id for id, b in buffers.items() if b["kind"] == "weight"}
    if "webgpu" in manifest["targets"]:  # its kernels name what they read; those with the ids read rows of a table
        variants = manifest["targets"]["webgpu"]["variants"].values()
        calls = next(iter(variants))["entry_points"][facts["decode"]]["dispatches"]
        read &= {id for call in calls if facts["ids"] not in call["buffers"] for id in call["buffers"]}
    layers = (b for b in buffers.values() if b["kind"] == "state" and b["name"].startswith("layer"))
    caches = [b for b in layers if len(b["shape"]) > 1 and b["shape"][-2] >= model["context"]]
    prefill = tuple((int(p["block"]), str(p["entry"])) for p in facts["prefill"]) + ((1, str(facts["decode"])),)
    if any(block < 1 for block, _ in prefill):
        raise ValueError("a block of a prompt has no tokens")
    return _Chat(
        sum(buffers[id]["bytes"] for id in read),
        sum(b["bytes"] / b["shape"][-2] for b in caches),
        int(model["context"]),
        int(model["parameters"]),
        prefill,
    )


def _advice(
    profile: Profile, needs: int, section: Mapping[str, Any], chat: _Chat | None, manifest: Mapping[str, Any]
) -> str:
    return " and ".join(_steps(profile, needs, section, chat, manifest)) or "a smaller model"


def _steps(
    profile: Profile, needs: int, section: Mapping[str, Any], chat: _Chat | None, manifest: Mapping[str, Any]
) -> Iterator[str]:
    """Options of the export that make it fit, the least loss first; none where they do not."""
    largest = section.get("limits", {}).get("maxStorageBufferBindingSize", 0)
    if chat is None or largest > profile.binding:
        return
    from tinyweb.export.choices import preferred  # a site that fits does without

    room = profile.memory - needs + chat.position * chat.context
    found: list[tuple[str, int]] = []
    for options, saved, cache in _smaller(manifest):
        free, position = room + saved, chat.position * cache
        all_of_it = free >= position * chat.context
        found.append((options, chat.context if all_of_it else int(free // position) if position else 0))
    options, context = next(preferred(found, chat.context), ("", 0))
    if options:
        yield options
    if 0 < context < chat.context:
        yield f"--context {context // 64 * 64}"


def _smaller(manifest: Mapping[str, Any]) -> Iterator[tuple[str, int, float]]:
    """Options for weights and cache, from those that are on, with the bytes of the weights that each saves, and what
    it leaves of the cache's."""
    from tinyweb.export.choices import Weights, by_exactness, less_exact, smaller_caches
    from tinyweb.models.decoder.cache import ELEMENT_BITS

    model, numbers = manifest["model"], Weights.of_manifest(manifest)
    quant, cache = str(model.get("quant")), str(model.get("cache"))
    now = numbers.bytes(STORED)
    later = [q for q in less_exact(quant) if numbers.bytes(q) < now]
    caches = smaller_caches(cache) if cache in ELEMENT_BITS else ["f16"]
    for w, c in by_exactness([STORED, *later], caches):
        changed = [f"--quant {w}"] if w != STORED else []
        changed += [f"--cache {c}"] if c != caches[0] else []
        yield " and ".join(changed), now - numbers.bytes(w), ELEMENT_BITS[c] / ELEMENT_BITS[caches[0]]


def size(count: float) -> str:
    """Bytes for people."""
    return f"{count / GIB:.1f} GiB" if count >= GIB else f"{count / MIB:.0f} MiB"


def line(fit: Fit) -> str:
    """One device for people."""
    if not fit.fits:
        return f"does not fit: {fit.limit} (try {fit.advice})"
    speed = ""
    if fit.tokens_per_second is not None and fit.first_token is not None:
        speed = f", about {_rounded(fit.tokens_per_second)} tokens/s, first after {fit.first_token:.2g} s"
    return f"fits: {size(fit.needs)} of {size(fit.memory)}{speed}"


def _rounded(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"
