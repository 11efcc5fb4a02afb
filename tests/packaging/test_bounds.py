"""The oldest versions that pyproject.toml allows: what it says of them is true, and older ones are told of."""

import subprocess
import sys
import tomllib
import venv
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
BOUNDS = [Requirement(r) for r in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]]


def test_every_dependency_has_a_lower_bound_and_no_other() -> None:
    for requirement in BOUNDS:
        (bound,) = requirement.specifier
        assert bound.operator == ">="
        assert version(requirement.name) in requirement.specifier


@pytest.mark.slow
def test_oldest_versions_export(tmp_path: Path) -> None:
    """From the package index, in an environment of their own: every device is tried, and a chat exported."""
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    oldest = [f"{r.name}=={next(iter(r.specifier)).version}.*" for r in BOUNDS]
    pip: list[str | Path] = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--quiet",
        "--only-binary",
        ":all:",
    ]
    subprocess.run([*pip, *oldest], check=True, timeout=500)
    run: list[str | Path] = [python, "-m", "tinyweb.cli"]
    env = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    told = subprocess.run([*run, "doctor"], env=env, capture_output=True, text=True, timeout=300).stdout
    assert all(f"{device} " in told for device in ("CPU", "WASM", "INTERPRETER"))
    assert told.count("first kernel") >= 3
    model = ROOT / "assets" / "models" / "tinychat-7m"
    subprocess.run([*run, "export", "chat", model, "-o", tmp_path / "site"], env=env, check=True, timeout=500)
    assert (tmp_path / "site" / "model" / "manifest.json").is_file()
