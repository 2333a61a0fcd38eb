"""Decode and prefill of both shapes beside llama.cpp, and decode beside a scan of the same bytes."""
import turns
from programs import LlamaCpp, Moewe
from report import Figure, Section

GGUF_QUANTS = ("Q4_0", "Q4_K_M")
PHASES = ("prefill", "decode")  # as setting.lengths() has them
SHAPES = {"MoE": "qwen3-30b-a3b", "dense": "qwen3-4b"}
SHARE = {"MoE": 0.75, "dense": 0.80}
# Decode beside llama.cpp, where memory is fast and where it is not.
FAST_SCAN = 55e9
DECODE = {"MoE": (1.4, 1.15), "dense": (1.2, 1.2)}
PREFILL = {"MoE": 2.5, "dense": 1.5}


# Of llama.cpp's quants a phase's slower one is given up after so many turns, unless some figure is as near as this.
TRIAL_TURNS, NEAR = 2, 0.95


class Runs:
    """Of one shape: every program's figures, turn by turn."""

    def __init__(self, setting, kind):
        self.kind, self.setting = kind, setting
        self.shape = setting.shape(SHAPES[kind])
        self.ours = f"moewe {setting.quant}"
        common = setting.threads, setting.tokens()
        self.programs = {self.ours: Moewe(setting.moewe, self.shape.cmf(setting.quant), *common)}
        for phase in PHASES if "llama.cpp" not in setting.peers.missing else ():
            for quant in GGUF_QUANTS:
                self.programs[f"{quant} {phase}"] = LlamaCpp(phase, setting.peers.llama_bench, self.shape.gguf(quant),
                                                             *common)
        self.shape.drop_sources()
        self.runs = turns.take(setting.turns, {
            name: lambda program=program: program.run(setting.lengths()) for name, program in self.programs.items()},
                               (TRIAL_TURNS, self.slower))

    def peers(self, phase):
        return [name for name in self.programs if name.endswith(phase)]

    def slower(self, runs):
        """Programs of llama.cpp that no figure needs any more."""
        dropped = []
        for phase in PHASES:
            medians = {name: [turns.median([run.get((phase, length)) for run in runs[name]]) or 0.0
                              for length in (pair[PHASES.index(phase)] for pair in self.setting.lengths())]
                       for name in self.peers(phase)}
            best = [max(column) for column in zip(*medians.values())]
            dropped += [name for name, row in medians.items() if all(a < NEAR * b for a, b in zip(row, best))]
        return dropped

    def values(self, program, figure):
        return [run.get(figure) for run in self.runs[program]]

    def fastest(self, figure):
        """The peer's program with the most tokens a second of those that ran in every turn, or none."""
        peers = [(turns.median(self.values(name, figure)) or 0.0, name) for name in self.peers(figure[0])
                 if len(self.runs[name]) == self.setting.turns]
        return max(peers, default=(0.0, None))[1]

    def beside(self, figure):
        """Our tokens a second, the fastest peer's, its name, and the ratio of both in the same turns."""
        ours, name = self.values(self.ours, figure), self.fastest(figure)
        theirs = self.values(name, figure) if name else []
        return turns.spread(ours), turns.spread(theirs), (name or "-").split()[0], turns.median_ratio(ours, theirs)

    def data(self):
        return {name: [{" ".join(map(str, key)) if isinstance(key, tuple) else key: value for key, value in run.items()}
                       for run in runs] for name, runs in self.runs.items()}

    def errors(self):
        return sorted({f"{name}: {run['error']}" for name, runs in self.runs.items() for run in runs if "error" in run})

    def files(self):
        files = {self.ours: self.programs[self.ours].file} | {
            f"llama.cpp {name.split()[0]}": self.programs[name].file for name in self.peers("decode")}
        for name, file in files.items():
            about = self.shape.described(file)
            yield [self.kind, name, f"{about['bytes'] / 1e6:.0f}", f"{about['bytes'] / about['weights']:.3f}",
                   f"{about['bytes_per_token'] / 1e6:.1f}"]


def decode_section(all_runs, setting):
    rows = []
    for runs in all_runs:
        for _, depth in setting.lengths():
            scan = turns.median(runs.values(runs.ours, ("scan", depth)))
            fast, slow = DECODE[runs.kind]
            ours, theirs, name, ratio = runs.beside(("decode", depth))
            where = "" if scan is None else " (>= 55)" if scan >= FAST_SCAN else " (below 55)"
            rows.append([runs.kind, depth, ours, f"{(scan or 0) / 1e9:.1f}{where}",
                         Figure(turns.median(runs.values(runs.ours, ("share", depth))), SHARE[runs.kind]), theirs, name,
                         Figure(ratio, fast if scan is not None and scan >= FAST_SCAN else slow)])
    return Section(
        f"Decode, {setting.threads} threads",
        ["shape", "context", f"moewe {setting.quant}, tok/s", "scan, GB/s", "share of the scan", "llama.cpp, tok/s",
         "its fastest", "ratio"], rows,
        ["Tokens a second are medians (least to most), ratios and shares medians of those of each turn.",
         f"Of llama.cpp's {' and '.join(GGUF_QUANTS)} the faster counts; the other one is given up after "
         f"{TRIAL_TURNS} turns if it is more than {1 - NEAR:.0%} slower.",
         "The share is of stored bytes that a token reads, in turn with a scan of exactly those matrices.",
         f"Beside llama.cpp {DECODE['MoE'][0]} is wanted of the MoE where the scan reads 55 GB/s or more, else "
         f"{DECODE['MoE'][1]}."] + [error for runs in all_runs for error in runs.errors()],
        {runs.kind: runs.data() for runs in all_runs})


def prefill_section(all_runs, setting):
    rows = []
    for runs in all_runs:
        for prompt, _ in setting.lengths():
            ours, theirs, name, ratio = runs.beside(("prefill", prompt))
            rows.append([runs.kind, prompt, ours, theirs, name, Figure(ratio, PREFILL[runs.kind])])
    return Section(f"Prefill, {setting.threads} threads", ["shape", "tokens", f"moewe {setting.quant}, tok/s",
                                                           "llama.cpp, tok/s", "its fastest", "ratio"], rows,
                   ["Neither program computes the last layer's FFN where no logits are asked for: with four layers a "
                    "quarter of all FFNs, in whole models less."])


def files_section(all_runs):
    return Section("The files", ["shape", "program", "MB", "bytes a weight", "MB a token"],
                   [row for runs in all_runs for row in runs.files()],
                   ["The same weights in each: noise, from which every token of the MoE goes to experts of its own.",
                    "Q4_0 is made with `--pure`, so that the head has four bits, too; a token does not read the "
                    "embedding."])


def measure(setting):
    all_runs = [Runs(setting, kind) for kind in SHAPES]
    return [decode_section(all_runs, setting), prefill_section(all_runs, setting), files_section(all_runs)]
