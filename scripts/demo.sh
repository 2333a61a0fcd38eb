#!/usr/bin/env bash
# The two-minute tour: converts the demonstration model to one file and lets it speak.
set -euo pipefail
cd "$(dirname "$0")/.."
moewe=build/release/moewe
file=build/demo.cmf

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }

if [[ ! -f $file || models/demo/model.safetensors -nt $file || $moewe -nt $file ]]; then
  say "\$ moewe convert models/demo $file --quant q4tp"
  $moewe convert models/demo "$file" --quant q4tp
fi
say "\$ moewe info $file"
$moewe info "$file"

say "\$ moewe run $file --raw --greedy -n 120 -p 'Once upon a time, in a deep forest, there lived'"
$moewe run "$file" --raw --greedy -n 120 -p 'Once upon a time, in a deep forest, there lived' --stats

for question in "Write a Python function that returns the square of a number." \
  "What is the capital of France?" "Who are you?" "Count from 3 to 9." "Is a whale a fish?"; do
  say "\$ moewe run $file --greedy -p '$question'"
  $moewe run "$file" --greedy -p "$question"
done

say "Go on yourself:  $moewe run $file -p 'Tell me a story.'"
