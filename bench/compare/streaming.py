#!/usr/bin/env python3
"""Models bigger than memory, side by side: moewe and llama.cpp inside the same memory limit, in turns.

Installs llama.cpp and makes the models where they are absent. Prints a Markdown table; everything goes to
streaming.json in --models.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

from limited import drop_cached_pages, run
from peers import Peers
from shapes import Shape

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--vocab", type=int, default=32768)
    parser.add_argument("--quant", default="q4t")
    parser.add_argument("--share", type=float, default=0.6, help="memory limit as a share of the .cmf")
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--moewe", default=os.path.join(ROOT, "build/release/moewe"))
    parser.add_argument("--peers", default=os.path.join(ROOT, "build/peers"))
    parser.add_argument("--models", default=os.path.join(ROOT, "build/compare"))
    return parser.parse_args()


def make_models(args):
    """The peers, and files of the same weights."""
    peers = Peers(args.peers).install()
    if "llama.cpp" in peers.missing:
        sys.exit("nothing to compare with")
    shape = Shape("qwen3-30b-a3b", args.layers, args.vocab, args.models, args.moewe, peers)
    cmf, gguf = shape.cmf(args.quant), shape.gguf("Q4_0")
    shape.drop_sources()
    return peers, cmf, gguf


def measured(limit, command, files):
    drop_cached_pages(*files)
    result, peak = run(limit, command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if result.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{result.stderr}")
    return json.loads(result.stdout), peak


def run_moewe(args, limit, cmf):
    # The budget leaves the group room for what the kernel charges beside the process's own memory.
    command = [args.moewe, "bench", cmf, "--json", "--quiet", "--memory", str(limit), "-p", str(args.prompt), "-n",
               str(args.tokens), "-d", "128", "-r", "1"]
    result, peak = measured(limit, command, [cmf])
    return {"prefill": result["prefill"]["tokens_per_s"], "decode": result["decode"]["tokens_per_s"], "peak": peak,
            "bench": result}


def run_peer(args, llama_bench, limit, gguf):
    common = [llama_bench, "-m", gguf, "-lm", "mmap", "--repack", "0", "-t", str(os.cpu_count()), "-r", "1", "-o",
              "json"]
    prefill, first = measured(limit, common + ["-p", str(args.prompt), "-n", "0"], [gguf])
    decode, second = measured(limit, common + ["-p", "0", "-n", str(args.tokens), "-d", "128"], [gguf])
    return {"prefill": prefill[0]["avg_ts"], "decode": decode[0]["avg_ts"], "peak": max(first, second)}


def main():
    args = parse()
    peers, cmf, gguf = make_models(args)
    size = os.path.getsize(cmf)
    limit = int(size * args.share) // 4096 * 4096
    runs = {"moewe": [], "llama.cpp": []}
    for i in range(args.runs):
        runs["moewe"].append(run_moewe(args, limit, cmf))
        runs["llama.cpp"].append(run_peer(args, peers.llama_bench, limit, gguf))
        print(f"run {i + 1} of {args.runs}: " + ", ".join(
            f"{name} {r[-1]['prefill']:.1f} / {r[-1]['decode']:.2f}" for name, r in runs.items()), file=sys.stderr)
    medians = {name: {key: statistics.median(r[key] for r in rows) for key in ("prefill", "decode", "peak")}
               for name, rows in runs.items()}
    print(f"{os.path.basename(cmf)}: {size / 1e6:.0f} MB, held to {limit / 1e6:.0f} MB; medians of {args.runs}\n")
    print(f"| program | prefill {args.prompt}, tok/s | decode {args.tokens}, tok/s | peak of the group |")
    print("| --- | --- | --- | --- |")
    for name, row in medians.items():
        print(f"| {name} | {row['prefill']:.1f} | {row['decode']:.2f} | {row['peak'] / 1e6:.0f} MB |")
    ratio = {key: medians["moewe"][key] / medians["llama.cpp"][key] for key in ("prefill", "decode")}
    print(f"| ratio | {ratio['prefill']:.2f} | {ratio['decode']:.2f} | |")
    with open(os.path.join(args.models, "streaming.json"), "w") as file:
        json.dump({"args": vars(args), "cmf_bytes": size, "limit": limit, "runs": runs, "medians": medians,
                   "ratio": ratio}, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
