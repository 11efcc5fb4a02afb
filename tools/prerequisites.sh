#!/usr/bin/env bash
# Check the programs that must be there before anything can be installed; print the Python to use.
# usage: tools/prerequisites.sh python|node
set -euo pipefail

fail() { echo "tinyweb: $1" >&2; exit 1; }

case "$1" in
  python)
    for python in "${PYTHON:-python3}" python3.14 python3.13 python3.12 python3.11; do
      if "$python" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null; then
        command -v "$python"
        exit 0
      fi
    done
    fail "Python 3.11, 3.12, 3.13 or 3.14 with its venv module was not found: install one (Debian: apt-get install python3 python3-venv) or set PYTHON=/path/to/python3."
    ;;
  node)
    command -v git >/dev/null || fail "git was not found: install it (Debian: apt-get install git)."
    command -v node >/dev/null || fail "Node.js was not found: install version 20.19 or newer, which brings npm."
    node -e 'const [major, minor] = process.versions.node.split("."); process.exit(major * 100 + +minor < 2019 ? 1 : 0)' \
      || fail "Node.js $(node --version) is too old: install version 20.19 or newer."
    command -v npm >/dev/null || fail "npm was not found: install it with Node.js 20.19 or newer."
    ;;
  *)
    fail "tools/prerequisites.sh takes python or node."
    ;;
esac
