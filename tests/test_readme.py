"""What the README shows is what happens."""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def test_python_example_prints_what_it_says() -> None:
    example = blocks("python")[0]
    done = subprocess.run([sys.executable, "-c", example], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    promised = re.search(r"tolist\(\)\)  # (.*)", example)
    assert promised is not None
    assert json.loads(first) == json.loads(promised[1])
    assert second.startswith("(1, 3, 4096) [[")


def test_training_example_learns() -> None:
    example = blocks("python")[1]
    done = subprocess.run([sys.executable, "-c", example], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.stdout == "True\n", done.stderr


def test_every_linked_file_exists() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_every_make_target_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z-]+)", "\n".join([*blocks("sh"), *re.findall(r"`(make [^`]+)`", README)])))
    assert named and named <= targets
