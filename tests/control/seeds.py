"""Every random number of the tests follows from one seed: TINYWEB_TEST_SEED, 0 unless said otherwise.

Before each test, and before each fixture that outlives one, the global generators of Python, NumPy, PyTorch and tinyweb
are set from that seed and the name of the test or fixture: what a test draws does not depend on which ran before it.
Hypothesis tries the same examples in every run for seed 0, and others for each other seed; `random` takes a new one,
which the head of the report names.
"""

import os
import random
import sys
import zlib
from typing import Any

import pytest
from hypothesis import HealthCheck, core, settings

VARIABLE = "TINYWEB_TEST_SEED"
if os.environ.get(VARIABLE) == "random":
    os.environ[VARIABLE] = str(random.SystemRandom().randrange(1, 1 << 32))  # workers inherit it
SEED = int(os.environ.get(VARIABLE) or 0)

# how long an example takes says how busy the machine is; examples of other runs would make this one another
settings.register_profile(
    "tinyweb", deadline=None, database=None, derandomize=SEED == 0, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("tinyweb")


def seed_all(name: str) -> None:
    """Begin the sequence of `name` in all global generators of modules that are imported."""
    number = zlib.crc32(f"{SEED}:{name}".encode())
    random.seed(number)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(number)
    if torch := sys.modules.get("torch"):
        torch.manual_seed(number)
    if threefry := sys.modules.get("tinyweb.array.threefry"):
        threefry.default_generator.manual_seed(number)


def pytest_configure(config: pytest.Config) -> None:
    if SEED:
        core.global_force_seed = SEED  # type: ignore[assignment]


def pytest_report_header() -> str:
    return f"seed: {SEED} ({VARIABLE}={SEED} repeats this run)"


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> None:
    if fixturedef.scope != "function":
        seed_all(f"{fixturedef.argname}[{getattr(request, 'param', '')!r}]")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    seed_all(item.nodeid)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    seed_all(item.nodeid)  # again: whether a fixture was made now or before must not matter
