#!/bin/sh
# Files that moewe makes, before the existing runtime (installed from its registry if absent): every dtype, rewritten, masked, with a
# skill, in shards, signed, a skill cut off and applied, experts or neurons cut out. It verifies each, and where there is a text its perplexity must be moewe's.
# Not part of `make test`. Usage: scripts/check-with-cortiq.sh [MODEL [TEXT]]; default: the demo model and its tales.
set -eu
cd "$(dirname "$0")/.."
moewe=${MOEWE:-build/release/moewe}
cortiq=${CORTIQ:-$(command -v cortiq || echo /opt/cortiq/bin/cortiq)}
if [ ! -x "$cortiq" ]; then
  cargo install cortiq-cli --version 0.5.100 --locked
  cortiq=${CARGO_HOME:-$HOME/.cargo}/bin/cortiq
fi
model=${1:-models/demo}
text=${2:-models/demo/eval/tales.txt}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
head -c 4000 "$text" > "$out/text"
failed=0

# ok NAME COMMAND...: says whether the command succeeds.
ok() {
  name=$1
  shift
  if "$@" > "$out/log" 2>&1; then
    echo "ok     $name"
  else
    failed=1
    echo "FAILED $name"
    cat "$out/log"
  fi
}

# Perplexities of one window that agree within 2 %: both round activations, not in the same way.
same_ppl() {
  file=$1
  shift
  theirs=$(RUST_LOG=error "$cortiq" ppl "$file" --file "$out/text" --tokens 512 "$@" | sed -n 's/.*PPL = \([0-9.]*\).*/\1/p' | tail -1)
  ours=$("$moewe" ppl "$file" "$out/text" --window 512 --max-windows 1 --quiet "$@" | sed -n 's/perplexity \([0-9.]*\).*/\1/p')
  echo "moewe $ours, cortiq $theirs"
  awk -v a="$ours" -v b="$theirs" 'BEGIN { exit !(a > 0 && b > 0 && a / b < 1.02 && b / a < 1.02) }'
}

for quant in f32 f16 bf16 q8 q8_2f q4 q4t q4tp vbit; do
  "$moewe" convert "$model" "$out/$quant.cmf" --quant "$quant" --quiet
  ok "$quant verified" "$cortiq" verify "$out/$quant.cmf"
  ok "$quant shown" "$cortiq" info "$out/$quant.cmf"
  ok "$quant perplexity" same_ppl "$out/$quant.cmf"
done
"$moewe" requant "$out/q4tp.cmf" "$out/requant.cmf" --quant q8_2f --quiet
"$moewe" compact "$out/q4tp.cmf" "$out/compact.cmf" --quiet
for file in requant compact; do ok "$file verified" "$cortiq" verify "$out/$file.cmf"; done

cp "$out/q8.cmf" "$out/masked.cmf"
printf '{"name": "few", "heads": {"0": {"dead": [0]}}}' > "$out/mask.json"
"$moewe" mask add "$out/masked.cmf" "$out/mask.json" --quiet
ok "masked verified" "$cortiq" verify "$out/masked.cmf"
ok "masked listed" sh -c "'$cortiq' masks '$out/masked.cmf' | grep -q few"

# The skill is the model in another dtype: every matrix differs.
cp "$out/q8.cmf" "$out/skilled.cmf"
"$moewe" skill add "$out/skilled.cmf" --donor "$out/q4t.cmf" --id four --dtype q4t --texts "$out/text" --quiet
ok "skilled verified" "$cortiq" verify "$out/skilled.cmf"
ok "skilled listed" sh -c "'$cortiq' skill list '$out/skilled.cmf' | grep -q four"
ok "skilled routed" "$cortiq" route "$out/skilled.cmf" --prompt "Once upon a time"
ok "skilled perplexity" same_ppl "$out/skilled.cmf" --skill four
"$moewe" compact "$out/skilled.cmf" "$out/skilled-compact.cmf" --quiet
ok "skilled and compacted" "$cortiq" verify "$out/skilled-compact.cmf"

