#!/usr/bin/env bash
# Type-check every TypeScript project of web/.
set -euo pipefail
cd "$(dirname "$0")/.."
for config in web/*/tsconfig*.json; do
  echo "tsc --noEmit -p $config"
  node_modules/.bin/tsc --noEmit -p "$config"
done
