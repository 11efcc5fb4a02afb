"""What a source means, which files of a repository a task needs, and files from any address."""

import hashlib
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sources.hub_server import Hub, Repository
from tinyweb.errors import SourceError
from tinyweb.sources import CHAT, DETECT, IMAGE, IMAGE_HALF, HubName, Wanted, locate, model_name, parse

CONTENT = hashlib.sha256(b"tinyweb").digest() * 100_000


@pytest.mark.parametrize(
    ("source", "meant"),
    [
        ("org/model", HubName("org/model")),
        ("org/model@v1.0", HubName("org/model", "v1.0")),
        ("org/model:Q4_K_M", HubName("org/model", "main", "Q4_K_M")),
        ("org/model@refs/pr/1:sub/a.gguf", HubName("org/model", "refs/pr/1", "sub/a.gguf")),
        ("https://huggingface.co/org/model", HubName("org/model")),
        ("https://huggingface.co/org/model/tree/dev", HubName("org/model", "dev")),
        ("https://huggingface.co/org/model/resolve/main/a%20b.gguf?x=1", HubName("org/model", "main", "a b.gguf")),
        ("https://example.org/a.gguf", "https://example.org/a.gguf"),
    ],
)  # fmt: skip
def test_meanings(source: str, meant: HubName | str) -> None:
    assert parse(source) == meant


@pytest.mark.parametrize(
    "source",
    ["", "model", "a/b/c", "../model", "org/", "org/model:", "https://huggingface.co/org", "org/model@", "~/x/y"],
)
def test_what_can_be_no_source(source: str) -> None:
    with pytest.raises(SourceError):
        parse(source)


def test_what_exists_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "org" / "model").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert locate("org/model", CHAT) == Path("org/model")
    with pytest.raises(SourceError, match="does not exist"):
        locate(tmp_path / "nothing", CHAT)


def chosen(wanted: Wanted, names: str, choice: str | None = None) -> str:
    return " ".join(wanted.of(names.split(), choice).files)


def test_files_of_a_chat() -> None:
    parts = "model-00001-of-00002.safetensors model-00002-of-00002.safetensors model.safetensors.index.json"
    assert chosen(CHAT, f"config.json x.md {parts} onnx/model.onnx").split() == sorted(f"config.json {parts}".split())
    with pytest.raises(SourceError, match="pickles"):
        chosen(CHAT, "config.json pytorch_model.bin")
    with pytest.raises(SourceError, match="neither"):
        chosen(CHAT, "README.md")


def test_files_of_a_detector() -> None:
    assert chosen(DETECT, "yolov8n.pt README.md") == "yolov8n.pt"
    assert chosen(DETECT, "yolov8n.pt yolov8s.pt LICENSE", "yolov8s.pt") == "yolov8s.pt LICENSE"
    with pytest.raises(SourceError, match=r"yolov8n\.pt, yolov8s\.pt"):
        chosen(DETECT, "yolov8n.pt yolov8s.pt")
    with pytest.raises(SourceError, match="cannot be read for detection"):
        chosen(DETECT, "yolov8n.engine yolov8s.pt", "yolov8n.engine")


def test_files_of_a_diffusion_model() -> None:
    folder = " ".join(
        [
            "model_index.json scheduler/scheduler_config.json tokenizer/vocab.json tokenizer/merges.txt",
            "text_encoder/config.json text_encoder/model.safetensors text_encoder/model.fp16.safetensors",
            "unet/config.json unet/diffusion_pytorch_model.safetensors unet/diffusion_pytorch_model.fp16.safetensors",
            "unet/diffusion_pytorch_model.bin vae/config.json vae/diffusion_pytorch_model.safetensors",
            "safety_checker/config.json safety_checker/model.safetensors v1-5-pruned.safetensors",
        ]
    )
    full = chosen(IMAGE, folder).split()
    assert "unet/diffusion_pytorch_model.safetensors" in full and "tokenizer/merges.txt" in full
    assert not any("fp16" in f or "safety" in f or f.endswith(".bin") or "pruned" in f for f in full)
    half = chosen(IMAGE_HALF, folder).split()
    assert "unet/diffusion_pytorch_model.fp16.safetensors" in half
    assert "unet/diffusion_pytorch_model.safetensors" not in half
    assert "vae/diffusion_pytorch_model.safetensors" in half


