#!/bin/sh
# Files that convert makes, verified by the existing runtime (installed from its registry if absent), and files with
# experts or neurons cut out, compared with what it cuts and computes. Not part of `make test`. Usage: scripts/check-with-cortiq.sh [MODEL...]; default: the demo model.
set -eu
cd "$(dirname "$0")/.."
moewe=${MOEWE:-build/release/moewe}
cortiq=${CORTIQ:-$(command -v cortiq || echo /opt/cortiq/bin/cortiq)}
if [ ! -x "$cortiq" ]; then
  cargo install cortiq-cli --version 0.5.100 --locked
  cortiq=${CARGO_HOME:-$HOME/.cargo}/bin/cortiq
fi
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
[ $# -gt 0 ] || set -- models/demo
failed=0
for model in "$@"; do
  for quant in f32 f16 bf16 q8 q8_2f q4 q4t q4tp; do
    "$moewe" convert "$model" "$out/m.cmf" --quant "$quant" --quiet
    if "$cortiq" verify "$out/m.cmf" > "$out/log" 2>&1 && "$cortiq" info "$out/m.cmf" >> "$out/log" 2>&1; then
      echo "ok     $model $quant"
    else
      failed=1
      echo "FAILED $model $quant"
      cat "$out/log"
    fi
  done
  # Rewrites of what was made last.
  "$moewe" requant "$out/m.cmf" "$out/r.cmf" --quant q8_2f --quiet
  "$moewe" compact "$out/m.cmf" "$out/c.cmf" --quiet
  for file in r c; do
    if "$cortiq" verify "$out/$file.cmf" > "$out/log" 2>&1; then
      echo "ok     $model rewritten ($file)"
    else
      failed=1
      echo "FAILED $model rewritten ($file)"
      cat "$out/log"
    fi
  done
done

# Cut files: the same tensors as its own, the same perplexity of a text.
golden=tests/golden/cmf/files
report() { # 0|1 what
  if [ "$1" = 0 ]; then
    echo "ok     $2"
  else
    failed=1
    echo "FAILED $2"
    cat "$out/log"
  fi
}
same_tensors() { # ours theirs what
  "$cortiq" verify "$1" > "$out/log" 2>&1 && "$moewe" diff --json "$1" "$2" > "$out/diff" 2>> "$out/log" &&
    python3 -c 'import json,sys; sys.exit(json.load(open(sys.argv[1]))["tensors"] != [])' "$out/diff"
  report $? "$3"
}
ppl() { # moewe|cortiq file text: two decimals
  case $1 in
    moewe) "$moewe" ppl "$2" "$3" --window 1024 --activations f32 --json --quiet | sed 's/.*"ppl":\([0-9.]*\).*/\1/' ;;
    cortiq) "$cortiq" ppl "$2" --file "$3" 2> "$out/log" | sed -n 's/.*[Pp][Pp][Ll][^0-9]*\([0-9][0-9.]*\).*/\1/p' | head -1 ;;
  esac | awk '{ printf "%.2f", $1 }'
}
set +e
stats=$golden/moe_qwen3_q4tp.moe_stats.json
"$moewe" experts defrag $golden/moe_qwen3_q4tp.cmf "$out/a.cmf" --stats $stats --cover 0.7 --quiet
"$cortiq" moe-defrag $golden/moe_qwen3_q4tp.cmf --stats $stats --cover 0.7 --output "$out/b.cmf" > "$out/log" 2>&1
same_tensors "$out/a.cmf" "$out/b.cmf" "experts cut out"
"$moewe" experts defrag "$out/b.cmf" "$out/c.cmf" --cover 0.5 --quiet
"$cortiq" moe-defrag "$out/a.cmf" --cover 0.5 --output "$out/d.cmf" > "$out/log" 2>&1
same_tensors "$out/c.cmf" "$out/d.cmf" "experts cut out again, each from the other's file"

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
  same_tensors "$out/a.cmf" "$out/b.cmf" "neurons cut out, $quant"
done

head -c 2000 models/demo/eval/chat.txt > "$out/text"
"$moewe" convert models/demo "$out/m.cmf" --quant q8 --quiet
"$moewe" experts stats "$out/m.cmf" "$out/text" --out "$out/s.json" --quiet
"$moewe" experts defrag "$out/m.cmf" "$out/a.cmf" --stats "$out/s.json" --cover 0.9 --quiet
ours=$(ppl moewe "$out/a.cmf" "$out/text")
theirs=$(ppl cortiq "$out/a.cmf" "$out/text")
[ "$ours" = "$theirs" ]
report $? "perplexity of a cut file: $ours, existing runtime $theirs"
exit $failed
