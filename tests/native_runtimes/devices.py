"""Names of the runtimes that tests of programs run on."""

import pytest

PROCESSORS = ["CPU", "WASM"]
BROWSERS = ["WEBGPU", "CHROMIUM"]
GPUS = [*BROWSERS, "OPENCL"]
COMPILED = [*PROCESSORS, *BROWSERS, pytest.param("OPENCL", marks=pytest.mark.slow), "HIP", "CUDA_TEXT"]
# Clang takes seconds for AMD's GPUs where each of many types is divided by or converted to others
LESS_HIP = [pytest.param(r, marks=pytest.mark.slow) if r == "HIP" else r for r in COMPILED]
