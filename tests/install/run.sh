#!/usr/bin/env bash
# Installs a build into a scratch folder, then builds and runs a program against it: run.sh BUILD_DIR
set -euo pipefail
source_dir=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cmake --install "$1" --prefix "$scratch/prefix" > /dev/null
cmake -S "$source_dir" -B "$scratch/build" -DCMAKE_PREFIX_PATH="$scratch/prefix" > /dev/null
cmake --build "$scratch/build"
"$scratch/build/consumer"
"$scratch/build/ask" "$source_dir/../../models/demo" "What is the capital of France?"
"$scratch/prefix/bin/moewe" --version
