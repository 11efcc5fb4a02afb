"""Perplexity of the embedded chat model at each quantisation, on conversations that it was not fitted to.

    python -m benchmarks.quantization                           print the table
    python -m benchmarks.quantization --write                   and put each row into the document as it is found
    python -m benchmarks.quantization --write --rows mixed      only those in whose first cells this expression is found
    python -m benchmarks.quantization --write --missing         only those that the document lacks

Texts are conversations of the generator that the model was trained with (tools/train/tinychat), of seeds that its
training did not use: one set to calibrate on, another to measure on, without those conversations that are in both.
Files of GGUF's types are made by llama.cpp (`make bench-peers`).
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from datetime import date
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.worker import peer_python
from tinyweb.formats.tokenizer import Tokenizer
from tinyweb.kinds import STORED
from tinyweb.models import load
from tinyweb.nn.precision import Recipe
from tinyweb.quantization import ChatReader, QuantOptions, quantise
from tinyweb.quantization.evaluation import Predictions
from tinyweb.quantization.options import parse_bytes, parse_group
from tinyweb.quantization.texts import spread

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "assets" / "models" / "tinychat-7m"
DOCS = ROOT / "docs" / "quantization.md"
MARKS = ("<!-- measured: python -m benchmarks.quantization --write -->", "<!-- end -->")
CALIBRATION, HELD_OUT = (500_001, 1000), (900_001, 1000)  # seed and number of conversations
BLOCKS = 128  # of 256 tokens that are measured on
CONTEXT = 512
QUANTISE = """
import ctypes, sys, llama_cpp
source, to, kind = sys.argv[1:]
options = llama_cpp.llama_model_quantize_default_params()
options.ftype = getattr(llama_cpp, "LLAMA_FTYPE_MOSTLY_" + kind)
sys.exit(llama_cpp.llama_model_quantize(source.encode(), to.encode(), ctypes.byref(options)))
"""
HEAD = (
    "| options | calibrated | MB | perplexity | beside f32, % | chance, % | same next token, % | measured |",
    "| --- | --- | ---: | ---: | ---: | ---: | ---: | --- |",
)


@dataclass(frozen=True)
class Row:
    """What is measured: arguments of `quantise` by their names on the command line. `cache`: of keys and values.
    `gguf`: of a file of this type, whose blocks run as they are stored."""

    quant: str
    calibrated: bool = False
    options: tuple[tuple[str, Any], ...] = ()
    cache: str | None = None
    gguf: str | None = None

    @property
    def title(self) -> str:
        given = [*self.options, *([("cache", self.cache)] if self.cache else [])]
        names = ((n if n != "embedding" else "quant-embedding", v) for n, v in given)
        said = " ".join(f"--{n.replace('_', '-')}" + ("" if v is True else f" {v}") for n, v in names)
        return f"{self.gguf} of GGUF" if self.gguf else f"`--quant {self.quant}{' ' + said if said else ''}`"

    @property
    def cells(self) -> str:
        """The first cells of its line, which are no other row's."""
        return f"| {self.title} | {'yes' if self.calibrated else ''} |"


BOTH = (False, True)
INTEGERS = ("q6", "q5", "q4", "q3")
GGUF = (
    *("Q8_0", "Q6_K", "Q5_K_M", "Q5_1", "Q5_0", "Q4_K_M", "Q4_K_S", "Q4_1", "Q4_0", "IQ4_NL", "IQ4_XS"),
    *("Q3_K_M", "Q2_K"),
)
ROWS = (
    Row("f32"),
    Row("f16"),
    Row("q8"),
    *(Row(q, c) for q in INTEGERS for c in BOTH),
    *(Row("q4", c, (("group", g),)) for g in (64, 128, "channel") for c in BOTH),
    *(Row("q3", True, (("group", g),)) for g in (64, 128)),
    *(Row(q, c, (("zero_points", True),)) for q in ("q4", "q3") for c in BOTH),
    *(Row("q4", c, (("embedding", "q4"),)) for c in BOTH),
    *(Row("mixed", True, (("bytes", size),)) for size in ("5MB", "4.5MB", "4MB", "3.5MB")),
    *(Row("f16", cache=cache) for cache in ("f32", "f16", "q8", "q4")),
    *(Row("stored", gguf=kind) for kind in GGUF),
)


def conversations(seed: int, count: int) -> list[str]:
    """So many conversations of the training generator, as the model's template writes them."""
    sys.path.insert(0, str(ROOT / "tools" / "train" / "tinychat"))
    corpus, skills = import_module("corpus"), import_module("skills")
    from tokenizers import Tokenizer as Backend

    skills.set_tokens(Backend.from_file(str(FOLDER / "tokenizer.json")))
    tokenizer, rng = Tokenizer.from_folder(FOLDER), random.Random(seed)
    found = []
    for _ in range(count):
        made = corpus.make_conversation(rng)
        messages = [{"role": "system", "content": made.system}] if made.system else []
        for user, assistant in made.turns:
            messages += [{"role": "user", "content": user}, {"role": "assistant", "content": assistant}]
        found.append(tokenizer.render(messages, False))
    return found


