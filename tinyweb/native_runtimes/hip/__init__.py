"""AMD GPUs through HIP."""

from tinyweb.native_runtimes.hip.runtime import HipRuntime, devices

__all__ = ["HipRuntime", "devices"]
