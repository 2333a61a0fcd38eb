#!/usr/bin/env bash
# Formatting, include directions and clang-tidy.
#
#   scripts/lint.sh quick     no clang-tidy
#   scripts/lint.sh all       clang-tidy over every source file
#   scripts/lint.sh changed   over those changed in the last day, the latest first, for about MOEWE_TIDY_SECONDS (240)
#   scripts/lint.sh tidy      the same, clang-tidy alone
#
# With clang-tidy it ends with "N passed, N failed, N skipped": files, and one for formatting and includes if bad.
# Skipped are those that the time did not suffice for.
set -uo pipefail
cd "$(dirname "$0")/.."
scope=${1:-changed}
budget=${MOEWE_TIDY_SECONDS:-240}
failed=0

if [[ $scope != tidy ]]; then
  mapfile -t sources < <(git ls-files '*.cc' '*.h' | grep -v '^tests/golden/')
  clang-format-19 --dry-run -Werror "${sources[@]}" || failed=1
  python3 scripts/check_includes.py || failed=1
fi

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

# check FILE...: files of one layer, read as one, because the headers take most of the time; one by one where that does
# not compile. Prints "ok FILE", or what was found and "bad FILE".
check() {
  local file unit log
  if (($# > 1)); then
    unit=$PWD/$tidy/unit-$(cksum <<< "$*" | cut -d' ' -f1).cc
    for file in "$@"; do echo "#include \"$PWD/$file\""; done > "$unit"
    log=$(clang-tidy-19 --quiet --checks=-bugprone-suspicious-include "$unit" -- $(flags "$1") 2> /dev/null)
    if [[ $? -eq 0 ]]; then
      printf 'ok %s\n' "$@"
      return
    fi
    for file in "$@"; do check "$file"; done
  else
    log=$(clang-tidy-19 --quiet -p "$tidy" "$1" 2> /dev/null) && echo "ok $1" || printf '%s\nbad %s\n' "$log" "$1"
  fi
}

# How FILE is compiled, without the compiler, its output and its source.
flags() {
  python3 - "$tidy/compile_commands.json" "$PWD/$1" << 'END'
import json, shlex, sys
command = next(e["command"] for e in json.load(open(sys.argv[1])) if e["file"] == sys.argv[2])
words = shlex.split(command)[1:]
print(*(shlex.quote(w) for w in words[: words.index("-o")] if w != "-Werror"))
END
}
export -f check flags

# Files of one layer up to eight at a time; Highway's, which include themselves, and those with options of their own alone.
batches() {
  printf '%s\n' "$@" | awk -F/ '
    function flush(l) { if (n[l]) print batch[l]; n[l] = 0; batch[l] = "" }
    $2 == "kernels" || $2 == "quant" || /uring_reader|verb_/ { print; next }
    { batch[$2] = batch[$2] (n[$2] ? " " : "") $0; if (++n[$2] == 8) flush($2) }
    END { for (l in n) flush(l) }'
}

log=$tidy/found.log
: > "$log"
mapfile -t work < <(batches "${files[@]}")
start=$SECONDS
for ((i = 0; i < ${#work[@]}; i += $(nproc))); do
  if ((SECONDS - start > budget)); then break; fi
  printf '%s\n' "${work[@]:i:$(nproc)}" | xargs -P"$(nproc)" -I{} bash -c 'check $1' _ {} | tee -a "$log" | grep -v '^ok '
done
passed=$(grep -c '^ok ' "$log")
bad=$(grep -c '^bad ' "$log")
skipped=$((${#files[@]} - passed - bad))
((skipped == 0)) || echo "clang-tidy: no time for $skipped of ${#files[@]} changed files"
bad=$((bad + failed))
echo "$passed passed, $bad failed, $skipped skipped"
((bad == 0))
