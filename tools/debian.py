"""Install Debian packages when that is possible here: a Debian-like system, as root.

usage: python tools/debian.py THING PACKAGE [THING PACKAGE …]

A PACKAGE is installed if its THING, a command or the path of a file, which some tests use, is missing.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path


def can_install() -> bool:
    return shutil.which("apt-get") is not None and hasattr(os, "geteuid") and os.geteuid() == 0


def install(*packages: str) -> None:
    """Install packages with apt-get; raises RuntimeError with apt's last lines when that fails."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (["update"], ["install", "-y", "--no-install-recommends", *packages]):
        command = ["apt-get", "-qq", *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            tail = " ".join((done.stdout + done.stderr).strip().splitlines()[-3:])
            raise RuntimeError(f"`{' '.join(command)}` failed: {tail}")


def is_there(thing: str) -> bool:
    """Whether a command is found, or a file that is named by its path exists."""
    return Path(thing).exists() if thing.startswith("/") else shutil.which(thing) is not None


def main(*pairs: str) -> None:
    missing = {package: thing for thing, package in zip(pairs[::2], pairs[1::2], strict=True) if not is_there(thing)}
    if missing:
        try:
            if not can_install():
                raise RuntimeError("that takes root on a Debian system")
            install(*missing)
        except RuntimeError as e:
            wanted = ", ".join(Path(thing).name for thing in missing.values())
            print(f"tinyweb: tests that need {wanted} are skipped: {', '.join(missing)} could not be installed: {e}")


if __name__ == "__main__":
    main(*sys.argv[1:])
