"""From a model folder to a static site: capture, plan, shard, write the bundle (docs/bundle.md), add the page."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tinyweb.export.function import export_function as export_function
    from tinyweb.export.function import export_functions as export_functions

__all__ = ["export_function", "export_functions"]


def __getattr__(name: str) -> Any:  # on first use: reading a manifest needs no compiler
    if name not in __all__:
        raise AttributeError(f"module 'tinyweb.export' has no attribute {name!r}")
    from tinyweb.export import function

    return getattr(function, name)
