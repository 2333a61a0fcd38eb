#!/bin/sh
# Files that convert makes, verified by the existing runtime (installed from its registry if absent). Not part of
# `make test`. Usage: scripts/check-with-cortiq.sh [MODEL...]; default: the demo model.
set -eu
cd "$(dirname "$0")/.."
moewe=${MOEWE:-build/release/moewe}
cortiq=${CORTIQ:-$(command -v cortiq || echo /opt/cortiq/bin/cortiq)}
if [ ! -x "$cortiq" ]; then
  cargo install cortiq-cli --version 0.5.100 --locked
  cortiq=${CARGO_HOME:-$HOME/.cargo}/bin/cortiq
fi
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
[ $# -gt 0 ] || set -- models/demo
failed=0
for model in "$@"; do
  for quant in f32 f16 bf16 q8 q8_2f q4 q4t q4tp; do
    "$moewe" convert "$model" "$out/m.cmf" --quant "$quant" --quiet
    if "$cortiq" verify "$out/m.cmf" > "$out/log" 2>&1 && "$cortiq" info "$out/m.cmf" >> "$out/log" 2>&1; then
      echo "ok     $model $quant"
    else
      failed=1
      echo "FAILED $model $quant"
      cat "$out/log"
    fi
  done
done
exit $failed
