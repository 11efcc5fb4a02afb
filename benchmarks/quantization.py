"""Perplexity of the embedded chat model at each quantisation, on conversations that it was not fitted to.

    python -m benchmarks.quantization            print the table
    python -m benchmarks.quantization --write    and put it into docs/quantization.md

Texts are conversations of the generator that the model was trained with (tools/train/tinychat), of seeds that its
training did not use: one set to calibrate on, another to measure on.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "assets" / "models" / "tinychat-7m"
DOCS = ROOT / "docs" / "quantization.md"
MARKS = ("<!-- measured: python -m benchmarks.quantization --write -->", "<!-- end -->")
CALIBRATION, HELD_OUT = (500_001, 600), (900_001, 250)  # seed and number of conversations


@dataclass(frozen=True)
class Row:
    """What is measured: arguments of `quantise` by their names on the command line."""

    quant: str
    calibrated: bool = False
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def title(self) -> str:
        said = " ".join(f"--{n.replace('_', '-')}" + ("" if v is True else f" {v}") for n, v in self.options)
        return f"--quant {self.quant} {said}".rstrip()


ROWS = (
    Row("f16"),
    *(Row(q, c) for q in ("q8", "q6", "q5", "q4", "q3") for c in (False, True) if q != "q8" or not c),
    *(Row("q4", c, (("group", g),)) for g in (64, 128, "channel") for c in (False, True)),
    *(Row("q4", c, (("zero_points", True),)) for c in (False, True)),
    *(Row("q4", c, (("embedding", "q4"),)) for c in (False, True)),
    Row("mixed", True, (("bytes", "4.5MB"),)),
    Row("mixed", True, (("bytes", "4MB"),)),
)


def conversations(seed: int, count: int) -> str:
    """So many conversations of the training generator, as the model's template writes them."""
    sys.path.insert(0, str(ROOT / "tools" / "train" / "tinychat"))
    corpus, skills = import_module("corpus"), import_module("skills")
    from tokenizers import Tokenizer as Backend

    from tinyweb.formats.tokenizer import Tokenizer

    skills.set_tokens(Backend.from_file(str(FOLDER / "tokenizer.json")))
    tokenizer, rng = Tokenizer.from_folder(FOLDER), random.Random(seed)
    found = []
    for _ in range(count):
        made = corpus.make_conversation(rng)
        messages = [{"role": "system", "content": made.system}] if made.system else []
        for user, assistant in made.turns:
            messages += [{"role": "user", "content": user}, {"role": "assistant", "content": assistant}]
        found.append(tokenizer.render(messages, False))
    return "\n".join(found)


def measure(rows: Sequence[Row], folder: Path) -> Iterator[tuple[Row, dict[str, Any]]]:
    """The report of each row."""
    from tinyweb.formats.tokenizer import Tokenizer
    from tinyweb.models import load
    from tinyweb.quantization import ChatReader, QuantOptions, quantise
    from tinyweb.quantization.options import parse_bytes, parse_group

    texts = {name: folder / f"{name}.txt" for name in ("calibration", "held-out")}
    for path, (seed, count) in zip(texts.values(), (CALIBRATION, HELD_OUT), strict=True):
        path.write_text(conversations(seed, count), encoding="utf-8")
    tokenizer = Tokenizer.from_folder(FOLDER)
    parse: dict[str, Callable[[Any], Any]] = {"group": lambda v: parse_group(str(v)), "bytes": parse_bytes}
    for row in rows:
        options = QuantOptions(evaluate=texts["held-out"], calibrate=texts["calibration"] if row.calibrated else None)
        given: dict[str, Any] = {n: parse[n](v) if n in parse else v for n, v in row.options}
        options = replace(options, **given)
        made = quantise(
            lambda recipe: ChatReader(load(FOLDER, recipe, 512, "CPU", "float"), tokenizer), row.quant, options
        )
        yield row, made.report.record()


def line(row: Row, record: dict[str, Any]) -> str:
    e = record["evaluation"]
    cells = (
        f"`{row.title}`",
        "yes" if row.calibrated else "",
        f"{record['bytes']['weights'] / 1e6:.2f}",
        f"{e['perplexity']['quantised']:.4f}",
        f"{100 * e['perplexity_growth']:+.2f}",
        f"{100 * e['agreement']:.1f}",
    )
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help="put the table into docs/quantization.md")
    given = parser.parse_args()
    head = (
        "| options | calibrated | MB | perplexity | beside f32, % | same next token, % |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    )
    found = [*head]
    print(*head, sep="\n", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for row, record in measure(ROWS, Path(folder)):
            found.append(line(row, record))
            print(found[-1], flush=True)
    if given.write:
        before, _, rest = DOCS.read_text(encoding="utf-8").partition(MARKS[0])
        after = rest.partition(MARKS[1])[2]
        DOCS.write_text(f"{before}{MARKS[0]}\n" + "\n".join(found) + f"\n{MARKS[1]}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
