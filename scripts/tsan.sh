#!/usr/bin/env bash
# Builds and runs the tests of the layers that use threads under the thread sanitizer (build/tsan).
set -euo pipefail
cd "$(dirname "$0")/.."
targets=()
for layer in platform experts engine; do
  if compgen -G "src/$layer/*_test.cc" > /dev/null; then targets+=("${layer}_test"); fi
done
cmake --build build/tsan --target "${targets[@]}"
passed=0 failed=0 skipped=0
for target in "${targets[@]}"; do
  log=build/tsan/$target.log
  TSAN_OPTIONS="halt_on_error=1 ${TSAN_OPTIONS:-}" "build/tsan/$target" > "$log" 2>&1 || {
    tail -n 60 "$log"
    failed=$((failed + 1))
  }
  passed=$((passed + $(grep -c '^\[       OK \]' "$log" || true)))
  skipped=$((skipped + $(grep -cE '^\[  SKIPPED \] .*\(' "$log" || true)))
done
echo "$passed passed, $failed failed, $skipped skipped"
[[ $failed -eq 0 ]]
