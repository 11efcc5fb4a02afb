"""Names of the runtimes that tests of programs run on."""

import pytest

PROCESSORS = ["CPU", "WASM"]
BROWSERS = ["WEBGPU", "CHROMIUM"]
GPUS = [*BROWSERS, "OPENCL"]
COMPILED = [*PROCESSORS, *BROWSERS, pytest.param("OPENCL", marks=pytest.mark.slow), "HIP", "CUDA_TEXT"]
TEXTS = ["HIP", "CUDA_TEXT"]  # each operation on all types takes seconds: in `make test` they take turns
# Clang takes seconds for AMD's GPUs where each of many types is divided by or converted to others
LESS_HIP = [pytest.param(r, marks=pytest.mark.slow) if r == "HIP" else r for r in COMPILED]
