#!/usr/bin/env bash
# Builds the fuzz targets (in the address sanitizer's tree), replays the seed corpus of each, then fuzzes each for
# FUZZ_SECONDS. Seeds are made from the goldens, and fuzz/corpus/ has what long runs found (`-merge=1`). Findings
# stay in build/fuzz/ as crash-*; new inputs in build/fuzz/corpus/.
set -uo pipefail
cd "$(dirname "$0")/.."
seconds=${FUZZ_SECONDS:-10}
mkdir -p build/fuzz
cmake --preset asan > build/fuzz/configure.log 2>&1 || { cat build/fuzz/configure.log; exit 1; }
cmake --build build/asan --target moewe_fuzz || exit 1
python3 fuzz/make_corpus.py build/fuzz/seeds || exit 1

# One target: its seeds alone, then SECONDS of mutations of them. Prints a line; fails on a finding.
fuzz_one() {
  local name=$1 seconds=$2
  local corpus=build/fuzz/corpus/$name seeds=build/fuzz/seeds/$name log=build/fuzz/$name.log
  mkdir -p "$corpus" "$seeds"
  cp -r "fuzz/corpus/$name/." "$seeds" 2> /dev/null
  local options=(-rss_limit_mb=2048 -timeout=20 -max_len=65536 -artifact_prefix=build/fuzz/)
  if "build/asan/$name" "${options[@]}" -runs=0 "$seeds" > "$log" 2>&1 &&
    "build/asan/$name" "${options[@]}" "-max_total_time=$seconds" "$corpus" "$seeds" >> "$log" 2>&1; then
    echo "$name: $(find "$seeds" -type f | wc -l) seeds, $(sed -nE 's/^Done ([0-9]+) runs.*/\1/p' "$log" | tail -n1) runs"
  else
    echo "$name: FAILED"
    tail -n 40 "$log"
  fi
}
export -f fuzz_one

log=build/fuzz/summary.log
for source in fuzz/fuzz_*.cc; do basename "$source" .cc; done |
  xargs -P "$(nproc)" -I{} bash -c 'fuzz_one "$@"' _ {} "$seconds" | tee "$log"
passed=$(grep -cE '^[a-z_0-9]+: [0-9]+ seeds' "$log" || true)
failed=$(($(find fuzz -name 'fuzz_*.cc' | wc -l) - passed))
echo "$passed passed, $failed failed, 0 skipped"
[[ $failed -eq 0 ]]
