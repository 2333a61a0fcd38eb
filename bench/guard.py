#!/usr/bin/env python3
"""Have kernels become slower? Compares what a few dtypes reach of a scan of the same bytes with what is stored.

    guard.py [--moewe F] [--rounds 3]      says what fell below 90 % of bench/guard.json; never fails because of it
    guard.py --store                       writes what it measured there instead, for this instruction set

Every figure is a ratio of one run, since a machine's memory changes from minute to minute: decoding against the scan
that takes turns with it, and prefill (tokens a second) for every GB/s of that scan. Medians of the rounds, in which the
dtypes take turns.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), ".."))
STORED = os.path.join(ROOT, "bench", "guard.json")
DTYPES = ["q4tp", "q4t", "q8", "f16", "vbit"]
ENOUGH = 0.9


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moewe", default=os.path.join(ROOT, "build", "release", "moewe"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--store", action="store_true")
    return parser.parse_args()


def bench(moewe, *arguments):
    command = [moewe, "bench", *arguments, "--memory", "all", "--json", "--quiet", "-p", "256", "-n", "32", "-d", "32", "-r", "1"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def measure(args, folder):
    """{dtype: {"decode": share of the scan, "prefill": tokens for every GB scanned}}, and the instruction set."""
    files = {dtype: os.path.join(folder, dtype + ".cmf") for dtype in DTYPES}
    runs = {dtype: [] for dtype in DTYPES}
    for dtype, file in files.items():
        # Experts of one layer, 128 of them, are more than caches hold.
        bench(args.moewe, "--shape", "qwen3-30b-a3b", "--layers", "1", "--vocab", "4096", "--quant", dtype, "--out", file)
    for _ in range(args.rounds):
        for dtype, file in files.items():
            runs[dtype].append(bench(args.moewe, file))
    result = {}
    for dtype, reports in runs.items():
        scans = [report["scan"]["bytes_per_s"] for report in reports]
        decode = [report["decode"]["bytes_per_s"] / scan for report, scan in zip(reports, scans)]
        prefill = [report["prefill"]["tokens_per_s"] / scan * 1e9 for report, scan in zip(reports, scans)]
        result[dtype] = {"decode": round(statistics.median(decode), 3), "prefill": round(statistics.median(prefill), 1)}
    return result, runs[DTYPES[0]][0]["isa"]


def main():
    args = parse()
    stored = {}
    if os.path.exists(STORED):
        with open(STORED) as file:
            stored = json.load(file)
    with tempfile.TemporaryDirectory(dir=os.path.dirname(args.moewe)) as folder:
        measured, isa = measure(args, folder)
    if args.store:
        stored[isa] = measured
        with open(STORED, "w") as file:
            json.dump(stored, file, indent=2, sort_keys=True)
            file.write("\n")
    before = stored.get(isa, {})
    if not before:
        print(f"bench-guard: nothing is stored for {isa}")
    fell = 0
    for dtype, figures in measured.items():
        for name, value in figures.items():
            old = before.get(dtype, {}).get(name)
            low = old is not None and value < ENOUGH * old
            fell += low
            print(f"{dtype:6} {name:8} {value:8.3f}  stored {old if old is not None else '-':>8}{'  FELL' if low else ''}")
    print(f"bench-guard: {fell} of {2 * len(measured)} figures below {ENOUGH:.0%} of what is stored for {isa}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
