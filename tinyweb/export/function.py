"""Any function of tensors as a bundle: JavaScript hands in typed arrays and gets typed arrays back.

    model = ResNet.from_folder("resnet18")
    export_function(model, {"image": Tensor.zeros(1, 3, 224, 224)}, "site", name="resnet18")

The function is recorded once, with the example inputs; what it computes for them is not computed. Tensors from outside
that it reads (a model's weights) are written into the bundle; those that it updates in place become state that lives on
the device from call to call.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tinyweb.device import Device, current_recorder
from tinyweb.dtype import DType, dtypes
from tinyweb.errors import ExportError
from tinyweb.export.compile import Progress, compile_plans
from tinyweb.export.loader import write_loader
from tinyweb.export.manifest import bundle_manifest
from tinyweb.export.memory import Memory, Named, plan_memory
from tinyweb.export.site import check_output, copy_library, new_site, write_json
from tinyweb.export.wasm import MAX_THREADS, plan_layout, write_wasm
from tinyweb.export.webgpu import compile_variants, write_webgpu
from tinyweb.export.weights import DEFAULT_SHARD_BYTES, ShardWriter, check_shard_bytes, write_weights
from tinyweb.graph.ir import UOp
from tinyweb.graph.schedule import nbytes
from tinyweb.graph.target import wasm_target
from tinyweb.nn.state import get_state_dict
from tinyweb.tensor import Tensor
from tinyweb.tracing import Plan, capture

ENTRY = "run"
TARGETS = ("webgpu", "wasm")
# what JavaScript has typed arrays for (halves as their bits)
ARRAYS = (
    dtypes.float32, dtypes.int32, dtypes.uint32, dtypes.int16, dtypes.uint16, dtypes.int8, dtypes.uint8, dtypes.bool,
    dtypes.int64, dtypes.uint64, dtypes.float16,
)  # fmt: skip


@dataclass(frozen=True)
class Recorded:
    """A function with its memory: inputs and outputs by name, each a tensor that is all of its buffer."""

    plan: Plan
    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]


def export_function(
    function: Callable[..., Any],
    example_inputs: Mapping[str, Tensor] | Sequence[Tensor],
    folder: str | Path,
    *,
    name: str | None = None,
    targets: Sequence[str] = TARGETS,
    shard_bytes: int = DEFAULT_SHARD_BYTES,
    force: bool = False,
    tune: float = 0.0,
    progress: Progress = lambda step, done, total: None,
) -> dict[str, Any]:
    """Write `function` to `folder`/model as a bundle (docs/bundle.md), the runtime library to `folder`/assets.

    `example_inputs` have the shapes and dtypes of the arguments, which are passed by name if it is a mapping, else by
    position and named after the parameters. The function returns a tensor (named "output"), a list or tuple of tensors
    ("output0", …), or a dict of them by name. `name`: the model's in messages and in browser storage (default: the
    folder's). `targets`: "webgpu", "wasm", or both. `tune`: seconds to look for faster kernels first.

    Returns the manifest. On an error nothing is left behind: ExportError where the inputs, results or options cannot
    be exported, ToolchainError where the compiler fails, and whatever the function raises.
    """
    output = Path(folder)
    check_output(output, force)
    check_shard_bytes(shard_bytes)
    if not targets or (unknown := [t for t in targets if t not in TARGETS]):
        raise ExportError(f"There is no target {unknown[0]!r}: choose from webgpu and wasm." if targets else
                          "No target was named: choose webgpu, wasm, or both.")  # fmt: skip
    progress("planning", 0, 1)
    recorded = record(function, _named_inputs(function, example_inputs), isinstance(example_inputs, Mapping))
    progress("planning", 1, 1)
    memory = plan_memory({ENTRY: recorded.plan}, [*_ends(recorded), *_outside(function, recorded)])
    with new_site(output, force) as site:
        written = _write_bundle(site / "model", name or output.resolve().name, recorded, memory, targets, shard_bytes,
                                progress, tune)  # fmt: skip
        copy_library(site)
    return written


def load_maker(path: str) -> Callable[[], tuple[Callable[..., Any], Any]]:
    """What `MODULE:NAME` names, searched from the current folder as `python -m` does; ExportError where it is not."""
    module, _, attribute = path.partition(":")
    if not module or not attribute:
        raise ExportError(f"{path!r} names no function: write MODULE:NAME, as in my_model:make.")
    sys.path.insert(0, "")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise ExportError(f"There is no module {error.name!r}: run this where it can be imported.") from None
    except AttributeError:
        raise ExportError(f"{module} has no {attribute!r}: name a function that returns (function, inputs).") from None
    finally:
        sys.path.remove("")

    def make() -> tuple[Callable[..., Any], Any]:
        made = found() if callable(found) else None
        if not (isinstance(made, tuple) and len(made) == 2 and callable(made[0])):
            raise ExportError(f"{path} does not return (function, example inputs).")
        return made

    return make


def record(function: Callable[..., Any], inputs: Mapping[str, Tensor], by_name: bool) -> Recorded:
    """Capture the function. Every input and every output gets memory of its own, which a loader may read and write."""
    given = {n: Tensor.empty(*_fixed(n, t), dtype=t.dtype, device=t.device).realize() for n, t in inputs.items()}
    outputs: dict[str, Tensor] = {}

    def assigned() -> list[Tensor]:
        results = _named_results(function(**given) if by_name else function(*given.values()))
        for n, t in results.items():
            if n in given:
                raise ExportError(f"An input and an output of the function are both called {n!r}: rename one of them.")
            outputs[n] = _memory_outside(*_fixed(n, t), dtype=t.dtype, device=t.device).assign(t)
        return list(outputs.values())

    plan = capture(assigned)
    if plan.refreshed:
        raise NotImplementedError(
            "The function draws random numbers: a bundle has no source of them yet; make them an input."
        )
    if plan.variables:
        names = ", ".join(str(v.arg[0]) for v in plan.variables)
        raise NotImplementedError(f"The function has sizes that vary ({names}): only fixed shapes can be exported yet.")
    return Recorded(plan, given, outputs)


def _memory_outside(*shape: int, dtype: DType, device: str) -> Tensor:
    """Memory that a recording writes to as if it had been there before: no result is another's memory, or a view."""
    made = Tensor.empty(*shape, dtype=dtype, device=device).realize()
    recorder = current_recorder()
    assert recorder is not None
    recorder.outside.add(made.uop.buffer)
    return made


