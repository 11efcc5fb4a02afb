"""WebAssembly on this machine, through wasmtime: the code a browser gets."""

from tinyweb.native_runtimes.wasm.runtime import WasmRuntime

__all__ = ["WasmRuntime"]
