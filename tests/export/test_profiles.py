"""What is expected of a bundle on kinds of devices, before anybody opens it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tinyweb.export.choices import Weights, bits
from tinyweb.export.inspect import inspect_site
from tinyweb.export.profiles import PAGE_BYTES, PROFILES, Fit, fits, line

MIB = 1 << 20
VOCABULARY = 1 << 15
KERNELS = {"webgpu": {"decode": 100, "prefill_64": 120}, "wasm": {"decode": 150, "prefill_64": 160}}


def chat(weights: int, context: int, position: int, largest: int, quant: str = "q8") -> dict[str, Any]:
    """A manifest as far as it counts: a table of embeddings, the other weights, and a cache."""
    table, kind = weights // 4, quant if quant in ("f32", "f16", "q8") else "q8"
    rows, width = (int(8 * part / bits(kind) / VOCABULARY) for part in (weights - table, table))
    buffers = [
        {"id": 0, "name": "embedding.weight", "kind": "weight", "bytes": table, "shape": [VOCABULARY, width]},
        {"id": 1, "name": "layers.weight", "kind": "weight", "bytes": weights - table, "shape": [rows, VOCABULARY]},
        {"id": 2, "name": "ids", "kind": "state", "bytes": 4 * context, "shape": [context]},
        {"id": 3, "name": "layer0.kv", "kind": "state", "bytes": context * position, "shape": [2, 1, context, 8]},
    ]
    dispatches = [{"buffers": [4, 2, 0]}, {"buffers": [5, 1, 3]}]
    size = {"weights": weights, "state": context * (position + 4), "temporaries": MIB}
    return {
        "task": "chat",
        "model": {"quant": quant, "context": context, "parameters": weights, "vocab_size": VOCABULARY},
        "chat": {"decode": "decode", "ids": 2, "prefill": [{"entry": "prefill_64", "block": 64}]},
        "buffers": buffers,
        "targets": {
            "webgpu": {
                "bytes": size,
                "limits": {"maxStorageBufferBindingSize": largest},
                "variants": {"base": {"entry_points": {"decode": {"dispatches": dispatches}}}},
            },
            "wasm": {"bytes": size},
        },
    }


def test_all_that_is_kept_of_a_position_is_read() -> None:
    """Scales beside integers, latents, and what convolutions keep."""
    manifest = chat(400 * MIB, 1000, 10_000, 100 * MIB)
    rate = by_name(manifest)["phone"].tokens_per_second
    for i, (name, shape) in enumerate(
        (("kv.scales", [2, 1, 1000, 1]), ("latent", [1, 1000, 8]), ("conv", [1, 1000, 8]))
    ):
        buffer = {"id": 4 + i, "name": f"layer{i}.{name}", "kind": "state", "bytes": 10_000_000, "shape": shape}
        manifest["buffers"].append(buffer)
    phone, profile = by_name(manifest)["phone"], next(p for p in PROFILES if p.name == "phone")
    assert rate is not None and phone.tokens_per_second is not None
    assert 1 / phone.tokens_per_second == pytest.approx(1 / rate + 3 * 10_000 * 500 / profile.bandwidth)


def by_name(manifest: dict[str, Any]) -> dict[str, Fit]:
    return {fit.profile: fit for fit in fits(manifest, KERNELS)}


def test_rates_follow_from_what_a_token_reads() -> None:
    """Rows of the embedding are no stream; half of the cache is filled."""
    manifest = chat(400 * MIB, 1000, 10_000, 100 * MIB)
    phone, profile = by_name(manifest)["phone"], next(p for p in PROFILES if p.name == "phone")
    streamed = 300 * MIB + 10_000 * 500
    assert phone.fits and phone.needs == 400 * MIB + 1000 * 10_004 + MIB + PAGE_BYTES
    assert phone.tokens_per_second == pytest.approx(1 / (streamed / profile.bandwidth + 100 * profile.launch))
    work = 2 * 400 * MIB * 64 / profile.operations
    assert phone.first_token == pytest.approx(4 * (work + 120 * profile.launch))
    assert "tokens/s" in line(phone)


def test_what_does_not_fit_says_what_would() -> None:
    large = by_name(chat(2500 * MIB, 4096, 100_000, 100 * MIB))
    assert large["desktop"].fits and large["integrated"].fits
    proposed = str(large["phone"].advice)
    assert not large["phone"].fits and proposed.startswith("--quant q") and bits(proposed.split()[1]) < bits("q8")
    assert "memory" in str(large["phone"].limit) and f"try {proposed}" in line(large["phone"])
    assert large["old-phone"].advice == "a smaller model"
    long = by_name(chat(500 * MIB, 32768, 100_000, 100 * MIB))
    advice = str(long["old-phone"].advice)
    assert advice.startswith("--context ")
    shorter = by_name(chat(500 * MIB, int(advice.split()[1]), 100_000, 100 * MIB))
    assert shorter["old-phone"].fits
    wide = by_name(chat(500 * MIB, 1024, 1000, 200 * MIB))
    assert "a buffer of 200 MiB, where one may have 128 MiB" in str(wide["old-phone"].limit) and wide["phone"].fits


def test_advice_is_kept(tmp_path: Path) -> None:
    """A quantisation that is proposed fits, for every one it starts from."""
    for quant in ("f32", "f16", "q8", "Q6_K, Q4_K"):
        for weights in range(256, 8192, 512):
            manifest = chat(weights * MIB, 8192, 50_000, MIB, quant)
            for name, fit in by_name(manifest).items():
                words = str(fit.advice).replace(" and ", " ").split()
                if fit.fits or "smaller" in words:
                    continue
                chosen = words[words.index("--quant") + 1] if "--quant" in words else quant
                context = int(words[words.index("--context") + 1]) if "--context" in words else 8192
                left = Weights.of_manifest(manifest).bytes("stored" if chosen == quant else chosen)
                again = chat(left, context, 50_000, MIB, chosen)
                assert by_name(again)[name].fits, (quant, weights, name, fit.advice)


def test_functions_have_memory_but_no_rate() -> None:
    manifest = chat(400 * MIB, 1000, 10_000, 100 * MIB) | {"task": "function"}
    assert all(
        fit.tokens_per_second is None and fit.fits and "tokens" not in line(fit) for fit in fits(manifest, KERNELS)
    )


def test_after_an_export(tmp_path: Path) -> None:
    model = Path(__file__).parents[2] / "assets" / "models" / "tinychat-7m"
    command = [sys.executable, "-m", "tinyweb.cli", "export", "chat", model, "-o", tmp_path / "site", "--context", "64"]
    made = subprocess.run(command, capture_output=True, text=True, timeout=500, env={**os.environ, "COLUMNS": "200"})
    assert made.returncode == 0, made.stderr
    assert "  recent phone: fits: " in made.stderr and "tokens/s" in made.stderr
    devices = inspect_site(tmp_path / "site")["devices"]
    assert [d["profile"] for d in devices] == [p.name for p in PROFILES]
    assert all(d["fits"] and d["tokens_per_second"] > 10 for d in devices)
    assert json.dumps(devices)
