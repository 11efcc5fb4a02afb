#!/usr/bin/env bash
# Build web/ and put the chat page and the runtime library together as tinyweb/export/site, which every export copies.
set -euo pipefail
cd "$(dirname "$0")/.."
site=tinyweb/export/site

for workspace in runtime tinychat; do # one by one: the first failure is the last thing said
  npm run build --workspace "web/$workspace"
done
scratch=$(mktemp -d tinyweb/export/.site.XXXXXX)
trap 'rm -rf "$scratch"' EXIT
cp -R web/tinychat/dist/. "$scratch"
mkdir -p "$scratch/assets"
cp web/runtime/dist/tinyweb.js web/runtime/dist/tinyweb-worker.js "$scratch/assets"
chmod 755 "$scratch"
rm -rf "$site"
mv "$scratch" "$site"
