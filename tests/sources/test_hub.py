"""Models from a hub: a local server stands in, with its redirects, ranges, faults and refusals."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from tests.sources.hub_server import Hub, Repository
from tinyweb.errors import SourceError
from tinyweb.sources import CHAT, GRAPH, address, locate, model_name

NAME = "maker/tiny-model"
FOLDER: dict[str, bytes] = {
    "config.json": b'{"architectures": ["LlamaForCausalLM"]}',
    "tokenizer.json": b"{}",
    "model.safetensors": bytes(range(256)) * 4000,
    "pytorch_model.bin": b"code" * 1000,
    "original/consolidated.00.pth": b"code" * 1000,
    "README.md": b"about",
    "LICENSE": b"free",
}


def fill(hub: Hub, files: dict[str, bytes] = FOLDER, **settings: Any) -> Repository:
    hub.repositories[NAME] = Repository(dict(files), **settings)
    return hub.repositories[NAME]


def names(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def refused(source: str = NAME) -> str:
    with pytest.raises(SourceError) as told:
        locate(source, CHAT)
    return str(told.value)


def test_only_what_is_needed_comes(hub: Hub) -> None:
    fill(hub)
    seen: list[tuple[str, int, int]] = []
    found = locate(NAME, CHAT, lambda *step: seen.append(step))
    assert model_name(found) == "tiny-model"
    assert names(found) == ["LICENSE", "config.json", "model.safetensors", "tokenizer.json"]
    assert (found / "model.safetensors").read_bytes() == FOLDER["model.safetensors"]
    total = sum(len(FOLDER[name]) for name in names(found))
    assert seen[-1] == ("downloading", total, total)
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)


def test_a_second_time_nothing_is_sent_and_without_the_hub_the_cache_serves(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(hub)
    first = locate(NAME, CHAT)
    sent = dict(hub.sent)
    assert locate(NAME, CHAT) == first
    assert hub.sent == sent
    hub.status = 503
    assert locate(NAME, CHAT) == first
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert locate(NAME, CHAT) == first


def test_a_broken_download_goes_on(hub: Hub) -> None:
    fill(hub)
    whole = len(FOLDER["model.safetensors"])
    hub.cuts["model.safetensors"] = [whole // 3, whole // 3]
    found = locate(NAME, CHAT)
    assert (found / "model.safetensors").read_bytes() == FOLDER["model.safetensors"]
    assert hub.sent["model.safetensors"] < 1.1 * whole
    assert any("bytes=" in request for request in hub.requests)


def test_a_revision(hub: Hub) -> None:
    fill(hub, revisions=("main", "v2"))
    assert locate(f"{NAME}@v2", CHAT).is_dir()
    assert "has no revision 'v3'" in refused(f"{NAME}@v3")


def test_a_gated_model(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(hub, gated=True, token="secret")
    told = refused()
    assert f"open {hub.address}/{NAME}" in told and "hf auth login" in told
    monkeypatch.setenv("HF_TOKEN", "secret")
    assert locate(NAME, CHAT).is_dir()


def test_a_private_model(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(hub, token="secret")
    told = refused()
    assert "or it is private" in told and "hf auth login" in told
    monkeypatch.setenv("HF_TOKEN", "secret")
    assert locate(NAME, CHAT).is_dir()


def test_a_name_that_is_not_there(hub: Hub) -> None:
    assert f"there is no folder {NAME} here, and no model" in refused()


def test_a_hub_that_fails(hub: Hub) -> None:
    fill(hub)
    hub.status = 503
    assert "it answers with status 503, and it was not downloaded before. Wait and run" in refused()
    hub.status = 429
    assert "allows no more downloads for now" in refused()


def test_no_network(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert "there is no connection" in refused()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "HF_HUB_OFFLINE is set" in refused()


def test_a_file_of_another_size(hub: Hub) -> None:
    fill(hub)
    hub.wrong_size.add("model.safetensors")
    told = refused()
    assert "did not come whole" in told and "run the same command again" in told
    hub.wrong_size.clear()
    assert (locate(NAME, CHAT) / "model.safetensors").read_bytes() == FOLDER["model.safetensors"]


def test_a_full_disk(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(hub)
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1 << 20))
    told = refused()
    assert "has room for" in told and "HF_HOME" in told
    assert not any("/resolve/" in request for request in hub.requests)


def test_a_disk_that_fills_up(hub: Hub, monkeypatch: pytest.MonkeyPatch, full_disk: Callable[[int], None]) -> None:
    fill(hub)
    monkeypatch.setattr(address, "CHUNK", 1 << 10)
    whole = len(FOLDER["model.safetensors"])
    full_disk(whole // 2)
    told = refused()
    assert "is full: make room" in told and "HF_HOME" in told and "goes on where it stopped" in told
    full_disk(2 * whole)
    found = locate(NAME, CHAT)
    assert (found / "model.safetensors").read_bytes() == FOLDER["model.safetensors"]
    assert any(request.endswith("-") and "bytes=51" in request for request in hub.requests), hub.requests
    assert names(found.parents[1] / "blobs") == sorted(p.resolve().name for p in found.iterdir())  # nothing else


def test_a_download_that_breaks_for_good_goes_on_the_next_time(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(hub)
    monkeypatch.setattr(address, "CHUNK", 1 << 10)
    whole = len(FOLDER["model.safetensors"])
    hub.cuts["model.safetensors"] = [whole // 2] + [0] * 20
    told = refused()
    assert "model.safetensors of maker/tiny-model did not come whole" in told and "goes on where it stopped" in told
    hub.cuts.clear()
    found = locate(NAME, CHAT)
    assert (found / "model.safetensors").read_bytes() == FOLDER["model.safetensors"]
    assert hub.sent["model.safetensors"] < 1.1 * whole


@pytest.mark.parametrize(("status", "said"), [(404, "is missing on"), (403, "status 403"), (500, "status 500")])
def test_a_file_that_is_refused(hub: Hub, status: int, said: str) -> None:
    """Though the hub lists it; what came before it is kept."""
    fill(hub)
    hub.statuses["model.safetensors"] = status
    told = refused()
    assert said in told and "run the same command again; it goes on where it stopped" in told
    hub.statuses.clear()
    sent = dict(hub.sent)
    assert names(locate(NAME, CHAT)) == ["LICENSE", "config.json", "model.safetensors", "tokenizer.json"]
    assert all(hub.sent[name] == sent[name] for name in sent)


def test_names_that_leave_the_folder_are_passed_by(hub: Hub) -> None:
    fill(hub, {**FOLDER, "../evil.json": b"{}", "/etc/evil.json": b"{}", "a\\b.json": b"{}"})
    assert "evil.json" not in " ".join(names(locate(NAME, CHAT)))


def test_ggufs(hub: Hub) -> None:
    ggufs = {f"tiny-{q}.gguf": q.encode() * 1000 for q in ("Q4_K_M", "Q4_K_S", "Q8_0", "IQ4_XS")}
    ggufs |= {f"BF16/tiny-BF16-0000{n}-of-00002.gguf": bytes([n]) * 2000 for n in (1, 2)}
    fill(hub, {**ggufs, "README.md": b"", "mmproj-tiny-Q8_0.gguf": b"eye"})
    found = locate(f"{NAME}:Q8_0", CHAT)
    assert found.name == "tiny-Q8_0.gguf" and found.read_bytes() == ggufs["tiny-Q8_0.gguf"]
    assert locate(f"{NAME}:q4_k_s", CHAT).name == "tiny-Q4_K_S.gguf"
    assert locate(f"{NAME}:tiny-IQ4_XS.gguf", CHAT).name == "tiny-IQ4_XS.gguf"
    split = locate(f"{NAME}:BF16", CHAT)
    assert model_name(split) == "tiny-BF16"
    assert split.name == "tiny-BF16-00001-of-00002.gguf"
    assert (split.parent / "tiny-BF16-00002-of-00002.gguf").stat().st_size == 2000
    assert locate(NAME, CHAT).name == "tiny-Q4_K_M.gguf"  # what is usual
    told = refused(f"{NAME}:Q5_K_M")
    assert "there is no Q5_K_M" in told and "tiny-Q8_0.gguf" in told and "mmproj" not in told
    del hub.repositories[NAME].files["BF16/tiny-BF16-00002-of-00002.gguf"]
    assert "there is no BF16/tiny-BF16-00002-of-00002.gguf" in refused(f"{NAME}:BF16")


def test_one_gguf_beside_what_is_no_model(hub: Hub) -> None:
    """Projections of images and statistics of inputs are passed by."""
    fill(hub, {"tiny-Q8_0.gguf": b"GGUF", "mmproj-tiny-F16.gguf": b"eye", "tiny.imatrix.gguf": b"count", "a.md": b""})
    assert locate(NAME, CHAT).name == "tiny-Q8_0.gguf"


def test_graphs(hub: Hub) -> None:
    """Of a repository of ONNX graphs the one that is wanted comes, with its numbers and the texts beside."""
    graphs = {f"onnx/model{e}.onnx": e.encode() * 10 for e in ("", "_q4", "_fp16", "_q4f16")}
    data = {"onnx/model_q4.onnx_data": b"4" * 3000, "onnx/model_q4.onnx_data_1": b"5", "onnx/model.onnx_data": b"f"}
    texts = {"config.json": b"{}", "tokenizer.json": b"{}", "LICENSE": b"free"}
    fill(hub, {**graphs, **data, **texts, "README.md": b"", "onnx/decoder_model.onnx": b"other"})
    found = locate(NAME, CHAT)
    assert (found.name, model_name(found.parent.parent)) == ("model_q4.onnx", "tiny-model")
    assert names(found.parent.parent) == sorted([*texts, "onnx/model_q4.onnx", *list(data)[:2]])
    for quant, name in (("f32", ""), ("f16", "_fp16"), ("q4", "_q4"), ("stored", "_q4")):
        assert locate(NAME, CHAT.in_precision(quant)).name == f"model{name}.onnx"
    assert locate(f"{NAME}:q4", CHAT).name == "model_q4.onnx"
    assert locate(f"{NAME}:onnx/model_q4f16.onnx", CHAT).name == "model_q4f16.onnx"
    assert locate(NAME, CHAT.in_precision("q8")).name == "model.onnx"  # from which it is made
    fill(hub, {f"onnx/model{e}.onnx": b"" for e in ("_q4", "_fp16")} | texts)
    with pytest.raises(
        SourceError, match=r"no model as ONNX graph of f32: it has onnx/model_fp16\.onnx, onnx/model_q4"
    ):
        locate(NAME, CHAT.in_precision("f32"))
    pair = {f"onnx/{n}.onnx": b"" for n in ("encoder_model_q4", "decoder_model_merged_q4", "encoder_model")}
    fill(hub, pair | {"onnx/decoder_model_merged_q4.onnx_data": b"4"} | texts)
    found = locate(NAME, GRAPH)
    assert found.is_dir() and (found / "onnx/decoder_model_merged_q4.onnx_data").is_file()
    fill(hub, {**graphs, **texts, "model.safetensors": FOLDER["model.safetensors"]})
    assert locate(NAME, CHAT.in_precision("q4")).is_dir()
