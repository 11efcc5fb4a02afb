"""Locks name one version and the hashes of each package, for every platform; tools/lock.py writes them."""

import functools
import json
import re
import tomllib
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import lock  # tools/lock.py
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
LOCKS = (
    "requirements",
    "requirements-dev",
    "requirements-cuda",
    "benchmarks/requirements",
    "benchmarks/requirements-build",
)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EVERYWHERE = set(lock.ENVIRONMENTS)
WINDOWS = {e for e in EVERYWHERE if e.system == "win32"}
INTEL_MACS = {e for e in EVERYWHERE if (e.system, e.machine) == ("darwin", "x86_64")}


def entries(name: str) -> list[tuple[Requirement, list[str]]]:
    """Requirement and hashes of each entry; what is neither fails."""
    text = (ROOT / f"{name}.lock").read_text().replace("\\\n", " ")
    found = []
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        words = re.fullmatch(r"(.+?)((?:\s+--hash=sha256:[0-9a-f]{64})+)", line)
        assert words, f"{name}.lock: {line[:80]}"
        found.append((Requirement(words[1]), words[2].split()))
    return found


def versions(name: str, environment: lock.Environment) -> dict[str, str]:
    """What a lock installs there."""
    taken: dict[str, str] = {}
    for requirement, _ in entries(name):
        if requirement.marker is None or requirement.marker.evaluate(environment.markers("")):
            (exact,) = requirement.specifier
            assert exact.operator == "==" and requirement.name not in taken
            taken[requirement.name] = exact.version
    return taken


@pytest.mark.parametrize("name", LOCKS)
def test_every_file_is_known_by_its_hash(name: str) -> None:
    found = entries(name)
    assert len(found) >= 5
    assert all(len(set(hashes)) == len(hashes) >= 1 for _, hashes in found)


def test_pytorch_without_cuda_is_of_the_version_that_is_locked() -> None:
    builds = {r.name: str(r.specifier).removeprefix("==") for r, _ in entries("requirements-cpu")}
    assert builds == {"torch": f"{versions('requirements-dev', lock.ENVIRONMENTS[0])['torch']}+cpu"}


def test_what_has_binaries_has_a_file_for_every_platform() -> None:
    least = len(lock.ENVIRONMENTS) - 1
    hashes = {r.name: h for r, h in entries("requirements")}
    assert all(len(hashes[name]) >= least for name in ("numpy", "cffi", "markupsafe"))


@pytest.mark.parametrize("environment", lock.ENVIRONMENTS, ids=lambda e: f"{e.system}-{e.machine}-{e.python[1]}")
def test_locks_hold_all_that_their_packages_ask_for(environment: lock.Environment) -> None:
    run, dev = (versions(name, environment) for name in LOCKS[:2])
    assert run.items() <= dev.items()
    asked = [Requirement(text) for text in PROJECT["project"]["dependencies"]]
    asked_dev = [Requirement(text) for text in PROJECT["dependency-groups"]["dev"]]
    check_complete(asked, run, environment)
    check_complete([*asked, *asked_dev], dev, environment)


def check_complete(asked: list[Requirement], locked: dict[str, str], environment: lock.Environment) -> None:
    pending, seen = [(r, "") for r in asked], set()
    while pending:
        requirement, extra = pending.pop()
        name = canonicalize_name(requirement.name)
        if requirement.marker and not requirement.marker.evaluate(environment.markers(extra)):
            continue
        if name == "torch" and environment in INTEL_MACS:
            continue  # there is none
        assert name in locked, f"{requirement} is asked for and not locked"
        assert locked[name] in requirement.specifier, f"{requirement} does not allow {locked[name]}"
        try:
            package = distribution(name)
        except PackageNotFoundError:
            elsewhere = ("ansicon", "colorama", "rubicon-objc")
            assert name in elsewhere, f"{name} is locked for this platform too: install it"
            continue
        for wanted in ["", *requirement.extras]:
            if (name, wanted) not in seen:
                seen.add((name, wanted))
                pending += [(Requirement(text), wanted) for text in package.requires or []]


def test_node_packages_have_hashes() -> None:
    for path in ("package-lock.json", "benchmarks/browser/package-lock.json"):
        packages = json.loads((ROOT / path).read_text())["packages"]
        fetched = {n: p for n, p in packages.items() if n.startswith("node_modules/") and not p.get("link")}
        assert len(fetched) >= 5
        assert not [n for n, p in fetched.items() if not p.get("integrity", "").startswith("sha512-")]


# --- tools/lock.py ----------------------------------------------------------------------------------------------------


def test_marker_tells_environments_apart() -> None:
    later = {e for e in EVERYWHERE if e.python >= (3, 12)}
    first = {e for e in EVERYWHERE if e.python == (3, 11)}
    for chosen in (
        EVERYWHERE,
        WINDOWS,
        EVERYWHERE - INTEL_MACS,
        INTEL_MACS,
        later,
        first,
        later & WINDOWS,
        later - WINDOWS,
    ):
        text = lock.marker(chosen)
        line = Requirement(f"a==1 ; {text}" if text else "a==1")
        assert {e for e in EVERYWHERE if line.marker is None or line.marker.evaluate(e.markers(""))} == chosen
    assert lock.marker(WINDOWS) == 'sys_platform == "win32"'
    assert lock.marker(first) == 'python_version <= "3.11"'


