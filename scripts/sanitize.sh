#!/usr/bin/env bash
# Builds and runs the test programs of some layers under a sanitizer, each as one process.
#
#   scripts/sanitize.sh tsan platform experts engine
#   scripts/sanitize.sh asan base platform quant formats kernels text model engine api convert
set -euo pipefail
cd "$(dirname "$0")/.."
build=build/$1
[[ -f $build/build.ninja ]] || cmake --preset "$1"
shift
targets=()
for layer in "$@"; do
  if [[ -n "$(find "src/$layer" -name '*_test.cc' 2> /dev/null)" ]]; then targets+=("${layer}_test"); fi
done
cmake --build "$build" --target "${targets[@]}"
passed=0 failed=0 skipped=0
for target in "${targets[@]}"; do
  log=$build/$target.log
  TSAN_OPTIONS="halt_on_error=1 ${TSAN_OPTIONS:-}" "$build/$target" > "$log" 2>&1 || {
    tail -n 60 "$log"
    failed=$((failed + 1))
  }
  passed=$((passed + $(grep -c '^\[       OK \]' "$log" || true)))
  skipped=$((skipped + $(grep -cE '^\[  SKIPPED \] .*\(' "$log" || true)))
done
echo "$passed passed, $failed failed, $skipped skipped"
[[ $failed -eq 0 ]]
