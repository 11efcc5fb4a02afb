"""What `tinyweb export chat` costs, in time and memory, in a process of its own, for a model of random weights.

usage: python -m benchmarks export [--shape 1b] [--quant q4 --quant q8] [--page] [--folder FOLDER] [--keep]
                                   [--json FILE]

The model has the shape of Llama-3.2-1B: bfloat16 in shards, written a slice at a time, and a byte-level vocabulary of
as many tokens. `--page` opens the site in Chromium, too, in WebAssembly, and measures the memory of its process from
the first byte to the end of an answer, and that of all of Chromium.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from queue import Queue
from typing import Any
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt

from benchmarks import checkpoints
from benchmarks.checkpoints import SHAPES, Shape
from benchmarks.worker import ROOT

MIB, GIB = 1 << 20, 1 << 30
SLICE = 1 << 22  # weights made at a time
SHARD = 1 << 30  # bytes of a file, about
EVERY = 0.1  # seconds between two looks at a process's memory


# -- the model ---------------------------------------------------------------------------------------------------------
def model_folder(shape: Shape, folder: Path) -> Path:
    """A Hugging Face folder of a shape at `folder`: bfloat16 weights in shards, config and tokenizer."""
    if not (folder / "tokenizer.json").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _write_weights(shape, folder)
        _write_texts(shape, folder)
    return folder


def _write_weights(shape: Shape, folder: Path) -> None:
    """Safetensors files, none of which, and no tensor of which, is ever in memory as a whole."""
    tensors: list[tuple[str, tuple[int, ...]]] = [(f"{name}.weight", sizes) for name, sizes in shape.matrices()]
    tensors += [(f"{name}.weight", (shape.hidden_size,)) for name in shape.norms()]
    files: list[list[tuple[str, tuple[int, ...]]]] = [[]]
    for name, sizes in tensors:
        if sum(2 * int(np.prod(s)) for _, s in files[-1]) >= SHARD:
            files.append([])
        files[-1].append((name, sizes))
    homes: dict[str, str] = {}
    for number, held in enumerate(files, 1):
        file = f"model-{number:05}-of-{len(files):05}.safetensors"
        homes |= dict.fromkeys((name for name, _ in held), file)
        with (folder / file).open("wb") as stream:
            stream.write(_header(held))
            for name, sizes in held:
                for part in _values(name, sizes, shape):
                    part.tofile(stream)
    index = {"metadata": {}, "weight_map": homes}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def _header(tensors: Sequence[tuple[str, tuple[int, ...]]]) -> bytes:
    fields, at = dict[str, Any](), 0
    for name, sizes in tensors:
        end = at + 2 * int(np.prod(sizes))
        fields[name] = {"dtype": "BF16", "shape": list(sizes), "data_offsets": [at, end]}
        at = end
    text = json.dumps(fields).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _values(name: str, sizes: tuple[int, ...], shape: Shape) -> Iterator[npt.NDArray[np.uint16]]:
    """The bits of a tensor, a slice at a time: matrices whose products stay near 1, norms near 1."""
    random = np.random.default_rng([checkpoints.VERSION, *name.encode()])
    deviation, middle = (0.1, 1.0) if len(sizes) == 1 else (sizes[-1] ** -0.5, 0.0)
    if name.endswith(("o_proj.weight", "down_proj.weight")):
        deviation *= (2 * shape.num_hidden_layers) ** -0.5  # the sum over all layers stays near 1
    left = int(np.prod(sizes))
    while left:
        part = random.standard_normal(min(left, SLICE), dtype=np.float32)
        part *= np.float32(deviation)
        part += np.float32(middle)
        yield (part.view(np.uint32) >> 16).astype(np.uint16)
        left -= len(part)


def _write_texts(shape: Shape, folder: Path) -> None:
    config: dict[str, Any] = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", **asdict(shape)}
    special = ["<|begin|>", "<|end|>"]
    first = shape.vocab_size - len(special)
    config |= {"hidden_act": "silu", "torch_dtype": "bfloat16", "bos_token_id": first, "eos_token_id": first + 1}
    _write_json(folder / "config.json", config)
    _write_json(folder / "generation_config.json", {"bos_token_id": first, "eos_token_id": first + 1})
    template = "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}"
    tokens = {"bos_token": special[0], "eos_token": special[1], "chat_template": template}
    _write_json(folder / "tokenizer_config.json", tokens)
    _write_json(folder / "tokenizer.json", _tokenizer(first, special))


def _tokenizer(count: int, special: Sequence[str]) -> dict[str, Any]:
    """A byte-level BPE of `count` tokens beside the special ones, whose merges are made up."""
    letters = _byte_letters()
    texts, taken, merges = list(letters), set(letters), list[str]()
    random = np.random.default_rng(checkpoints.VERSION)
    while len(texts) < count:
        left, right = (texts[int(i)] for i in random.integers(0, len(texts), 2))
        if len(left + right) <= 16 and left + right not in taken:
            taken.add(left + right)
            texts.append(left + right)
            merges.append(f"{left} {right}")
    added = [
        {"id": count + i, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
        | {"special": True}
        for i, text in enumerate(special)
    ]
    vocabulary = {text: i for i, text in enumerate(texts)}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    made: dict[str, Any] = {"version": "1.0", "added_tokens": added}
    made |= dict.fromkeys(("truncation", "padding", "normalizer", "post_processor"))
    made |= {"pre_tokenizer": byte_level, "decoder": byte_level}
    return made | {"model": {"type": "BPE", "vocab": vocabulary, "merges": merges}}


def _byte_letters() -> list[str]:
    """The letter for each byte in byte-level vocabularies: itself where it can be seen, else one after 255."""
    seen = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte if byte in seen else next(others)) for byte in range(256)]


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False) + "\n", encoding="utf-8")


# -- measuring ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Cost:
    """Of a command: `peak`: the largest resident set of it or a child of it; `together`: of all at one time, each page
    counted once. Bytes and seconds."""

    seconds: float
    processor_seconds: float
    peak: int
    together: int


def measured(command: Sequence[str], environment: dict[str, str] | None = None) -> Cost:
    """Run a command to its end; RuntimeError with its last lines where it fails."""
    begin = time.perf_counter()
    with subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, **(environment or {})}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as child:
        with watched(child.pid) as seen:
            assert child.stderr is not None
            said = child.stderr.read()
            _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{said.decode()[-2000:]}")
    seconds = time.perf_counter() - begin
    return Cost(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, max(seen))


@contextmanager
def watched(pid: int, only: str = "") -> Iterator[list[int]]:
    """The proportional memory of a process and everything below it, at intervals while the context lasts. `only`: of
    the largest process with this argument."""
    found, stop = [0], threading.Event()

    def look() -> None:
        while not stop.wait(EVERY):
            each = [memory_of(p) for p in below(pid) if only in arguments_of(p)]
            found.append(max(each, default=0) if only else sum(each))

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield found
    finally:
        stop.set()
        watcher.join()


def below(pid: int) -> list[int]:
    """A process and all that it started, as far as they live."""
    found = [pid]
    for one in found:
        try:
            tasks = list(Path(f"/proc/{one}/task").iterdir())
            found += [int(c) for task in tasks for c in (task / "children").read_text().split()]
        except OSError:
            continue
    return found


def arguments_of(pid: int) -> str:
    """What a process was started with; nothing where it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def memory_of(pid: int) -> int:
    """Bytes that a process has resident, pages it shares divided among those that do; 0 where it is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024


def export(source: Path, site: Path, quant: str, context: int) -> Cost:
    """`tinyweb export chat`, as users run it; the compiler's cache is empty."""
    shutil.rmtree(site, ignore_errors=True)
    cache = site.with_name(f"{site.name}-cache")
    shutil.rmtree(cache, ignore_errors=True)
    command = [sys.executable, "-m", "tinyweb.cli", "export", "chat", str(source), "-o", str(site)]
    try:
        return measured([*command, "--quant", quant, "--context", str(context)], {"TINYWEB_CACHE": str(cache)})
    finally:
        shutil.rmtree(cache, ignore_errors=True)


