"""Tune the schedules that come with the package: the embedded chat model, on this machine's processor and for WASM.

usage: python tools/tune_defaults.py [--seconds 600] [--least 0.05] [--only cpu|wasm] [--plans decode,greedy]

Entries that were tuned before are kept where they still are better: they are where search begins. Those that win less
than `--least` of the time are left out. Run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from tinyweb.export.wasm import MAX_THREADS
from tinyweb.graph.optimize.database import SHIPPED, Database
from tinyweb.graph.target import Target, wasm_target
from tinyweb.models.chat import entry_points, usual_calls
from tinyweb.models.llama import Llama
from tinyweb.nn.quantize import activations_for
from tinyweb.tuning import tune_kernels

MODEL = Path(__file__).resolve().parent.parent / "assets" / "models" / "tinychat-7m"
QUANT = "q8"  # what `tinyweb export` writes unless told otherwise


def say(step: str, done: int, total: int) -> None:
    print(f"{step} {done}/{total}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Tune the schedules that come with the package.")
    parser.add_argument("--seconds", type=float, default=600.0, help="for each target")
    parser.add_argument("--least", type=float, default=0.05, help="gains below this part of the time are left out")
    parser.add_argument("--only", choices=("cpu", "wasm"))
    parser.add_argument("--plans", help="entry points, with commas between them (default: all)")
    arguments = parser.parse_args()
    targets: dict[str, Target | None] = {"cpu": None, "wasm": wasm_target(MAX_THREADS)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "schedules.json"
        os.environ["TINYWEB_SCHEDULES"] = str(path)  # nothing of the user's has a say
        for name, target in targets.items():
            if arguments.only in (None, name):
                # as `run` and as `export` have them
                model = Llama.from_folder(MODEL, QUANT, None, "CPU", activations_for(target) if target else None)
                plans = entry_points(model)
                if arguments.plans:
                    plans = {n: plans[n] for n in arguments.plans.split(",")}
                calls = usual_calls(plans)
                for t in tune_kernels(plans, name, arguments.seconds, target=target, calls=calls, progress=say):
                    print(t, flush=True)
        found = Database.load(path) if path.exists() else Database()
    shipped = Database.load(SHIPPED) if SHIPPED.exists() else Database()
    for key, entries in found.targets.items():
        for kernel, entry in entries.items():
            if entry["ratio"] <= 1 - arguments.least:
                shipped.targets.setdefault(key, {})[kernel] = entry
            else:
                shipped.targets.get(key, {}).pop(kernel, None)
    shipped.save(SHIPPED)


if __name__ == "__main__":
    main()
