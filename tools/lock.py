"""Write the locks: exact versions of all packages, with the SHA-256 of every file that an installer may take.

A lock is the closure of its requirements over the packages' metadata, for every platform and Python of ENVIRONMENTS:
what only some of them need carries a marker. Versions are those installed in this environment; of packages that are not
(those of another platform), those of the lock as it is, else the newest that fits. Metadata and hashes come from PyPI.
To upgrade: `pip install -U PACKAGE` in `.venv`, run the tests, run this; versions of peers (benchmarks/) are changed in
their lock by hand before.

- requirements.lock: what running and exporting needs. requirements-dev.lock: that, and what the tests need.
- requirements-cuda.lock: what PyPI's PyTorch for Linux needs to start. Builds without CUDA serve the tests as well:
  requirements-cpu.lock, written by hand.
- benchmarks/requirements-build.lock, benchmarks/requirements.lock: the peers of `make bench`, and what builds them.
"""

import functools
import io
import json
import re
import tomllib
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from email.parser import HeaderParser
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.tags import Tag, compatible_tags, cpython_tags, mac_platforms
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
INDEX = "https://pypi.org/simple"
PYTHONS = ((3, 11), (3, 12), (3, 13), (3, 14))
GLIBC = 39  # 2.39: wheels that need a newer one are left out

CUDA = re.compile(r"(cuda|nvidia)-|triton$")  # what PyPI's PyTorch asks for on Linux
NVRTC = ("cuda-bindings", "cuda-pathfinder", "nvidia-cuda-nvrtc")  # of these what our tests need
BUILD_TOOLS = ("cmake", "ninja", "packaging", "pathspec", "scikit-build-core")  # of llama-cpp-python


@dataclass(frozen=True)
class Environment:
    """A platform and a Python, as markers and file names see them."""

    system: str
    machine: str
    python: tuple[int, int]

    def markers(self, extra: str) -> dict[str, str]:
        python = f"{self.python[0]}.{self.python[1]}"
        return {
            "sys_platform": self.system,
            "platform_system": {"linux": "Linux", "darwin": "Darwin", "win32": "Windows"}[self.system],
            "os_name": "nt" if self.system == "win32" else "posix",
            "platform_machine": self.machine,
            "python_version": python,
            "python_full_version": f"{python}.0",
            "implementation_name": "cpython",
            "platform_python_implementation": "CPython",
            "extra": extra,
        }

    @functools.cached_property
    def tags(self) -> frozenset[Tag]:
        platforms = list(self._platforms())
        own = cpython_tags(self.python, platforms=platforms)
        return frozenset([*own, *compatible_tags(self.python, f"cp{self.python[0]}{self.python[1]}", platforms)])

    def _platforms(self) -> Iterator[str]:
        if self.system == "linux":
            yield from (f"manylinux_2_{minor}_{self.machine}" for minor in range(GLIBC, 4, -1))
            yield from (f"{old}_{self.machine}" for old in ("manylinux2014", "manylinux2010", "manylinux1", "linux"))
        elif self.system == "darwin":
            yield from mac_platforms((26, 0), self.machine)
        else:
            yield "win_amd64"


PLATFORMS = (("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64"), ("darwin", "x86_64"), ("win32", "AMD64"))
ENVIRONMENTS = tuple(Environment(*platform, python) for platform in PLATFORMS for python in PYTHONS)


