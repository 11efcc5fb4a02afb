"""Write requirements.lock and requirements-dev.lock from what is installed in this environment.

A lock is the closure of pyproject.toml's requirements over the installed packages' metadata, one `name==version` a
line, plus setuptools, which builds the editable install. To upgrade: `pip install -U PACKAGE` in `.venv`, run the
tests, run this.
"""

import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent


def closure(requirements: Iterable[str]) -> dict[str, str]:
    """Canonical name -> version of every package that the requirements need on this platform."""
    found: dict[str, str] = {}
    visited: set[tuple[str, str]] = set()
    pending = [(Requirement(text), "") for text in requirements]
    while pending:
        requirement, extra = pending.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        package = distribution(name)
        found[name] = Version(package.version).public  # without a local label such as +cpu
        for wanted in ["", *requirement.extras]:
            if (name, wanted) not in visited:
                visited.add((name, wanted))
                pending += [(Requirement(text), wanted) for text in package.requires or []]
    return found


def write(path: Path, packages: dict[str, str]) -> None:
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    lines = [f"# Written by tools/lock.py with Python {python}; install with --no-deps."]
    lines += [f"{name}=={version}" for name, version in sorted(packages.items())]
    path.write_text("\n".join(lines) + "\n")
    print(f"{path.name}: {len(packages)} packages")


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    run = closure([*project["project"]["dependencies"], "setuptools"])
    write(ROOT / "requirements.lock", run)
    write(ROOT / "requirements-dev.lock", run | closure(project["dependency-groups"]["dev"]))


if __name__ == "__main__":
    main()