@pytest.fixture
def address(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Of a file on a server that knows ranges, but is no hub."""
    monkeypatch.setenv("TINYWEB_CACHE", str(tmp_path / "own"))
    hub.repositories["any/place"] = Repository({"tiny.gguf": CONTENT, "small.gguf": b"small"})
    return f"{hub.address}/any/place/resolve/main"


def test_a_file_from_an_address(hub: Hub, address: str) -> None:
    seen: list[tuple[str, int, int]] = []
    found = locate(f"{address}/tiny.gguf", CHAT, lambda *step: seen.append(step))
    assert (model_name(found), found.name) == ("tiny", "tiny.gguf")
    assert found.read_bytes() == CONTENT
    assert seen[-1] == ("downloading", len(CONTENT), len(CONTENT))


def test_an_address_that_breaks_goes_on_where_it_stopped(hub: Hub, address: str) -> None:
    hub.cuts["tiny.gguf"] = [1_000_000, 1_000_000]
    assert locate(f"{address}/tiny.gguf", CHAT).read_bytes() == CONTENT
    assert hub.sent["tiny.gguf"] == len(CONTENT)


def test_an_address_that_breaks_for_good_goes_on_the_next_time(hub: Hub, address: str) -> None:
    hub.cuts["tiny.gguf"] = [1_000_000, 0, 0, 0, 0, 0]
    with pytest.raises(SourceError, match="it goes on where it stopped"):
        locate(f"{address}/tiny.gguf", CHAT)
    hub.cuts["tiny.gguf"] = []
    assert locate(f"{address}/tiny.gguf", CHAT).read_bytes() == CONTENT
    assert hub.sent["tiny.gguf"] == len(CONTENT)


@pytest.mark.parametrize("ranges", [None, 7])
def test_a_server_without_the_right_ranges(hub: Hub, address: str, ranges: int | None) -> None:
    """It sends all of the file, or another part than was asked for: the file comes from its beginning."""
    hub.ranges = ranges
    hub.cuts["tiny.gguf"] = [1_000_000]
    assert locate(f"{address}/tiny.gguf", CHAT).read_bytes() == CONTENT


def test_an_address_and_a_disk_that_fills_up(hub: Hub, address: str, full_disk: Callable[[int], None]) -> None:
    full_disk(len(CONTENT) // 2)
    with pytest.raises(SourceError, match=r"is full: make room.*TINYWEB_CACHE.*it goes on where it stopped"):
        locate(f"{address}/tiny.gguf", CHAT)
    full_disk(2 * len(CONTENT))
    assert locate(f"{address}/tiny.gguf", CHAT).read_bytes() == CONTENT
    assert any("bytes=" in request for request in hub.requests)


@pytest.mark.parametrize(
    ("status", "said"), [(401, "is not for everybody"), (403, "is not for everybody"), (404, "check the address"),
                         (410, "check the address"), (429, "try again later"), (500, "try again later")],
)  # fmt: skip
def test_an_address_that_is_refused(
    hub: Hub, address: str, monkeypatch: pytest.MonkeyPatch, status: int, said: str
) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    hub.statuses["tiny.gguf"] = status
    with pytest.raises(SourceError, match=said):
        locate(f"{address}/tiny.gguf", CHAT)


def test_an_address_that_leads_to_itself(hub: Hub, address: str) -> None:
    hub.statuses["tiny.gguf"] = 302
    with pytest.raises(SourceError, match="status 302"):
        locate(f"{address}/tiny.gguf", CHAT)


def test_an_address_whose_file_changes(hub: Hub, address: str) -> None:
    hub.cuts["tiny.gguf"] = [1_000_000, 0, 0, 0, 0, 0]
    with pytest.raises(SourceError):
        locate(f"{address}/tiny.gguf", CHAT)
    hub.cuts["tiny.gguf"] = []
    other = CONTENT[::-1]
    hub.repositories["any/place"].files["tiny.gguf"] = other
    assert locate(f"{address}/tiny.gguf", CHAT).read_bytes() == other


def test_an_address_without_a_network(hub: Hub, address: str) -> None:
    first = locate(f"{address}/small.gguf", CHAT)
    hub.status = 503
    with pytest.raises(SourceError, match="status 404"):
        hub.status = 404
        locate(f"{address}/other.gguf", CHAT)
    hub.status = 503
    assert locate(f"{address}/small.gguf", CHAT) == first


def test_addresses_that_are_refused(hub: Hub, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SourceError, match="must end in"):
        locate(f"{address}/model.exe", CHAT)
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=64 << 20))
    with pytest.raises(SourceError, match="TINYWEB_CACHE"):
        locate(f"{address}/tiny.gguf", CHAT)
