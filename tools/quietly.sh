#!/usr/bin/env bash
# Say in one line what is being done, run it quietly, and on failure show the end of its output and one clear sentence.
# usage: tools/quietly.sh "what is being done" "what to do when it fails" command [argument...]
set -uo pipefail

echo "tinyweb: $1"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! "${@:3}" >"$log" 2>&1; then
  tail -n 25 "$log" >&2
  echo "tinyweb: failed: $1; $2" >&2
  exit 1
fi