def _named_inputs(
    function: Callable[..., Any], examples: Mapping[str, Tensor] | Sequence[Tensor]
) -> Mapping[str, Tensor]:
    named = examples if isinstance(examples, Mapping) else dict(zip(_parameters(function, len(examples)), examples))
    for n, t in named.items():
        if not isinstance(t, Tensor):
            raise ExportError(f"The example input {n!r} is a {type(t).__name__}: give a Tensor of its shape and dtype.")
    return named


def _parameters(function: Callable[..., Any], count: int) -> list[str]:
    """Names for `count` arguments by position."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # something built in
        parameters = []
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return [names[i] if i < len(names) else f"input{i}" for i in range(count)]


def _named_results(result: Any) -> dict[str, Tensor]:
    if isinstance(result, Mapping):
        named = {str(n): t for n, t in result.items()}
    elif isinstance(result, list | tuple):
        named = {f"output{i}": t for i, t in enumerate(result)}
    else:
        named = {"output": result}
    for n, t in named.items():
        if not isinstance(t, Tensor):
            raise ExportError(f"The function's {n} is a {type(t).__name__}: return tensors, or a dict or list of them.")
    if not named:
        raise ExportError("The function returns nothing: return the tensors that the page is to have.")
    return named


def _fixed(name: str, t: Tensor) -> tuple[int, ...]:
    """The shape of an input or output; ExportError where JavaScript has no array for it."""
    sizes = tuple(s for s in t.shape if isinstance(s, int))
    if len(sizes) != t.ndim:
        raise NotImplementedError(f"{name} has the shape {t.shape}: only fixed shapes can be exported yet")
    if t.dtype not in ARRAYS:
        raise ExportError(f"{name} is {t.dtype.name}, for which JavaScript has no typed array: cast it first.")
    return sizes


def _ends(recorded: Recorded) -> Iterator[Named]:
    """Inputs and outputs: memory that stays where a page can reach it."""
    for n, t in (*recorded.inputs.items(), *recorded.outputs.items()):
        yield Named(n, "state", t.uop.buffer, t.dtype, _fixed(n, t), nbytes(t.uop.buffer))


def _outside(function: Callable[..., Any], recorded: Recorded) -> Iterator[Named]:
    """Memory from outside: weights where it is only read, state where the function updates it."""
    plan = recorded.plan
    ends = {t.uop.buffer for t in (*recorded.inputs.values(), *recorded.outputs.values())}
    used = dict.fromkeys(b for c in plan.calls for b in c.buffers)
    written = {c.buffers[0] for c in plan.calls} - set(plan.temporaries)
    known = _names(function)
    taken = {*recorded.inputs, *recorded.outputs}
    device = Device[plan.device]
    for b in used:
        if b in ends or b in plan.memory.pool_of:
            continue
        title, shape = known.get(b, ("", (int(b.arg.size),)))
        title = _unique(title or f"{'state' if b in written else 'weight'}{len(taken)}", taken)
        size = nbytes(b)
        if b not in written:
            yield Named(title, "weight", b, b.dtype, shape, size, partial(_read, device, b, size))
            continue
        if any(_read(device, b, size)):
            raise NotImplementedError(
                f"The function updates {title}, which is not zero at first: a bundle's state begins as zeros."
            )
        yield Named(title, "state", b, b.dtype, shape, size)


def _read(device: Any, buffer: UOp, size: int) -> bytes:
    return bytes(device.runtime.copy_out(device.memory(buffer).handle, size))


def _unique(name: str, taken: set[str]) -> str:
    found, n = name, 2
    while found in taken:
        found, n = f"{name}.{n}", n + 1
    taken.add(found)
    return found


def _names(function: Callable[..., Any]) -> dict[UOp, tuple[str, tuple[int, ...]]]:
    """Names and shapes of the memory that a model or a closure holds, as far as attributes and variables lead to it."""
    roots: dict[str, Any] = {"": getattr(function, "__self__", function)}
    inner = inspect.unwrap(function)
    if inspect.isfunction(inner):
        found = inspect.getclosurevars(inner)
        roots |= {**found.globals, **found.nonlocals}
    names: dict[UOp, tuple[str, tuple[int, ...]]] = {}
    for prefix, root in roots.items():
        if inspect.ismodule(root) or inspect.isclass(root):
            continue
        for n, t in get_state_dict(root, prefix).items():
            if t.is_realized():
                names.setdefault(t.uop.buffer, (n, tuple(s for s in t.shape if isinstance(s, int))))
    return names


def _write_bundle(
    bundle: Path, name: str, recorded: Recorded, memory: Memory, targets: Sequence[str], shard_bytes: int,
    progress: Progress, tune: float,
) -> dict[str, Any]:  # fmt: skip
    bundle.mkdir()
    plans, sections = {ENTRY: recorded.plan}, {}
    if "wasm" in targets:
        plan_layout(memory)  # refuses what is too large before the work begins
    if "webgpu" in targets:
        sections["webgpu"] = write_webgpu(bundle, compile_variants(plans, progress, tune / len(targets)), memory, ())
    if "wasm" in targets:
        compiled = compile_plans(plans, wasm_target(MAX_THREADS), progress, tune / len(targets))
        sections["wasm"] = write_wasm(bundle, compiled, memory, (), progress)
    with ShardWriter(bundle, shard_bytes) as writer:
        segments = write_weights(writer, memory, progress)
    weights = [n for n in memory.named if n.kind == "weight"]
    count = sum(int(n.buffer.arg.size) for n in weights if n.dtype.is_float)
    ends = {
        "entry": ENTRY,
        "inputs": [_end(n, t, memory) for n, t in recorded.inputs.items()],
        "outputs": [_end(n, t, memory) for n, t in recorded.outputs.items()],
    }
    written = bundle_manifest(
        "function", name, {"parameters": count}, {}, writer, segments, memory, (), ends, sections
    )  # fmt: skip
    write_json(bundle / "manifest.json", written)
    write_loader(bundle, written)
    return written


def _end(name: str, t: Tensor, memory: Memory) -> dict[str, Any]:
    return {"name": name, "buffer": memory.ids[t.uop.buffer], "dtype": t.dtype.short, "shape": list(_fixed(name, t))}
