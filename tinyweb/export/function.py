"""Functions of tensors as a bundle: JavaScript hands in typed arrays and gets typed arrays back.

    model = ResNet.from_folder("resnet18")
    export_function(model, {"image": Tensor.zeros(1, 3, 224, 224)}, "site", name="resnet18")

Several functions of one bundle share its weights and state:

    export_functions({"encode": (model.encode, {"ids": ids}), "decode": (model.decode, {"latents": latents})}, "site")
"""

from __future__ import annotations

import importlib
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tinyweb.errors import ExportError
from tinyweb.export.bindings import within
from tinyweb.export.compile import Progress
from tinyweb.export.expression import merge_variables
from tinyweb.export.loader import write_loader
from tinyweb.export.manifest import bundle_manifest, write_manifest
from tinyweb.export.memory import Memory
from tinyweb.export.recording import Examples, Recorded, record, share_memory
from tinyweb.export.site import (
    REPORT,
    check_library,
    check_output,
    check_page,
    copy_library,
    copy_page,
    new_site,
    write_json,
)
from tinyweb.export.wasm import compile_modules, plan_layout, write_wasm
from tinyweb.export.webgpu import BINDING_BYTES, compile_variants, write_webgpu
from tinyweb.export.weights import DEFAULT_SHARD_BYTES, ShardWriter, check_shard_bytes, write_weights
from tinyweb.graph.ir import UOp
from tinyweb.graph.target import wasm_target, webgpu_target
from tinyweb.tracing import Plan

ENTRY = "run"
TARGETS = ("webgpu", "wasm")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")  # of a function, which is one of a WebAssembly module, too

Functions = Mapping[str, tuple[Callable[..., Any], Examples]]
"""Functions with example inputs, by the names that a page calls them by."""


def export_function(
    function: Callable[..., Any],
    example_inputs: Examples,
    folder: str | Path,
    *,
    name: str | None = None,
    targets: Sequence[str] = TARGETS,
    shard_bytes: int = DEFAULT_SHARD_BYTES,
    force: bool = False,
    tune: float = 0.0,
    page: bool = True,
    progress: Progress = lambda step, done, total: None,
) -> dict[str, Any]:
    """Write `function` to `folder`/model as a bundle (docs/bundle.md), the runtime library to `folder`/assets, and a
    page beside them that feeds the function and shows its results.

    `example_inputs` have the shapes and dtypes of the arguments, which are passed by name if it is a mapping, else by
    position and named after the parameters. A size that is a bound Variable may be any of its range in each call. The
    function returns a tensor (named "output"), a list or tuple of tensors ("output0", …), or a dict of them by name.
    `name`: the model's in messages and in browser storage (default: the folder's). `targets`: "webgpu", "wasm", or
    both. `tune`: seconds to look for faster kernels first. `page`: False leaves the page out: who has one of their own
    needs `model` and `assets` alone.

    Returns the manifest. On an error nothing is left behind: ExportError where the inputs, results or options cannot
    be exported, ToolchainError where the compiler fails, and whatever the function raises.
    """
    functions = {ENTRY: (function, example_inputs)}
    return export_functions(
        functions, folder, name=name, targets=targets, shard_bytes=shard_bytes, force=force, tune=tune, page=page,
        progress=progress,
    )  # fmt: skip


def export_functions(
    functions: Functions,
    folder: str | Path,
    *,
    name: str | None = None,
    targets: Sequence[str] = TARGETS,
    shard_bytes: int = DEFAULT_SHARD_BYTES,
    force: bool = False,
    tune: float = 0.0,
    page: bool = True,
    sections: Mapping[str, Any] | None = None,
    files: Mapping[str, Path] | None = None,
    prepare: Callable[[str], None] | None = None,
    report: Mapping[str, Any] | None = None,
    progress: Progress = lambda step, done, total: None,
) -> dict[str, Any]:
    """Write several functions to one bundle, as `export_function` does with one; they share weights and state.

    A page calls them by their names, which are letters, digits and underscores: `model.run(inputs, {function: name})`.
    `sections` and `prepare` as in `write_functions`; `files` are copied into the bundle, by what they are; `report`
    becomes the site's report.json.
    """
    output = Path(folder)
    check_output(output, force)
    if page:  # before the work, not after it
        check_page("function")
    else:
        check_library()
    with new_site(output, force) as site:
        bundle = site / "model"
        bundle.mkdir()
        for path in (files or {}).values():
            shutil.copyfile(path, bundle / path.name)
        if report is not None:
            write_json(site / REPORT, report)
        written = write_functions(
            bundle, name or output.resolve().name, functions, sections=sections, prepare=prepare,
            files={what: path.name for what, path in (files or {}).items()}, targets=targets, shard_bytes=shard_bytes,
            tune=tune, progress=progress,
        )  # fmt: skip
        write_loader(bundle, written)
        if page:
            copy_page(site, "function")
        else:
            copy_library(site)
    return written


