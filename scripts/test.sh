#!/usr/bin/env bash
# Runs the tests of one build folder and prints one closing line, "N passed, N failed, N skipped".
#
#   scripts/test.sh build/release              every test, the Rust bridge's own included
#   scripts/test.sh build/asan 'regex'         only the C++ tests whose name matches
#
# Skipped tests are listed (they need third-party files or another CPU; the log says which).
set -uo pipefail
build=$1
filter=${2:-}
log=$build/test.log

ctest --test-dir "$build" --output-on-failure --timeout 600 -j "$(nproc)" ${filter:+-R "$filter"} > "$log" 2>&1
status=$?
grep -vE '^ *[0-9]+/[0-9]+ Test +#.*Passed|^ +Start +[0-9]+:|^Test project|^Internal ctest|^ *$' "$log" | head -n 400
total=$(sed -nE 's/.*tests? failed out of ([0-9]+)$/\1/p' "$log" | tail -n1)
failed=$(sed -nE 's/.*, ([0-9]+) tests? failed out of.*/\1/p' "$log" | tail -n1)
skipped=$(grep -cE '\*\*\*Skipped' "$log")
if [[ -z "$total" ]]; then
  echo "no test ran in $build" >&2
  total=1 failed=1 status=1
fi
passed=$((total - failed - skipped))

# A run that failed without a counted failure (a crash of the runner, a compile error) is a failure too.
[[ $status -ne 0 && $failed -eq 0 ]] && failed=1
echo "$passed passed, $failed failed, $skipped skipped"
[[ $failed -eq 0 ]]
