#!/usr/bin/env python3
"""moewe beside llama.cpp, cortiq and the machine's own limits: one table, each figure beside its target.

    bench/compare/table.py [--only decode,gemv] [--turns 5] [--quick]

Installs the peers and makes the models where they are absent (some 25 GB in --models while they are made). Writes
OUT.md and OUT.json and prints the former.
"""
import argparse
import os
import sys
import time

import against_cortiq
import against_llama
import converting
import kernels
import machine
import one_and_two
import opening
import report
from peers import Peers
from setting import Setting

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
BUILD = os.path.join(ROOT, "build")
ROWS = {"llama": against_llama, "cortiq": against_cortiq, "kernels": kernels, "threads": one_and_two,
        "opening": opening, "converting": converting}
NEED_PEERS = {"llama", "cortiq", "threads", "converting"}  # all models are made with gguf's Python


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="some of " + ",".join(ROWS), default=",".join(ROWS))
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quant", default="q4tp", help="of moewe, beside llama.cpp")
    parser.add_argument("--quick", action="store_true", help="a tiny shape, one turn: to try the script")
    parser.add_argument("--peers", default=os.path.join(BUILD, "peers"))
    parser.add_argument("--models", default=os.path.join(BUILD, "compare"))
    parser.add_argument("--build", default=os.path.join(BUILD, "release"), help="where moewe and kernels_bench are")
    parser.add_argument("--out", help="without .md, .json; default: table in --models")
    args = parser.parse_args()
    unknown = set(args.only.split(",")) - set(ROWS)
    if unknown:
        parser.error(f"--only: no {', '.join(sorted(unknown))}; there are {', '.join(ROWS)}")
    return args


def main():
    args = parse()
    os.makedirs(args.models, exist_ok=True)
    wanted = args.only.split(",")
    peers = Peers(args.peers)
    if NEED_PEERS.intersection(wanted):
        peers.install()
        if "gguf" in peers.missing:
            sys.exit("no models without gguf")
    for program in "moewe", "kernels_bench":
        if not os.path.exists(os.path.join(args.build, program)):
            sys.exit(f"{program} is not in {args.build}: `make compare` builds it")
    setting = Setting(os.path.join(args.build, "moewe"), os.path.join(args.build, "kernels_bench"), peers, args.models,
                      args.quant, args.threads, 1 if args.quick else args.turns, args.quick)
    facts = machine.facts(setting, ROOT)
    load, sections, start = machine.load(), [], time.monotonic()
    for name in wanted:
        sections += ROWS[name].measure(setting)
        print(f"{name}: {time.monotonic() - start:.0f} s so far", file=sys.stderr)
    facts["Load"] = f"{load} before, {machine.load()} after; {(time.monotonic() - start) / 60:.0f} minutes"
    print(report.write(args.out or os.path.join(args.models, "table"), "Beside other programs and the machine", facts,
                       sections))
    return 0


if __name__ == "__main__":
    sys.exit(main())
