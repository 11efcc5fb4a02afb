"""Texts to distil on: glosses and examples of WordNet, descriptions of Debian packages.

Only the teacher's answers to them are learned; none of the texts goes into the model.
"""

from __future__ import annotations

import random
import re
import subprocess
from pathlib import Path

QUESTIONS = (
    "what is {}", "what does {} mean", "how does {} work", "tell me about {}", "examples of {}", "where can I find {}",
    "who needs {}", "how to use {}", "why {}", "is {} dangerous", "{}", "{}", "{}?", "best {}", "history of {}",
)  # fmt: skip


def wordnet(folder: Path) -> tuple[list[str], list[str]]:
    """Names of things and explanations of them, from the `data.*` files of WordNet."""
    names, glosses = [], []
    for kind in ("noun", "verb", "adj", "adv"):
        for line in (folder / f"data.{kind}").read_text("latin-1").splitlines():
            if line.startswith("  ") or "|" not in line:
                continue
            head, gloss = line.split("|", 1)
            fields = head.split()
            words = [fields[4 + 2 * i].replace("_", " ").split("(")[0] for i in range(int(fields[3], 16))]
            names += words[:2]
            gloss = gloss.strip()
            glosses.append(gloss if len(words) > 3 else f"{', '.join(words)}: {gloss}")
            glosses += [g for g in re.findall(r'"([^"]{15,})"', gloss)]
    return names, glosses


def debian() -> list[str]:
    """Descriptions of packages, as `apt-cache` knows them."""
    dump = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, text=True, check=True).stdout
    found = re.findall(r"^Description(?:-en)?: (.+(?:\n .+)*)", dump, re.M)
    return [re.sub(r"\s+", " ", d.replace("\n .\n", " ")).strip() for d in found]


def draw(count: int, wordnet_folder: Path, seed: int) -> list[str]:
    """`count` texts: a quarter like queries, half like sentences, a quarter like passages."""
    rng = random.Random(seed)
    names, glosses = wordnet(wordnet_folder)
    packages = debian()
    texts: list[str] = []
    while len(texts) < count:
        kind = rng.random()
        if kind < 0.12:
            texts.append(rng.choice(QUESTIONS).format(rng.choice(names)))
        elif kind < 0.25:
            words = rng.choice(glosses).split()
            begin = rng.randrange(max(1, len(words) - 6))
            texts.append(" ".join(words[begin : begin + rng.randint(3, 9)]))
        elif kind < 0.70:
            texts.append(rng.choice(glosses))
        elif kind < 0.82:
            begin = rng.randrange(len(glosses) - 4)  # neighbours explain related things
            texts.append(" ".join(g.rstrip(";") + "." for g in glosses[begin : begin + rng.randint(2, 4)]))
        else:
            words = rng.choice(packages).split()
            texts.append(" ".join(words[: rng.choice((8, 20, 60))]))
    return texts
