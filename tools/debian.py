"""Install Debian packages when that is possible here: a Debian-like system, as root.

usage: python tools/debian.py COMMAND PACKAGE      PACKAGE is installed if COMMAND, which some tests use, is missing
"""

import os
import shutil
import subprocess
import sys


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


def main(command: str, package: str) -> None:
    if shutil.which(command) is None:
        try:
            if not can_install():
                raise RuntimeError("that takes root on a Debian system")
            install(package)
        except RuntimeError as e:
            print(f"tinyweb: tests that need {command} are skipped: {package} could not be installed: {e}")


if __name__ == "__main__":
    main(*sys.argv[1:])