class Bench:
    """Measures rows beside the model in f32. `folder`: where files lie meanwhile."""

    def __init__(self, folder: Path):
        self.folder, self.tokenizer, self.commit = folder, Tokenizer.from_folder(FOLDER), commit()
        fit, held = (conversations(*each) for each in (CALIBRATION, HELD_OUT))
        self.fit = folder / "calibration.txt"
        self.fit.write_text("\n".join(fit), encoding="utf-8")
        seen = set(fit)
        reader = self.reader(FOLDER, "f32", "f32")
        held_out = reader.blocks("\n".join(text for text in held if text not in seen), BLOCKS, "what is measured on")
        self.texts = spread(held_out, BLOCKS)
        self.before = self.predictions(reader)

    def reader(self, source: Path, recipe: Recipe | str, cache: str) -> ChatReader:
        return ChatReader(load(source, recipe, CONTEXT, "CPU", "float", cache), self.tokenizer)

    def predictions(self, reader: ChatReader) -> Predictions:
        found: Predictions = reader.measure(self.texts, lambda: None)
        return found

    def made(self, row: Row) -> ChatReader:
        """The model of a row."""
        cache = row.cache or "f32"
        if row.gguf:
            return self.reader(self.gguf(row.gguf), STORED, cache)
        parse: dict[str, Any] = {"group": lambda v: parse_group(str(v)), "bytes": parse_bytes}
        given: dict[str, Any] = {n: parse[n](v) if n in parse else v for n, v in row.options}
        options = replace(QuantOptions(calibrate=self.fit if row.calibrated else None), **given)
        return quantise(lambda recipe: self.reader(FOLDER, recipe, cache), row.quant, options).reader

    def gguf(self, kind: str) -> Path:
        """The model in a file of llama.cpp's."""
        whole, path = self.folder / "f32.gguf", self.folder / f"{kind}.gguf"
        if not whole.exists():
            converted = import_module("tests.formats.gguf.converted")
            converted.convert(FOLDER, whole, "llama", None, converted.metadata_of(FOLDER))
        subprocess.run([peer_python(), "-c", QUANTISE, whole, path, kind], check=True, capture_output=True)
        return path

    def line(self, row: Row) -> str:
        """Of the table: what was measured of a row."""
        reader = self.made(row)
        found, before = self.predictions(reader), self.before
        # blocks are what is independent of each other: losses within one are not
        apart = (found.losses - before.losses).reshape(len(self.texts), -1).mean(1)
        cells = (
            f"{reader.weight_bytes() / 1e6:.2f}",
            f"{found.perplexity:.4f}",
            f"{100 * (found.perplexity / before.perplexity - 1):+.2f}",
            f"{100 * apart.std() / np.sqrt(len(apart)):.2f}",
            f"{100 * (found.likeliest == before.likeliest).mean():.1f}",
            f"{date.today()}, {self.commit}",
        )
        return f"{row.cells} {' | '.join(cells)} |"


def commit() -> str:
    return subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()


def known_lines() -> dict[str, str]:
    """The document's lines by their first cells."""
    table = DOCS.read_text(encoding="utf-8").partition(MARKS[0])[2].partition(MARKS[1])[0].splitlines()
    return {row.cells: line for row in ROWS for line in table if line.startswith(row.cells)}


def write(lines: dict[str, str]) -> None:
    """Puts lines into the document, in the order of ROWS."""
    before, _, rest = DOCS.read_text(encoding="utf-8").partition(MARKS[0])
    table = [*HEAD, *(lines[row.cells] for row in ROWS if row.cells in lines)]
    DOCS.write_text(f"{before}{MARKS[0]}\n" + "\n".join(table) + f"\n{MARKS[1]}{rest.partition(MARKS[1])[2]}", "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help="put each row into docs/quantization.md as it is found")
    parser.add_argument(
        "--rows", default="", metavar="EXPRESSION", help="only those in whose first cells this expression is found"
    )
    parser.add_argument("--missing", action="store_true", help="only those that docs/quantization.md lacks")
    given = parser.parse_args()
    known = known_lines()
    rows = [r for r in ROWS if re.search(given.rows, r.cells) and not (given.missing and r.cells in known)]
    print(*HEAD, sep="\n", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        for row in rows:
            line = bench.line(row)
            print(line, flush=True)
            if given.write:
                write(known_lines() | {row.cells: line})


if __name__ == "__main__":
    main()
