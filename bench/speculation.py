#!/usr/bin/env python3
"""What speculation gains: one model, prompts from files, settings of --speculate in turn.

    bench/speculation.py MODEL PROMPT.txt... [--runs 5] [--tokens 300] [--settings off,auto,4,8]

Every setting must give the same tokens; the program exits with 1 if one does not. Speeds are medians (least to most).
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def run(args, prompt, setting):
    command = [args.program, "run", args.model, "--raw", "-f", prompt, "--json", "--quiet", "--ignore-eos",
               "-n", str(args.tokens), "--seed", "1", "--temp", str(args.temp), "--speculate", setting]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("prompts", nargs="+")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=300)
    parser.add_argument("--temp", type=float, default=0.0)
    parser.add_argument("--settings", default="off,auto,4,8")
    parser.add_argument("--program", default=os.path.join(ROOT, "build/release/moewe"))
    args = parser.parse_args()
    settings = args.settings.split(",")
    print("| text | | decode, tok/s | beside off | drafted | right |\n| --- | --- | --- | --- | --- | --- |")
    for prompt in args.prompts:
        answers = {setting: [] for setting in settings}
        for _ in range(args.runs):
            for setting in settings:
                answers[setting].append(run(args, prompt, setting))
        ids = answers[settings[0]][0]["ids"]
        for setting in settings:
            if any(answer["ids"] != ids for answer in answers[setting]):
                sys.exit(f"{prompt}: --speculate {setting} gave other tokens")
            speeds = [answer["timings"]["decode_tokens_per_s"] for answer in answers[setting]]
            # Runs of one round are neighbours in time: their ratio is what compares.
            ratios = [answer["timings"]["decode_tokens_per_s"] / base["timings"]["decode_tokens_per_s"]
                      for answer, base in zip(answers[setting], answers[settings[0]])]
            said = [answer["speculation"] for answer in answers[setting]]
            print(f"| {os.path.basename(prompt)} | {setting} | {statistics.median(speeds):.0f} "
                  f"({min(speeds):.0f} to {max(speeds):.0f}) | {statistics.median(ratios):.2f} "
                  f"({min(ratios):.2f} to {max(ratios):.2f}) "
                  f"| {statistics.median(s['drafted'] for s in said):.0f} "
                  f"| {statistics.median(s['accepted'] for s in said):.0f} |", flush=True)


if __name__ == "__main__":
    main()
