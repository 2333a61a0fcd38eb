"""Decode and prefill beside cortiq, on the same .cmf files."""
import turns
from programs import Cortiq, Moewe
from report import Figure, Section

QUANTS = ("q4tp", "q8")  # of 4 bits, and what cortiq runs fastest
RATIO = 4.0


def measure(setting):
    if "cortiq" in setting.peers.missing:
        return []
    length = 128 if setting.quick else 512
    shape = setting.shape("qwen3-30b-a3b")
    rows, notes, data = [], [], {}
    for quant in QUANTS:
        file = shape.cmf(quant)
        programs = {"moewe": Moewe(setting.moewe, file, setting.threads, setting.tokens()),
                    "cortiq": Cortiq(setting.peers.cortiq, file, setting.threads, setting.tokens())}
        runs = turns.take(setting.turns, {name + " " + quant: lambda program=program: program.run([(length, length)])
                                          for name, program in programs.items()})
        for phase in "decode", "prefill":
            ours, theirs = ([run.get((phase, length)) for run in runs[f"{name} {quant}"]] for name in programs)
            rows.append([quant, f"{phase}, {length}", turns.spread(ours), turns.spread(theirs),
                         Figure(turns.median_ratio(ours, theirs), RATIO)])
            data[f"{quant} {phase}"] = {"moewe": ours, "cortiq": theirs}
        notes += sorted({f"{name}: {run['error']}" for name, of in runs.items() for run in of if "error" in run})
    shape.drop_sources()
    return [Section(f"Beside cortiq on the same files, MoE, {setting.threads} threads",
                    ["file", "what", "moewe, tok/s", "cortiq, tok/s", "ratio"], rows,
                    [f"`cortiq bench --core --ctx {length}`: it decodes behind its prompt, as moewe does here.",
                     *notes], data)]
