#!/usr/bin/env bash
# Build web/ and put it together as tinyweb/export/site: a folder for each task's page, and the runtime library.
set -euo pipefail
cd "$(dirname "$0")/.."
case $PWD in *[#?]*) exec tools/plain_path.sh tools/build_web.sh ;; esac
site=tinyweb/export/site
declare -A workspaces=([chat]=tinychat [detect]=yolo [image]=stable_diffusion [embed]=search [function]=function)

# one by one: the first failure is the last thing said
npm run build --workspace web/runtime
scratch=$(mktemp -d tinyweb/export/.site.XXXXXX)
trap 'rm -rf "$scratch"' EXIT
chmod 755 "$scratch"
mkdir "$scratch/library"
cp -R web/runtime/dist/tinyweb* web/runtime/dist/types web/runtime/dist/licenses.txt "$scratch/library"
for task in chat detect image embed function; do
  workspace=web/${workspaces[$task]}
  [ -e "$workspace/package.json" ] || continue # `tinyweb export` says that there is no such page
  npm run build --workspace "$workspace"
  cp -R "$workspace/dist" "$scratch/$task"
done
[ ! -e web/tinychat/completion/dist ] || cp -R web/tinychat/completion/dist "$scratch/completion"
rm -rf "$site"
mv "$scratch" "$site"
