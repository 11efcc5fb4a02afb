#!/usr/bin/env bash
# Run a command that uses Vite, which takes # and ? in a folder's name for the end of a file's name: in a checkout with such a
# path the command runs in a copy (of links, where it can), and what it has built is brought back.
# usage: tools/plain_path.sh command [argument...]
set -euo pipefail
cd "$(dirname "$0")/.."
case $PWD in *[#?]*) ;; *) exec "$@" ;; esac

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
shopt -s dotglob nullglob
for entry in *; do
  case $entry in .git | .venv* | build | .*_cache) continue ;; esac
  cp -al "$entry" "$copy" 2>/dev/null || cp -a "$entry" "$copy"
done
(cd "$copy" && "$@")
for built in "$copy"/tinyweb/export/site "$copy"/web/*/dist; do
  place=${built#"$copy"/}
  rm -rf "$place"
  cp -a "$built" "$place"
done