Publish = Callable[..., None]


@pytest.fixture
def publish(monkeypatch: pytest.MonkeyPatch) -> Publish:
    """An index of one's own: publish(file name, requirement, …)."""
    files: dict[str, list[dict[str, Any]]] = {}
    metadata: dict[str, str] = {}

    def add(name: str, *requires: str, yanked: bool = False) -> None:
        package = canonicalize_name(name.split("-")[0])
        url = f"https://files.test/{name}"
        files.setdefault(package, []).append(
            {"filename": name, "url": url, "yanked": yanked, "hashes": {"sha256": f"{hash(name) % 16**64:064x}"}}
        )
        metadata[f"{url}.metadata"] = "".join(f"Requires-Dist: {r}\n" for r in requires)

    def fetch(url: str, kind: str) -> bytes:
        if url in metadata:
            return metadata[url].encode()
        held = files[url.removeprefix(f"{lock.INDEX}/").strip("/")]
        found = {re.split(r"-|\.tar", f["filename"])[1] for f in held}
        return json.dumps({"files": held, "versions": sorted(found, key=Version)}).encode()

    monkeypatch.setattr(lock, "fetch", fetch)
    for cache in (lock.index, lock.package):
        cache.cache_clear()
        monkeypatch.setattr(lock, cache.__name__, functools.cache(cache.__wrapped__))
    return add


def test_closure_follows_extras_and_markers(publish: Publish) -> None:
    publish(
        "top-1.0-py3-none-any.whl", 'onwindows ; sys_platform == "win32"', 'never ; python_version < "3.11"', "more[x]"
    )
    publish("onwindows-2.0-py3-none-any.whl")
    publish("more-3.0-py3-none-any.whl", 'extra ; extra == "x"', 'other ; extra == "y"')
    publish("extra-4.0-py3-none-any.whl", "top")
    found = lock.closure([Requirement("top")], {}, here=False)
    assert {name: p.version for name, (p, _) in found.items()} == {
        "top": "1.0", "onwindows": "2.0", "more": "3.0", "extra": "4.0",
    }  # fmt: skip
    assert found["onwindows"][1] == WINDOWS
    assert found["extra"][1] == EVERYWHERE


def test_versions_fit_all_that_ask_and_stay_where_they_fit(publish: Publish) -> None:
    publish("a-1.0-py3-none-any.whl", "c")
    publish("b-1.0-py3-none-any.whl", "c<3")
    for version in ("1.0", "2.0", "3.0"):
        publish(f"c-{version}-py3-none-any.whl")
    both = [Requirement("a"), Requirement("b")]
    for order in (both, both[::-1]):
        assert lock.closure(order, {}, here=False)["c"][0].version == "2.0"
        assert lock.closure(order, {"c": "1.0"}, here=False)["c"][0].version == "1.0"
        assert lock.closure(order, {"c": "3.0"}, here=False)["c"][0].version == "2.0"


def test_hashes_are_of_files_that_fit_and_the_sdist_where_none_does(publish: Publish) -> None:
    publish("a-1.0-cp311-cp311-manylinux_2_17_x86_64.whl")
    publish("a-1.0-cp311-abi3-win_amd64.whl")
    publish("a-1.0-cp310-cp310-manylinux_2_17_x86_64.whl")
    publish("a-1.0-cp311-cp311-musllinux_1_2_x86_64.whl")
    publish("a-1.1-cp311-cp311-manylinux_2_17_x86_64.whl")
    publish("a-1.0-cp312-cp312-manylinux_2_17_x86_64.whl", yanked=True)
    linux = {e for e in EVERYWHERE if (e.system, e.machine, e.python) == ("linux", "x86_64", (3, 11))}
    hashes, without = lock.package("a", "1.0").hashes(EVERYWHERE)
    assert len(hashes) == 2
    assert without == EVERYWHERE - WINDOWS - linux
    publish("b-1.0-cp311-abi3-win_amd64.whl")
    publish("b-1.0.tar.gz")
    hashes, without = lock.package("b", "1.0").hashes(EVERYWHERE)
    assert (len(hashes), without) == (2, set())
    assert len(lock.package("b", "1.0").hashes(WINDOWS)[0]) == 1


def test_platform_without_a_file_takes_a_post_release(
    publish: Publish, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for platform in ("manylinux_2_17_x86_64", "manylinux_2_17_aarch64", "macosx_11_0_arm64", "macosx_11_0_x86_64"):
        publish(f"zig-1.0-py3-none-{platform}.whl")
    publish("zig-1.0.post0-py3-none-win_amd64.whl")
    monkeypatch.setattr(lock, "ROOT", tmp_path)
    lock.write(tmp_path / "x.lock", "About.", lock.closure([Requirement("zig")], {"zig": "1.0"}, here=False))
    heads = [line for line in (tmp_path / "x.lock").read_text().splitlines() if line.startswith("zig")]
    assert heads == [
        'zig==1.0 ; sys_platform == "linux" or sys_platform == "darwin" \\',
        'zig==1.0.post0 ; sys_platform == "win32" \\',
    ]
    assert lock.pins(tmp_path / "x.lock") == {"zig": "1.0"}
