"""From a model folder to a static site: capture, plan, shard, write the bundle (docs/bundle.md), add the page."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tinyweb.export.function import export_function as export_function
    from tinyweb.export.function import export_functions as export_functions
    from tinyweb.export.onnx_file import onnx as onnx
    from tinyweb.export.onnx_site import OnnxOptions as OnnxOptions
    from tinyweb.export.onnx_site import export_onnx as export_onnx

MODULES = {
    "export_function": "function",
    "export_functions": "function",
    "export_onnx": "onnx_site",
    "onnx": "onnx_file",
    "OnnxOptions": "onnx_site",
}
__all__ = list(MODULES)


def __getattr__(name: str) -> Any:  # on first use: reading a manifest needs no compiler
    if name not in MODULES:
        raise AttributeError(f"module 'tinyweb.export' has no attribute {name!r}")
    return getattr(importlib.import_module(f"tinyweb.export.{MODULES[name]}"), name)
