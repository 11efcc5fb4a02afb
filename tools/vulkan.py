"""See that wgpu finds an adapter for the tests, installing Mesa's software Vulkan if there is none.

Run as a script it prints the adapter that will be used.
"""

import subprocess
import sys

import debian

# Each look is a process of its own: a driver installed later is invisible to one that has enumerated already.
LOOK = """
import wgpu
adapters = [a for a in wgpu.gpu.enumerate_adapters_sync() if a.info["backend_type"] != "OpenGL"]
print(adapters[0].info["backend_type"] + ": " + adapters[0].info["device"] if adapters else "")
"""


def find() -> str | None:
    """Backend and name of the first adapter, such as `Vulkan: llvmpipe`; OpenGL does not count, it is too limited."""
    looked = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True)
    if looked.returncode != 0:
        raise RuntimeError(f"wgpu cannot be used here: {looked.stderr.strip().splitlines()[-1]}")
    return looked.stdout.strip() or None


def ensure() -> str:
    """The adapter to use, its driver installed now if there was none; raises RuntimeError if that fails."""
    if adapter := find():
        return adapter
    if debian.can_install():
        debian.install("mesa-vulkan-drivers", "libvulkan1")
        if adapter := find():
            return adapter
    raise RuntimeError(
        "No WebGPU adapter was found for the tests: install a Vulkan driver (Debian: mesa-vulkan-drivers)."
    )


if __name__ == "__main__":
    try:
        print(ensure())
    except RuntimeError as error:
        sys.exit(f"tinyweb: {error}")
