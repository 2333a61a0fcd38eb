#!/usr/bin/env bash
# Formatting, include directions and clang-tidy.
#
#   scripts/lint.sh quick     no clang-tidy
#   scripts/lint.sh all       clang-tidy over every source file
#   scripts/lint.sh changed   over those changed in the last day, the latest first, for about MOEWE_TIDY_SECONDS (240)
#
# With clang-tidy it ends with "N passed, N failed, N skipped": files, and one for formatting and includes if bad.
# Skipped are those that the time did not suffice for.
set -uo pipefail
cd "$(dirname "$0")/.."
scope=${1:-changed}
budget=${MOEWE_TIDY_SECONDS:-240}
failed=0

mapfile -t sources < <(git ls-files '*.cc' '*.h' | grep -v '^tests/golden/')
clang-format-19 --dry-run -Werror "${sources[@]}" || failed=1
python3 scripts/check_includes.py || failed=1

[[ $scope == quick ]] && exit $failed

if [[ $scope == all ]]; then
  mapfile -t files < <(git ls-files 'src/*.cc' | grep -v '_test\.cc$')
  budget=86400
else
  # The latest first, each once, if it still is there.
  mapfile -t files < <(git log --since='1 day ago' --format= --name-only --diff-filter=d -- 'src/*.cc' |
    grep -v '_test\.cc$' | awk '!seen[$0]++' | while read -r file; do [[ ! -e $file ]] || echo "$file"; done)
fi

# A tree of its own, only configured, for the commands that files are compiled with.
export tidy=build/tidy
mkdir -p "$tidy"
cmake --preset release -B "$tidy" -DMOEWE_UNITY=0 > "$tidy/configure.log" 2>&1 || { cat "$tidy/configure.log"; exit 1; }

# Prints "ok FILE", or what was found and "bad FILE".
check() {
  local found
  if found=$(clang-tidy-19 --quiet -p "$tidy" "$1" 2> /dev/null); then echo "ok $1"; else printf '%s\nbad %s\n' "$found" "$1"; fi
}
export -f check

log=$tidy/found.log
: > "$log"
start=$SECONDS
taken=0
while ((taken < ${#files[@]} && SECONDS - start <= budget)); do
  batch=("${files[@]:taken:8}")
  taken=$((taken + ${#batch[@]}))
  printf '%s\n' "${batch[@]}" | xargs -P"$(nproc)" -I{} bash -c 'check {}' | tee -a "$log" | grep -v '^ok '
done
passed=$(grep -c '^ok ' "$log")
bad=$((taken - passed)) # also those whose check died
skipped=$((${#files[@]} - taken))
((skipped == 0)) || echo "clang-tidy: no time for $skipped of ${#files[@]} files"
bad=$((bad + failed))
echo "$passed passed, $bad failed, $skipped skipped"
((bad == 0))
