"""How long a model of 20,000 tensors takes to open: scripts/bench_open.py."""
import os
import re
import subprocess
import sys

from report import Figure, Section

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts", "bench_open.py")
SECONDS = 0.5


def measure(setting):
    # Exits with 1 where its own limits are missed, which are the targets here.
    out = subprocess.run([sys.executable, SCRIPT, "--moewe", setting.moewe, "--tensors", "20000"],
                         stdout=subprocess.PIPE, text=True).stdout
    rows = []
    for line in out.splitlines():
        said = re.fullmatch(r"(.*): ([0-9.]+) s, wall ([0-9.]+) s.*", line)
        if said:
            rows.append([said[1]] + [Figure(float(seconds), SECONDS, at_most=True, digits=3, unit=" s")
                                     for seconds in said.groups()[1:]])
    return [Section("Opening", ["what", "processor time", "wall time"], rows,
                    ["Of the whole process, best of five: `moewe info`, and of the `.cmf` also `moewe logits` of one "
                     "token, to its first logits, on one thread."])]
