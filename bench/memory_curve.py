#!/usr/bin/env python3
"""Speed of a model over --memory, and the picture of it.

    memory_curve.py measure MODEL OUT.json [--shares 30,45,60,80,100] [--rounds 3] [--moewe F] [-n 32] [-p 512]
    memory_curve.py draw OUT.json CURVE.svg

Every round runs `moewe bench` once a budget, so that all budgets meet the machine as it is: figures are medians of the rounds.
A share is of the file's size; `min` is the least that runs. Each run is in a memory control group of its own (needs root):
limited to the budget (it must complete), and once more without a limit, whose peak must stay below the budget.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "compare"))
from limited import drop_cached_pages, run  # noqa: E402


def bench(args, budget, limit):
    drop_cached_pages(args.model)
    command = [args.moewe, "bench", args.model, "--json", "--quiet", "--memory", str(budget), "-p", str(args.p), "-n",
               str(args.n), "-d", "128", "-r", "1"]
    result, peak = run(limit, args.prefix.split() + command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if result.returncode != 0:
        return {"code": result.returncode, "peak": peak, "error": (result.stdout + result.stderr)[-500:]}
    report = json.loads(result.stdout)
    return {"code": 0, "peak": peak, "load": os.getloadavg()[0], "bench": report}


def least(args):
    """Of the context that bench runs with, and its standard chunk."""
    out = subprocess.run([args.moewe, "plan", args.model, "--json", "--memory", "min", "--ctx", str(max(args.p, 128 + args.n))],
                         check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(out)["total"]


def median(rows, *keys):
    values = []
    for row in rows:
        value = row.get("bench", {})
        for key in keys:
            value = value.get(key, {}) if isinstance(value, dict) else {}
        if isinstance(value, (int, float)):
            values.append(value)
    return statistics.median(values) if values else None


def measure(args):
    size = os.path.getsize(args.model)
    budgets = []
    for share in args.shares.split(","):
        budgets.append(least(args) if share == "min" else int(size * float(share) / 100) // 4096 * 4096)
    runs = {budget: {"limited": [], "free": []} for budget in budgets}
    unlimited = 1 << 40
    for i in range(args.rounds):
        for budget in budgets:
            runs[budget]["limited"].append(bench(args, budget, budget))
            if i == 0:
                runs[budget]["free"].append(bench(args, budget, unlimited))
            last = runs[budget]["limited"][-1]
            print(f"round {i + 1}, {budget / 1e6:.0f} MB: code {last['code']}, peak {last['peak'] / 1e6:.0f} MB", file=sys.stderr)
    points = []
    for budget, rows in runs.items():
        done = rows["limited"]
        points.append({
            "budget": budget, "share": budget / size,
            "completed": sum(row["code"] == 0 for row in done), "rounds": len(done),
            "peak_limited": max(row["peak"] for row in done), "peak_free": max(row["peak"] for row in rows["free"]),
            "decode": median(done, "decode", "tokens_per_s"), "prefill": median(done, "prefill", "tokens_per_s"),
            "predicted": median(done, "predicted", "tokens_per_s"), "achieved": median(done, "achieved"),
            "resident_rate": median(done, "predicted", "resident_rate"), "disk": median(done, "disk", "bytes_per_s"),
            "scan": median(done, "scan", "bytes_per_s"),
            "wait": median(done, "streaming", "decode", "wait_seconds"),
            "decode_seconds": median(done, "streaming", "decode", "seconds"),
            "load": statistics.median(row.get("load", 0) for row in done)})
    with open(args.out, "w") as file:
        json.dump({"model": os.path.basename(args.model), "bytes": size, "points": points, "runs": runs}, file, indent=1)
    table(points)


def table(points):
    number = lambda value, text: "-" if value is None else format(value, text)
    print("| budget | of the file | decode, tok/s | achieved / predicted | resident | disk | scan | prefill, tok/s | peak, limited / free |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for p in points:
        print(f"| {p['budget'] / 1e6:.0f} MB | {100 * p['share']:.0f} % | {number(p['decode'], '.1f')} | {number(p['achieved'], '.2f')} | "
              f"{number(p['resident_rate'], '.2f')} | {number(p['disk'] and p['disk'] / 1e9, '.2f')} GB/s | "
              f"{number(p['scan'] and p['scan'] / 1e9, '.1f')} GB/s | {number(p['prefill'], '.0f')} | "
              f"{p['peak_limited'] / 1e6:.0f} / {p['peak_free'] / 1e6:.0f} MB |")


WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 320, 56, 56, 24, 44


def draw(args):
    """Decode and what memory and disk allow (left axis), prefill (right axis) over the budget."""
    with open(args.out) as file:
        data = json.load(file)
    points = sorted((p for p in data["points"] if p["decode"]), key=lambda p: p["share"])
    most_share = max(p["share"] for p in points) * 1.02
    most_left = max(max(p["decode"], p["predicted"]) for p in points) * 1.1
    most_right = max(p["prefill"] for p in points) * 1.1
    x = lambda share: LEFT + (WIDTH - LEFT - RIGHT) * share / most_share
    y = lambda part: HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * part
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>']
    for i in range(6):
        level = y(i / 5)
        out.append(f'<path d="M{LEFT} {level:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        out.append(f'<text x="{LEFT - 6}" y="{level + 4:.1f}" text-anchor="end">{most_left * i / 5:.0f}</text>')
        out.append(f'<text x="{WIDTH - RIGHT + 6}" y="{level + 4:.1f}" fill="#888">{most_right * i / 5:.0f}</text>')
    for p in points:
        out.append(f'<text x="{x(p["share"]):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{100 * p["share"]:.0f} %</text>')
    series = [("decode, tok/s", "decode", most_left, "#06c", ""), ("allowed by memory and disk", "predicted", most_left, "#06c", "4 4"),
              ("prefill, tok/s (right)", "prefill", most_right, "#888", "")]
    for i, (label, key, most, color, dash) in enumerate(series):
        line = " ".join(f"{x(p['share']):.1f},{y(p[key] / most):.1f}" for p in points)
        out.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2" stroke-dasharray="{dash}"/>')
        if not dash:
            out += [f'<circle cx="{x(p["share"]):.1f}" cy="{y(p[key] / most):.1f}" r="3" fill="{color}"/>' for p in points]
        out.append(f'<path d="M{LEFT + 12} {TOP + 10 + 16 * i}h24" stroke="{color}" stroke-width="2" stroke-dasharray="{dash}"/>')
        out.append(f'<text x="{LEFT + 42}" y="{TOP + 14 + 16 * i}">{label}</text>')
    out.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 8}" text-anchor="middle">--memory, in percent of the file</text></svg>')
    with open(args.svg, "w") as file:
        file.write("\n".join(out) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    verb = verbs.add_parser("measure")
    verb.add_argument("model")
    verb.add_argument("out")
    verb.add_argument("--shares", default="30,45,60,80,100")
    verb.add_argument("--rounds", type=int, default=3)
    verb.add_argument("--moewe", default=os.path.join(HERE, "..", "build/release/moewe"))
    verb.add_argument("--prefix", default="", help="in front of moewe, for example: chrt -f 1")
    verb.add_argument("-p", type=int, default=512)
    verb.add_argument("-n", type=int, default=32)
    verb.set_defaults(do=measure)
    verb = verbs.add_parser("draw")
    verb.add_argument("out")
    verb.add_argument("svg")
    verb.set_defaults(do=draw)
    args = parser.parse_args()
    args.do(args)


if __name__ == "__main__":
    main()