@dataclass
class Package:
    """One version of one package: its files, and where it is needed."""

    name: str
    version: str
    wheels: dict[str, dict[str, Any]] = field(default_factory=dict)
    sdist: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        for file in index(self.name)["files"]:
            name = file["filename"]
            if name.endswith(".whl"):
                try:
                    found = parse_wheel_filename(name)[1]
                except ValueError:
                    continue
                if found == Version(self.version) and not file["yanked"]:
                    self.wheels[name] = file
            elif name.endswith(".tar.gz"):
                stem = name.removesuffix(".tar.gz").rpartition("-")
                if canonicalize_name(stem[0]) == self.name and stem[2] == self.version:
                    self.sdist = file

    def hashes(self, environments: Iterable[Environment]) -> tuple[set[str], set[Environment]]:
        """SHA-256 of every file that may be installed, the sdist's only where a wheel is missing; where nothing is."""
        taken: set[str] = set()
        without: set[Environment] = set()
        for environment in environments:
            fit = [n for n in self.wheels if environment.tags & parse_wheel_filename(n)[3]]
            taken |= {self.wheels[n]["hashes"]["sha256"] for n in fit}
            if not fit and self.sdist:
                taken.add(self.sdist["hashes"]["sha256"])
            elif not fit:
                without.add(environment)
        return taken, without

    def repacked(self) -> Iterator["Package"]:
        """Its post-releases: the same program, packed anew."""
        versions = sorted(map(Version, index(self.name)["versions"]))
        for found in versions:
            if found.is_postrelease and found.base_version == self.version:
                yield package(self.name, str(found))

    @functools.cached_property
    def requires(self) -> list[Requirement]:
        """What its metadata asks for; all wheels of a version are taken to ask for the same."""
        if not self.wheels:
            return []
        fit = (n for e in ENVIRONMENTS for n in self.wheels if e.tags & parse_wheel_filename(n)[3])
        url = self.wheels[next(fit)]["url"]
        try:
            text = fetch(f"{url}.metadata", "*/*")
        except urllib.error.HTTPError:  # not every file's is offered by itself
            with zipfile.ZipFile(io.BytesIO(fetch(url, "*/*"))) as wheel:
                text = wheel.read(next(n for n in wheel.namelist() if n.endswith(".dist-info/METADATA")))
        lines = HeaderParser().parsestr(text.decode()).get_all("Requires-Dist") or []
        return [Requirement(line) for line in lines]


def fetch(url: str, kind: str) -> bytes:
    with urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": kind}), timeout=60) as answer:
        return bytes(answer.read())


@functools.cache
def index(name: str) -> Any:
    return json.loads(fetch(f"{INDEX}/{name}/", "application/vnd.pypi.simple.v1+json"))


@functools.cache
def package(name: str, version: str) -> Package:
    return Package(name, version)


def choose(name: str, allowed: SpecifierSet, pinned: Mapping[str, str], here: bool) -> Package:
    """The version to lock; `here`: what is installed here decides."""
    if here:
        try:
            installed = Version(version(name)).public
        except PackageNotFoundError:
            pass
        else:
            if installed not in allowed:
                raise SystemExit(f"{name} {installed} is installed here, which does not fit {allowed}")
            return package(name, installed)
    if name in pinned and pinned[name] in allowed:
        return package(name, pinned[name])
    return package(name, str(max(allowed.filter(map(Version, index(name)["versions"])))))


Found = dict[str, tuple[Package, set[Environment]]]


def closure(
    requirements: Iterable[Requirement],
    pinned: Mapping[str, str],
    here: bool,
    wanted: Callable[[str], bool] = lambda name: True,
) -> Found:
    """Name -> package and the environments that need it, of all that `requirements` lead to and is `wanted`."""
    allowed: dict[str, SpecifierSet] = {}
    requirements = list(requirements)
    while True:  # until no version is ruled out by what was read after it was chosen
        found = _walk(requirements, allowed, pinned, here, wanted)
        if all(chosen.version in allowed[name] for name, (chosen, _) in found.items()):
            return found


def _walk(
    requirements: list[Requirement],
    allowed: dict[str, SpecifierSet],
    pinned: Mapping[str, str],
    here: bool,
    wanted: Callable[[str], bool],
) -> Found:
    found: Found = {}
    visited: set[tuple[str, str, Environment]] = set()
    pending = [(r, "", frozenset(ENVIRONMENTS)) for r in requirements]
    while pending:
        requirement, extra, where = pending.pop()
        marker, name = requirement.marker, canonicalize_name(requirement.name)
        if marker:
            where = frozenset(e for e in where if marker.evaluate(e.markers(extra)))
        if not where or not wanted(name):
            continue
        allowed[name] = allowed.get(name, SpecifierSet()) & requirement.specifier
        if name not in found:
            found[name] = (choose(name, allowed[name], pinned, here), set())
        chosen, environments = found[name]
        environments |= where
        for asked in ["", *requirement.extras]:
            new = frozenset(e for e in where if (name, asked, e) not in visited)
            visited |= {(name, asked, e) for e in new}
            pending += [(r, asked, new) for r in chosen.requires if new]
    return found


