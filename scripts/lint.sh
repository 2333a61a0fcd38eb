#!/usr/bin/env bash
# Formatting, include directions and clang-tidy.
#
#   scripts/lint.sh quick     no clang-tidy
#   scripts/lint.sh all       clang-tidy over every source file
#   scripts/lint.sh changed   over those changed in the last day, for at most MOEWE_TIDY_SECONDS
# Needs a configured build/release (for compile_commands.json).
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
  mapfile -t tidy < <(git ls-files 'src/*.cc' | grep -v '_test\.cc$')
  budget=86400
else
  since=$(git rev-list -1 --before='1 day ago' HEAD)
  [[ -n $since ]] || since=$(git hash-object -t tree /dev/null)
  mapfile -t tidy < <(git diff --name-only --diff-filter=d "$since" -- 'src/*.cc' | grep -v '_test\.cc$')
fi
start=$SECONDS
checked=0
for ((i = 0; i < ${#tidy[@]}; i += 4)); do
  if ((SECONDS - start > budget)); then break; fi
  batch=("${tidy[@]:i:4}")
  printf '%s\0' "${batch[@]}" |
    xargs -0 -n1 -P"$(nproc)" clang-tidy-19 -p build/release --quiet 2> /dev/null || failed=1
  checked=$((checked + ${#batch[@]}))
done
echo "clang-tidy: $checked of ${#tidy[@]} files checked"
exit $failed
