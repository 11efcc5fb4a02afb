"""Install Debian packages when that is possible here: a Debian-like system, as root."""

import os
import shutil
import subprocess


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