def marker(environments: set[Environment]) -> str:
    """The shortest condition that tells these environments from the others; "" for all."""
    if environments == set(ENVIRONMENTS):
        return ""
    parts = []
    by_platform = {p: {e.python for e in environments if (e.system, e.machine) == p} for p in PLATFORMS}
    for system, platforms in groupby(PLATFORMS, lambda p: p[0]):
        machines = list(platforms)
        if all(by_platform[p] == by_platform[machines[0]] for p in machines):
            parts.append((f'sys_platform == "{system}"', by_platform[machines[0]]))
        else:
            parts += [(f'sys_platform == "{p[0]}" and platform_machine == "{p[1]}"', by_platform[p]) for p in machines]
    parts = [(where, pythons) for where, pythons in parts if pythons]
    if len({frozenset(pythons) for _, pythons in parts}) == 1 and {
        p for p, found in by_platform.items() if found
    } == set(PLATFORMS):
        return _pythons(parts[0][1])
    texts = [where if pythons == set(PYTHONS) else f"{where} and {_pythons(pythons)}" for where, pythons in parts]
    return texts[0] if len(texts) == 1 else " or ".join(f"({t})" if " and " in t else t for t in texts)


def _pythons(versions: set[tuple[int, int]]) -> str:
    first, last = min(versions), max(versions)
    if versions != {p for p in PYTHONS if first <= p <= last}:
        raise ValueError(f"no marker is written for the Pythons {sorted(versions)}")
    parts = [f'python_version >= "{first[0]}.{first[1]}"'] * (first != PYTHONS[0])
    parts += [f'python_version <= "{last[0]}.{last[1]}"'] * (last != PYTHONS[-1])
    return " and ".join(parts)


def pins(path: Path) -> dict[str, str]:
    """Name -> version of a lock as it is."""
    text = path.read_text() if path.exists() else ""
    return dict(reversed(re.findall(r"^([\w.-]+)==([^\s;\\]+)", text, re.MULTILINE)))  # post-releases come second


def write(path: Path, about: str, packages: Found) -> None:
    lines = [f"# {about}", "# Written by tools/lock.py; install with --no-deps --require-hashes."]
    for _, (chosen, environments) in sorted(packages.items()):
        hashes, without = chosen.hashes(environments)
        lines.append(line(chosen, environments - without, hashes))
        for other in chosen.repacked() if without else ():
            hashes, still = other.hashes(without)
            if hashes:
                lines.append(line(other, without - still, hashes))
            without = still
        if without:
            print(f"  {chosen.name}=={chosen.version}: no file where {marker(without)}")
    path.write_text("\n".join(lines) + "\n")
    print(f"{path.relative_to(ROOT)}: {len(packages)} packages")


def line(chosen: Package, environments: set[Environment], hashes: set[str]) -> str:
    condition = marker(environments)
    head = f"{chosen.name}=={chosen.version}" + (f" ; {condition}" if condition else "")
    return " \\\n    ".join([head, *(f"--hash=sha256:{digest}" for digest in sorted(hashes))])


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    run_lock, dev_lock, cuda_lock = (ROOT / f"requirements{n}.lock" for n in ("", "-dev", "-cuda"))
    pinned = pins(dev_lock) | pins(run_lock) | pins(cuda_lock)
    asked = [Requirement(text) for text in (*project["project"]["dependencies"], "setuptools")]
    asked_dev = [Requirement(text) for text in project["dependency-groups"]["dev"]]

    run = closure(asked, pinned, here=True)
    dev = closure([*asked, *asked_dev], pinned, here=True, wanted=lambda name: name in NVRTC or not CUDA.match(name))
    cuda = closure([r for r in dev["torch"][0].requires if CUDA.match(r.name)], pinned, here=True)
    write(run_lock, "What running and exporting needs.", run)
    write(dev_lock, "What the tests need, and all of requirements.lock.", dev)
    write(
        cuda_lock,
        "What PyPI's PyTorch for Linux needs on top to start.",
        {n: p for n, p in cuda.items() if n not in dev or not p[1] <= dev[n][1]},
    )

    peers_lock, build_lock = (ROOT / "benchmarks" / f"requirements{n}.lock" for n in ("", "-build"))
    peers = pins(build_lock) | pins(peers_lock)
    build = closure([Requirement(name) for name in BUILD_TOOLS], peers, here=False)
    rest = closure([Requirement(name) for name in peers if name not in build], peers, here=False)
    write(build_lock, "What builds the peers of `make bench` (.venv-bench).", build)
    write(
        peers_lock,
        "Peers of `make bench`, for an environment of their own (.venv-bench): `make bench-peers`.",
        {n: p for n, p in rest.items() if n not in build},
    )


if __name__ == "__main__":
    main()
