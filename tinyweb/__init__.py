"""tinyweb: a browser-first inference toolkit.

The public names are resolved on first use, so that `import tinyweb` (and `tinyweb --help`) costs milliseconds.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tinyweb.array.threefry import Generator as Generator
    from tinyweb.device import Device as Device
    from tinyweb.dtype import dtypes as dtypes
    from tinyweb.graph.ir import Variable as Variable
    from tinyweb.tensor import Tensor as Tensor
    from tinyweb.tracing import jit as jit
    from tinyweb.tuning import tune as tune

__version__ = "0.1.0"

# public name -> module that defines it under the same name
_HOME = {
    "Device": "tinyweb.device",
    "Generator": "tinyweb.array.threefry",
    "Tensor": "tinyweb.tensor",
    "Variable": "tinyweb.graph.ir",
    "dtypes": "tinyweb.dtype",
    "jit": "tinyweb.tracing",
    "tune": "tinyweb.tuning",
}

__all__ = ["Device", "Generator", "Tensor", "Variable", "__version__", "dtypes", "jit", "tune"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'tinyweb' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