mkdir "$out/set"
size=$(wc -c < "$out/skilled.cmf")
"$moewe" shard "$out/skilled.cmf" "$out/set/m.cmf" --max $((size / 3 + 1000000)) --quiet
for shard in "$out"/set/*.cmf; do ok "$(basename "$shard") verified" "$cortiq" verify "$shard"; done
first=$(ls "$out"/set/*.cmf | head -1)
ok "shards perplexity" same_ppl "$first" --skill four
"$moewe" skill remove "$out/skilled.cmf" four --quiet
ok "skill removed" "$cortiq" verify "$out/skilled.cmf"

"$moewe" sign "$out/q8.cmf" --key "$out/key" --new-key > /dev/null 2>&1
ok "signed" sh -c "'$cortiq' verify '$out/q8.cmf' | grep -q 'signature valid'"

"$moewe" convert "$model" "$out/specialist.cmf" --quant q8 --tensor '*.layers.0.*=q4t' --quiet
"$moewe" skill export "$out/specialist.cmf" "$out/s.skill.cmf" --base "$out/q8.cmf" --quiet
ok "standalone skill verified" "$cortiq" verify "$out/s.skill.cmf"
ok "standalone skill applied by cortiq" "$cortiq" skill apply "$out/q8.cmf" "$out/s.skill.cmf" -o "$out/theirs.cmf"
"$moewe" skill apply "$out/q8.cmf" "$out/s.skill.cmf" "$out/ours.cmf" --quiet
ok "applied verified" "$cortiq" verify "$out/ours.cmf"
ok "cortiq's skill exported" "$cortiq" skill export "$out/specialist.cmf" --base "$out/q8.cmf" --id s -o "$out/t.skill.cmf"
"$moewe" skill apply "$out/q8.cmf" "$out/t.skill.cmf" "$out/third.cmf" --quiet
for file in theirs ours third; do
  ok "$file has the specialist's tensors" sh -c \
    "'$moewe' diff --json '$out/$file.cmf' '$out/specialist.cmf' | grep -q '\"tensors\":\[\]'"
done

# same_tensors OURS THEIRS: the other file is good to it, and both have the same tensors.
same_tensors() {
  "$cortiq" verify "$1" && "$moewe" diff --json "$1" "$2" | grep -q '"tensors":\[\]'
}

golden=tests/golden/cmf/files
stats=$golden/moe_qwen3_q4tp.moe_stats.json
"$moewe" experts defrag $golden/moe_qwen3_q4tp.cmf "$out/a.cmf" --stats $stats --cover 0.7 --quiet
"$cortiq" moe-defrag $golden/moe_qwen3_q4tp.cmf --stats $stats --cover 0.7 --output "$out/b.cmf" > "$out/log" 2>&1
ok "experts cut out" same_tensors "$out/a.cmf" "$out/b.cmf"
"$moewe" experts defrag "$out/b.cmf" "$out/c.cmf" --cover 0.5 --quiet
"$cortiq" moe-defrag "$out/a.cmf" --cover 0.5 --output "$out/d.cmf" > "$out/log" 2>&1
ok "experts cut out again, each from the other's file" same_tensors "$out/c.cmf" "$out/d.cmf"
"$moewe" experts stats "$out/q8.cmf" "$out/text" --out "$out/s.json" --quiet
"$moewe" experts defrag "$out/q8.cmf" "$out/cut.cmf" --stats "$out/s.json" --cover 0.9 --quiet
ok "perplexity with experts cut out" same_ppl "$out/cut.cmf"

python3 - "$out" <<'END'
import os, sys
import numpy
keep = numpy.random.default_rng(1).random((4, 96)) < 0.6
os.makedirs(sys.argv[1] + "/dir", exist_ok=True)
numpy.save(sys.argv[1] + "/dir/ffn_keep.npy", keep)
END
for quant in q8 q8_2f q4t q4tp; do
  "$moewe" convert tests/golden/hf/qwen3 "$out/a.cmf" --defrag "$out/dir" --quant $quant --quiet
  "$cortiq" convert --model tests/golden/hf/qwen3 --defrag "$out/dir" --quant $quant --output "$out/b.cmf" \
    > "$out/log" 2>&1
  ok "neurons cut out, $quant" same_tensors "$out/a.cmf" "$out/b.cmf"
done
exit $failed
