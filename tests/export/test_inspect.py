"""Reading a bundle back: the figures, the hashes, and every way a manifest can be broken."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tinyweb.errors import ExportError
from tinyweb.export.inspect import inspect_site, table

Make = Callable[[], Path]


def test_figures(make_bundle: Make) -> None:
    report = inspect_site(make_bundle())
    assert report["kernels_per_token"] == 8 + 4
    assert report["kernels_per_token_by_target"] == {
        "webgpu": {"sample": 10, "greedy": 9},
        "wasm": {"sample": 12, "greedy": 11},
    }
    assert report["bytes"] == {"weights": 512 + 8000, "state": 96 + 128 + 16 + 8, "temporaries": 4096, "download": 8512}
    assert report["limits"] == {"maxBufferSize": 8000}
    assert report["variants"] == {"webgpu": ["base"], "wasm": ["simd", "simd-threads"]}
    assert report["weights"]["shards"] == 3
    assert report["targets"]["wasm"]["variants"]["simd"] == {
        "file": "kernels/simd.wasm",
        "file_bytes": 10,
        "threads": False,
    }
    assert report["targets"]["webgpu"]["entry_points"]["prefill_8"] == {"kernels": 9}
    assert report["targets"]["wasm"]["memory_bytes"] == 20 * 65536
    assert "verified" not in report


def test_the_model_folder_alone(make_bundle: Make) -> None:
    site = make_bundle()
    assert inspect_site(site / "model") == inspect_site(site)


def test_table_names_what_people_ask_for(make_bundle: Make) -> None:
    console = Console(width=200, file=io.StringIO())
    with console.capture() as captured:
        console.print(table(inspect_site(make_bundle(), verify=True)))
    text = captured.get()
    for part in ("toy", "every hash is right", "9 greedy", "10 with sampling", "maxBufferSize 8000", "simd-threads"):
        assert part in text


def test_verify(make_bundle: Make) -> None:
    site = make_bundle()
    assert inspect_site(site, verify=True)["verified"] is True
    shard = site / "model/weights/001.bin"
    data = bytearray(shard.read_bytes())
    data[7] ^= 1
    shard.write_bytes(data)
    assert inspect_site(site)
    with pytest.raises(ExportError, match=r"001.bin is damaged \(its SHA-256"):
        inspect_site(site, verify=True)
    shard.unlink()
    with pytest.raises(ExportError, match=r"001.bin is missing"):
        inspect_site(site, verify=True)


def test_every_file_has_its_hash(make_bundle: Make) -> None:
    """What a loader reads of a bundle, and nothing that has its hash elsewhere; each of them is checked."""
    site = make_bundle()
    model = site / "model"
    manifest = json.loads((model / "manifest.json").read_text())
    files = {path.relative_to(model).as_posix() for path in model.rglob("*") if path.is_file()}
    shards = {shard["file"] for shard in manifest["weights"]["shards"]}
    assert set(manifest["integrity"]) == files - shards - {"manifest.json"}
    for name in manifest["integrity"]:
        path = model / name
        good = path.read_bytes()
        for bad in (good[:-1], good + b"\n", bytes([good[0] ^ 1]) + good[1:]):
            path.write_bytes(bad)
            with pytest.raises(ExportError, match=f"{path.name} is damaged"):
                inspect_site(site, verify=True)
        path.write_bytes(good)
    assert inspect_site(site, verify=True)["verified"] is True


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "is damaged"),
        (b'{"format": "tinyweb-bundle",', "is damaged"),
        (b"\xff\xfe", "is damaged"),
        (b"[" * 100_000, "is damaged"),
        (b"[]", "is not the manifest"),
        (b'{"format": "zip"}', "is not the manifest"),
        (b'{"format": "tinyweb-bundle", "version": 3}', "has version 3"),
        (b'{"format": "tinyweb-bundle", "version": 2}', "is damaged"),
    ],
)
def test_broken_manifests(make_bundle: Make, text: bytes, says: str) -> None:
    site = make_bundle()
    (site / "model/manifest.json").write_bytes(text)
    with pytest.raises(ExportError, match=says):
        inspect_site(site)


def test_any_part_may_be_missing_or_wrong(make_bundle: Make) -> None:
    """Whatever is taken out of a manifest or put in its place: an answer or one clear sentence, nothing else."""
    site = make_bundle()
    path = site / "model/manifest.json"
    whole = json.loads(path.read_text())

    def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
        return [at, *(p for k in keys for p in places(value[k], (*at, k)))]

    refused = 0
    for place in places(whole)[1:]:
        wrong: Any
        for wrong in (None, "x", -1, [], {}):
            broken = json.loads(json.dumps(whole))
            spot = broken
            for key in place[:-1]:
                spot = spot[key]
            spot[place[-1]] = wrong
            path.write_text(json.dumps(broken))
            try:
                inspect_site(site, verify=True)
            except ExportError as error:
                refused += 1
                assert str(error).endswith("export the model again.")
    assert refused > 100


def test_a_manifest_cannot_point_outside(make_bundle: Make, tmp_path: Path) -> None:
    site = make_bundle()
    path = site / "model/manifest.json"
    for name in ("../../secret", str(tmp_path / "secret")):
        (tmp_path / "secret").write_text("x")
        broken = json.loads(path.read_text())
        broken["targets"]["wasm"]["variants"]["simd"]["file"] = name
        path.write_text(json.dumps(broken))
        with pytest.raises(ExportError, match="is missing"):
            inspect_site(site)


def test_no_site(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="is no exported site"):
        inspect_site(tmp_path / "nowhere")
    with pytest.raises(ExportError, match="is no exported site"):
        inspect_site(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ExportError, match="is a file"):
        inspect_site(tmp_path / "file")
