"""The developer's processor: C compiled by Clang, a thread pool, memory of this process."""

from tinyweb.native_runtimes.cpu.runtime import CpuRuntime

__all__ = ["CpuRuntime"]
