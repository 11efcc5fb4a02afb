"""Kernels as Oclgrind runs them: no access beyond memory, no race, nothing is read before it is written."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.native_runtimes.checked import CASES, FAULTS

COMMAND = shutil.which("oclgrind")
DRIVER = Path(COMMAND or "/").resolve().parents[-2] / "lib/oclgrind/liboclgrind-rt-icd.so"
pytestmark = pytest.mark.skipif(COMMAND is None, reason="oclgrind is not installed")


def log(folder: Path, *names: str) -> str:
    """What Oclgrind has to say of cases of `checked.py`, in a process whose only driver it is."""
    vendors, said = folder / "vendors", folder / "log"
    vendors.mkdir()
    (vendors / "oclgrind.icd").write_text(f"{DRIVER}\n")
    environment = {
        **os.environ, "OCL_ICD_VENDORS": str(vendors), "OCLGRIND_LOG": str(said), "OCLGRIND_DATA_RACES": "1",
        "OCLGRIND_UNINITIALIZED": "1", "TINYWEB_CACHE": str(folder / "cache"), "PYOPENCL_NO_CACHE": "1",
        "TINYWEB_OPENCL_OPTIONS": "-cl-opt-disable",  # its check for uninitialised values knows no `freeze`
    }  # fmt: skip
    command = [sys.executable, "-m", "tests.native_runtimes.checked", *names]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    return said.read_text()


def test_a_sample_of_every_kind_of_kernel(tmp_path: Path) -> None:
    assert len(CASES) >= 17
    assert log(tmp_path) == ""


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_wrong_is_found(name: str, tmp_path: Path) -> None:
    expected = {"bounds": "Invalid write", "race": "race", "uninitialised": "depends on uninitialized value"}
    assert expected[name] in log(tmp_path, name)
