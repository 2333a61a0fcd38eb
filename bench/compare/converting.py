"""Converting a checkpoint to q4tp: time beside cortiq's convert, and our peak memory."""
import json
import os
import subprocess
import time

import turns
from report import Figure, Section

RATIO = 1.5
QUANT = "q4tp"
GIB = 1 << 30


class Failed(Exception):
    """What a conversion said when it did not end well."""


def timed(command, out, environment=None):
    """{"seconds", "peak": bytes of resident memory} of a conversion, whose result goes."""
    start = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                               env=os.environ | (environment or {}))
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.monotonic() - start
    process.stderr.close()
    if process.returncode != 0:
        raise Failed(f"{' '.join(command)}: {said.decode(errors='replace')[-300:]}")
    os.remove(out)
    return {"seconds": seconds, "peak": usage.ru_maxrss * 1024}


def largest_tensor(checkpoint):
    """Its bytes in the source; every tensor of these checkpoints is a group by itself."""
    with open(os.path.join(checkpoint, "model.safetensors"), "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return max(end - begin for begin, end in (entry["data_offsets"] for entry in header.values()))


def measure(setting):
    shape = setting.shape("qwen3-30b-a3b", layers=1)  # 1.5 GB take both long enough
    checkpoint = shape.checkpoint()
    shape.drop_sources()
    out = os.path.join(setting.models, "converted.cmf")
    with open(os.path.join(checkpoint, "model.safetensors"), "rb") as file:
        while file.read(16 << 20):  # both find it in the page cache
            pass
    runs = {"moewe": lambda: timed([setting.moewe, "convert", checkpoint, out, "--quant", QUANT, "--threads",
                                    str(setting.threads), "--quiet"], out)}
    if "cortiq" not in setting.peers.missing:
        runs["cortiq"] = lambda: timed([setting.peers.cortiq, "convert", "--model", checkpoint, "--quant", QUANT,
                                        "--output", out], out, {"CMF_THREADS": str(setting.threads), "CMF_GPU": "0",
                                                                "RUST_LOG": "error"})
    taken = turns.take(setting.turns, runs)

    def values(name, key):
        return [run[key] for run in taken.get(name, [])]

    allowed = largest_tensor(checkpoint) + GIB
    peak = max(values("moewe", "peak"))
    return [Section(f"Converting the MoE checkpoint, one layer of it, to {QUANT}",
                    ["source, MB", "moewe, s", "cortiq, s", "ratio", "our peak, MB", "cortiq's peak, MB"],
                    [[f"{os.path.getsize(os.path.join(checkpoint, 'model.safetensors')) / 1e6:.0f}",
                      turns.spread(values("moewe", "seconds"), 1), turns.spread(values("cortiq", "seconds"), 1),
                      Figure(turns.median_ratio(values("cortiq", "seconds"), values("moewe", "seconds")), RATIO),
                      Figure(peak / 1e6, round(allowed / 1e6), at_most=True, digits=0),
                      turns.spread([p / 1e6 for p in values("cortiq", "peak")])]],
                    ["Wall time; the source is in the page cache. Peaks are of resident memory, mapped pages of the "
                     "source included (ours the highest of all turns); allowed is the largest tensor of the source and "
                     "1 GiB."], taken)]
