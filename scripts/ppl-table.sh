#!/usr/bin/env bash
# What each dtype costs: size, bits a weight and perplexity of the demonstration model on its held-out
# texts, as the Markdown table of docs/performance.md.
#
#   scripts/ppl-table.sh [f32|int8|both] [DTYPE...]     default: both kinds of activations, every dtype
#
# prose.txt and code.txt are third parties': they are looked for under MOEWE_SHARED (../shared) and
# left out where they are absent. WINDOWS=6 scores only the first windows of each text. A dtype that `convert --quant` does not offer is left out, too.
set -euo pipefail
cd "$(dirname "$0")/.."
moewe=${MOEWE:-build/release/moewe}
model=models/demo
modes=${1:-both}
[[ $modes == both ]] && modes="f32 int8"
shift || true
dtypes=("$@")
((${#dtypes[@]})) || dtypes=(f32 bf16 f16 q8 q8_2f q4 q4t q4tp vbit vbit_ro q1 q1s q1t)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

texts=()
for name in chat tales prose code; do
  for folder in "$model/eval" "${MOEWE_SHARED:-../shared}/demo-model/eval"; do
    [[ -f $folder/$name.txt ]] && texts+=("$folder/$name.txt") && break
  done
done

# field NAME: the number behind "NAME": in a JSON object on stdin.
field() { sed -nE "s/.*\"$1\":([-0-9.e+]+).*/\1/p"; }

header='| dtype | file | bits a weight | activations |' rule='| --- | --- | --- | --- |'
for text in "${texts[@]}"; do
  header+=" $(basename "$text" .txt) |" rule+=' --- |'
done
printf '%s\n%s\n' "$header" "$rule"
for dtype in "${dtypes[@]}"; do
  file=$work/$dtype.cmf
  status=0
  made=$($moewe convert "$model" "$file" --quant "$dtype" --quiet --json 2> "$work/problem") || status=$?
  if [[ $status -eq 2 ]]; then
    echo "left out: $(cat "$work/problem")" >&2
    continue
  fi
  [[ $status -eq 0 ]] || { cat "$work/problem" >&2; exit "$status"; }
  size=$(awk -v b="$(field bytes <<< "$made")" 'BEGIN {printf "%.2f MB", b / 1e6}')
  bits=$(awk -v b="$(field bits_per_weight <<< "$made")" 'BEGIN {printf "%.2f", b}')
  for mode in $modes; do
    row="| $dtype | $size | $bits | $mode |"
    for text in "${texts[@]}"; do
      result=$($moewe ppl "$file" "$text" --activations "$mode" --max-windows "${WINDOWS:-0}" \
        --quiet --json)
      row+=$(awk -v p="$(field ppl <<< "$result")" 'BEGIN {printf " %.4f |", p}')
    done
    echo "$row"
  done
  rm -f "$file"
done