def needed_bytes(site: Path) -> tuple[int, int]:
    """Of an exported site's weights and of its key/value cache."""
    manifest = json.loads((site / "model" / "manifest.json").read_text())
    states = [b for b in manifest["buffers"] if b["kind"] == "state" and b["name"].startswith("layer")]
    return int(manifest["weights"]["bytes"]), sum(b["bytes"] for b in states)


@dataclass(frozen=True)
class PageCost:
    """Peaks in bytes: of the page's process, and of all processes of Chromium with their start."""

    page: int
    chromium: int
    load_seconds: float
    tokens_per_second: float


VISIT = """<script type="module">
const tell = (said) => fetch("http://localhost:PORT/" + encodeURIComponent(JSON.stringify(said)), { mode: "no-cors" });
const load = LOAD;
const decode = DECODE;
try {
  const begun = performance.now();
  await load("wasm");
  const seconds = (performance.now() - begun) / 1000;
  await tell([seconds, await decode(["Hello", TOKENS])]);
} catch (error) {
  await tell(String(error));
}
</script>
"""


def open_page(site: Path, tokens: int = 8) -> PageCost:
    """A site's chat in headless Chromium, in WebAssembly, from loading to the end of an answer. No developer tools look
    on, as they do where a browser is driven: they keep copies of what is fetched in the page's process. RuntimeError
    where the page fails."""
    sys.path.insert(0, str(ROOT / "tools"))
    import browser  # tools/browser.py

    from benchmarks.page import DECODE, LOAD
    from tinyweb.serve import open_server

    said: Queue[Any] = Queue()

    class Listener(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            said.put(json.loads(unquote(self.path[1:])))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server, listener = open_server(site), HTTPServer(("localhost", 0), Listener)
    for one in (server, listener):
        threading.Thread(target=one.serve_forever, daemon=True).start()
    named = {"PORT": listener.server_port, "LOAD": LOAD, "DECODE": DECODE, "TOKENS": tokens}
    (site / "visit.html").write_text(re.sub("|".join(named), lambda name: str(named[name[0]]), VISIT))
    # with a profile on the disk: without one its caches are memory
    with tempfile.TemporaryDirectory(dir=site.parent, ignore_cleanup_errors=True) as profile:
        command = [str(browser.ensure()), "--headless", f"--user-data-dir={profile}", *browser.FLAGS]
        with watched(os.getpid(), "--type=renderer") as alone, watched(os.getpid()) as together:
            before = memory_of(os.getpid())
            chromium = subprocess.Popen(
                [*command, f"http://localhost:{server.port}/visit.html"],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
            try:
                answer = said.get(timeout=1200)
            finally:
                os.killpg(chromium.pid, signal.SIGTERM)
                chromium.wait()
    for one in (server, listener):
        one.shutdown()
    if isinstance(answer, str):
        raise RuntimeError(f"the page of {site} failed: {answer}")
    return PageCost(max(alone), max(together) - before, *answer)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks export", description="What an export costs.")
    parser.add_argument("--shape", choices=SHAPES, default="1b")
    parser.add_argument("--quant", action="append", choices=("f16", "q8", "q4"), help="may be given twice")
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--page", action="store_true", help="open each site in Chromium, too")
    parser.add_argument("--folder", type=Path, default=checkpoints.FOLDER / "export", help="where files are made")
    parser.add_argument("--keep", action="store_true", help="do not delete them")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write the figures")
    given = parser.parse_args(arguments)
    source = model_folder(SHAPES[given.shape], given.folder / given.shape)
    stored = sum(p.stat().st_size for p in source.glob("*.safetensors"))
    print(f"{given.shape}: {stored / GIB:.2f} GiB in bfloat16", flush=True)
    figures: list[dict[str, Any]] = []
    for quant in given.quant or ["q8", "q4"]:
        site = given.folder / f"{given.shape}-{quant}"
        cost = export(source, site, quant, given.context)
        weights, cache = needed_bytes(site)
        figures.append({"shape": given.shape, "quant": quant, "stored": stored, "weights": weights, **asdict(cost)})
        print(
            f"{quant}: {cost.seconds:.0f} s ({cost.processor_seconds:.0f} s of processor time), "
            f"peak {cost.peak / GIB:.2f} GiB, with children {cost.together / GIB:.2f} GiB; "
            f"{weights / GIB:.2f} GiB of weights",
            flush=True,
        )
        if given.page:
            seen = open_page(site)
            figures[-1] |= {"cache": cache, "page": asdict(seen)}
            print(
                f"  in Chromium: {seen.page / GIB:.2f} GiB, {seen.page / (weights + cache):.3f} of weights and cache "
                f"(all processes {seen.chromium / GIB:.2f} GiB); loaded in {seen.load_seconds:.0f} s, "
                f"{seen.tokens_per_second:.2f} tokens/s",
                flush=True,
            )
        if not given.keep:
            shutil.rmtree(site)
    if not given.keep:
        shutil.rmtree(given.folder)
    if given.json:
        given.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