def write_functions(
    bundle: Path,
    name: str,
    functions: Functions,
    *,
    task: str = "function",
    sections: Mapping[str, Any] | None = None,
    model: Mapping[str, Any] | None = None,
    files: Mapping[str, str] | None = None,
    prepare: Callable[[str], None] | None = None,
    targets: Sequence[str] = TARGETS,
    shard_bytes: int = DEFAULT_SHARD_BYTES,
    tune: float = 0.0,
    binding_bytes: int = BINDING_BYTES,
    progress: Progress = lambda step, done, total: None,
) -> dict[str, Any]:
    """Write the functions' bundle to the folder `bundle`, made if need be: manifest, kernels, weights; no loader.

    An application that knows more than arrays in and out writes bundles of its own `task`: `sections` are its keys of
    the manifest (a page finds them in `info.sections`), `model` figures to show beside the count of parameters, `files`
    names of files that the caller has written to `bundle`, by what they are. `prepare` is told each target before the
    functions are recorded for it, so that a model computes the same in the way that suits the target. `binding_bytes`:
    of the largest buffer that a GPU must bind; larger weights, states and temporaries are divided.

    Returns the manifest. Raises as `export_function`; what is half-written is the caller's (`new_site`) to remove.
    """
    _check(functions, targets, shard_bytes)
    planned = plan_functions(functions, targets, prepare, binding_bytes, progress)
    plans, memory, of, variables = planned.plans, planned.memory, planned.of, planned.variables
    bundle.mkdir(exist_ok=True)
    compiled = {}
    if "wasm" in targets:
        plan_layout(of["wasm"])  # refuses what is too large before the work begins
    if "webgpu" in targets:
        variants = compile_variants(plans["webgpu"], progress, tune / len(targets))
        compiled["webgpu"] = write_webgpu(bundle, variants, of["webgpu"], variables)
    if "wasm" in targets:
        modules = compile_modules(plans["wasm"], progress, tune / len(targets))
        compiled["wasm"] = write_wasm(bundle, modules, of["wasm"], variables, progress)
    with ShardWriter(bundle, shard_bytes) as writer:
        segments = write_weights(writer, memory, progress)
    count = sum(int(n.buffer.arg.size) for n in memory.named if n.kind == "weight" and n.dtype.is_float)
    ends = {entry: r.section(entry, memory) for entry, r in planned.recorded.items()}
    made = bundle_manifest(
        task, name, {"parameters": count, **(model or {})}, files or {}, writer, segments, memory, variables,
        {"functions": ends, **(sections or {})}, compiled,
    )  # fmt: skip
    return write_manifest(bundle, made)


@dataclass(frozen=True)
class Planned:
    """Functions recorded, with what each target launches, and the memory that they share. `of`: the target's own."""

    recorded: dict[str, Recorded]
    plans: dict[str, dict[str, Plan]]
    memory: Memory
    of: dict[str, Memory]
    variables: tuple[UOp, ...]


def plan_functions(
    functions: Functions,
    targets: Sequence[str] = TARGETS,
    prepare: Callable[[str], None] | None = None,
    binding_bytes: int = BINDING_BYTES,
    progress: Progress = lambda step, done, total: None,
) -> Planned:
    """Record functions for each target, without compiling or writing anything; arguments as in `write_functions`."""
    by_target = _record_for(functions, targets, prepare, progress)
    recorded, last = by_target[targets[0]], by_target[targets[-1]]
    plans = {
        target: {entry: plan for name, r in found.items() for entry, plan in r.entries(name).items()}
        for target, found in by_target.items()
    }
    parts = [entry for name, r in recorded.items() for entry in r.entries(name) if entry != name]
    if taken := [entry for entry in parts if entry in functions]:
        raise ExportError(f"{taken[0]!r} is what a part of a function is called that the host goes on with: rename it.")
    ends = frozenset[UOp]().union(*(r.ends for r in recorded.values()))
    plans["webgpu"], divided = within(plans.get("webgpu", {}), binding_bytes, ends)
    memory = share_memory(recorded, last if last is not recorded else None, divided)
    variables = merge_variables(v for found in by_target.values() for r in found.values() for v in r.variables)
    return Planned(recorded, plans, memory, {target: memory.of(plans[target]) for target in targets}, variables)


def _record_for(
    functions: Functions, targets: Sequence[str], prepare: Callable[[str], None] | None, progress: Progress
) -> dict[str, dict[str, Recorded]]:
    """The functions' recordings for each target."""
    rounds: list[dict[str, Recorded]] = []
    known = {"webgpu": webgpu_target(), "wasm": wasm_target()}
    for target in targets:
        if prepare:
            prepare(target)
        rounds.append({})
        for done, (entry, (function, examples)) in enumerate(functions.items()):
            progress("planning", done, len(functions))
            rounds[-1][entry] = record(function, examples, known[target], rounds[0].get(entry))
        progress("planning", len(functions), len(functions))
    return dict(zip(targets, rounds))


def _check(functions: Functions, targets: Sequence[str], shard_bytes: int) -> None:
    check_shard_bytes(shard_bytes)
    if not targets or (unknown := [t for t in targets if t not in TARGETS]):
        raise ExportError(f"There is no target {unknown[0]!r}: choose from webgpu and wasm." if targets else
                          "No target was named: choose webgpu, wasm, or both.")  # fmt: skip
    if not functions:
        raise ExportError("There is no function to export: name one.")
    for name in functions:
        if not NAME.fullmatch(name):
            raise ExportError(f"{name!r} cannot name a function: take at most 64 letters, digits and underscores.")


def load_maker(path: str) -> Callable[[], tuple[Callable[..., Any], Any]]:
    """What `MODULE:NAME` names, searched from the current folder as `python -m` does; ExportError where it is not."""
    module, _, attribute = path.partition(":")
    if not module or not attribute:
        raise ExportError(f"{path!r} names no function: write MODULE:NAME, as in my_model:make.")
    sys.path.insert(0, "")
    try:
        imported = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ExportError(f"There is no module {error.name!r}: run this where it can be imported.") from None
    finally:
        sys.path.remove("")
    if not hasattr(imported, attribute):
        raise ExportError(f"{module} has no {attribute!r}: name a function that returns (function, inputs).")
    found = getattr(imported, attribute)

    def make() -> tuple[Callable[..., Any], Any]:
        made = found() if callable(found) else None
        if not (isinstance(made, tuple) and len(made) == 2 and callable(made[0])):
            raise ExportError(f"{path} does not return (function, example inputs).")
        return made

    return make
