#!/usr/bin/env bash
# Builds the test programs of some layers under a sanitizer and runs each as one process, as many at a time as there
# are cores. Cases that GTEST_FILTER leaves out count as skipped.
#
#   scripts/sanitize.sh tsan platform experts engine
#   scripts/sanitize.sh asan base platform quant formats kernels text experts model engine api convert
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
export build=build/$1
shift
[[ -f $build/build.ninja ]] || cmake --preset "$preset"
targets=()
for layer in "$@"; do
  if [[ -n "$(find "src/$layer" -name '*_test.cc' 2> /dev/null)" ]]; then targets+=("${layer}_test"); fi
done
cmake --build "$build" --target "${targets[@]}"

export TSAN_OPTIONS="halt_on_error=1 ${TSAN_OPTIONS:-}" UBSAN_OPTIONS="print_stacktrace=1 ${UBSAN_OPTIONS:-}"
# One program; prints the end of what it said if it fails, and what it took.
run_one() {
  local log=$build/$1.log start=$SECONDS
  rm -f "$log.failed"
  timeout 1200 "$build/$1" > "$log" 2>&1 || { touch "$log.failed"; tail -n 60 "$log"; }
  echo "$1: $((SECONDS - start)) s"
}
export -f run_one
printf '%s\n' "${targets[@]}" | xargs -P "$(nproc)" -I{} bash -c 'run_one {}'

passed=0 failed=0 skipped=0
for target in "${targets[@]}"; do
  log=$build/$target.log
  # A program that ends early has failed, whatever its cases say.
  if [[ -e $log.failed ]]; then failed=$((failed + 1)); fi
  passed=$((passed + $(grep -c '^\[       OK \]' "$log" || true)))
  skipped=$((skipped + $(grep -cE '^\[  SKIPPED \] .*\(' "$log" || true)))
  if [[ -n ${GTEST_FILTER:-} ]]; then
    left_out=$(($(GTEST_FILTER='*' "$build/$target" --gtest_list_tests | grep -c '^  ') -
      $("$build/$target" --gtest_list_tests | grep -c '^  ' || true)))
    ((left_out == 0)) || echo "$target: $left_out cases left out by GTEST_FILTER='$GTEST_FILTER'"
    skipped=$((skipped + left_out))
  fi
done
echo "$passed passed, $failed failed, $skipped skipped"
[[ $failed -eq 0 ]]
