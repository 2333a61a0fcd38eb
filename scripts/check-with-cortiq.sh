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
  # Rewrites of what was made last.
  "$moewe" requant "$out/m.cmf" "$out/r.cmf" --quant q8_2f --quiet
  "$moewe" compact "$out/m.cmf" "$out/c.cmf" --quiet
  for file in r c; do
    if "$cortiq" verify "$out/$file.cmf" > "$out/log" 2>&1; then
      echo "ok     $model rewritten ($file)"
    else
      failed=1
      echo "FAILED $model rewritten ($file)"
      cat "$out/log"
    fi
  done
done
exit $failed
