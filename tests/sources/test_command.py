"""The commands take a name on the hub, from the download to the answer."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.sources.hub_server import Hub, Repository

NAME = "maker/tiny-chat"


def tinyweb(hub: Hub, home: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING"))}
    env |= {"HF_ENDPOINT": hub.address, "HF_HOME": str(home)}
    command = [sys.executable, "-m", "tinyweb.cli", *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=500)


def test_run_and_export(hub: Hub, model_folder: Path, tmp_path: Path) -> None:
    files = {p.name: p.read_bytes() for p in model_folder.iterdir() if p.is_file()}
    hub.repositories[NAME] = Repository(files)
    asked = ("--prompt", "What is 7 plus 5?", "--temperature", "0", "--max-tokens", "16", "--json")
    done = tinyweb(hub, tmp_path / "home", "run", "chat", NAME, *asked)
    assert done.returncode == 0, done.stderr
    assert "12" in json.loads(done.stdout)["text"]
    assert "tinyweb: downloading" in done.stderr
    hub.status = 503  # from here on the cache has to do
    made = tinyweb(hub, tmp_path / "home", "export", "chat", NAME, "-o", tmp_path / "site")
    assert made.returncode == 0, made.stderr
    assert "downloading" not in made.stderr
    manifest = json.loads((tmp_path / "site" / "model" / "manifest.json").read_text())
    assert manifest["name"] == "tiny-chat"


def test_what_cannot_be_had_is_a_sentence(hub: Hub, tmp_path: Path) -> None:
    """Nothing is downloaded for a site that could not be written."""
    hub.repositories[NAME] = Repository({"config.json": b"{}"}, gated=True)
    done = tinyweb(hub, tmp_path / "home", "export", "chat", NAME, "-o", tmp_path / "site")
    assert done.returncode == 2 and done.stderr.splitlines()[-1].startswith(f"tinyweb: {NAME} is gated: open ")
    (tmp_path / "file").write_text("")
    before = len(hub.requests)
    done = tinyweb(hub, tmp_path / "home", "export", "chat", NAME, "-o", tmp_path / "file")
    assert done.returncode == 2 and len(hub.requests) == before
