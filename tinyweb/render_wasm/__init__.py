"""WebAssembly: the C text of programs, compiled for wasm32 with SIMD; a bundle's module with its entry points."""

from tinyweb.render_wasm.bundle import BundleCall, bundle_source, compile_bundle
from tinyweb.render_wasm.module import compile_module, static_data_bytes

__all__ = ["BundleCall", "bundle_source", "compile_bundle", "compile_module", "static_data_bytes"]
