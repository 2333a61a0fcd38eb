"""How each program is run on a model file, and where its report has the figures.

A figure is ("prefill", tokens) or ("decode", depth) in tokens a second. A program that fails gives {"error": why}.
"""
import json
import os
import subprocess


def report_of(command, environment=None):
    """What a command prints, as JSON; ValueError says why there is none."""
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=os.environ | (environment or {}))
    if result.returncode != 0:
        raise ValueError(f"exit code {result.returncode}: {result.stderr.strip()[-200:]}")
    return json.loads(result.stdout)


class Program:
    """One program on one file."""

    def __init__(self, command, file, threads, tokens):
        self.command, self.file, self.threads = command, file, threads
        self.tokens = tokens  # to decode for a figure

    def run(self, lengths):
        """Prefill and decode of each (tokens, depth): {figure: tokens a second}, and for moewe ("scan", depth): bytes a
        second, ("share", depth) of it that decoding reached."""
        try:
            return self.figures(lengths)
        except (ValueError, LookupError) as error:
            return {"error": str(error)}


class Moewe(Program):
    def figures(self, lengths):
        figures = {}
        for prompt, depth in lengths:
            report = report_of([self.command, "bench", self.file, "--json", "--quiet", "--memory", "all", "--threads",
                                str(self.threads), "-r", "1", "-p", str(prompt), "-n", str(self.tokens), "-d",
                                str(depth)])
            scan = report["scan"]["bytes_per_s"]
            figures |= {("prefill", prompt): report["prefill"]["tokens_per_s"],
                        ("decode", depth): report["decode"]["tokens_per_s"], ("scan", depth): scan,
                        ("share", depth): report["decode"]["bytes_per_s"] / scan}
        return figures


class LlamaCpp(Program):
    """Of one phase: "prefill" or "decode"."""
    # Runs of which none counts go before, instead of a warm-up as long as what is measured.
    WARM_UP = {"prefill": 32, "decode": 0}

    def __init__(self, phase, *others):
        super().__init__(*others)
        self.phase = phase

    def figures(self, lengths):
        first = self.WARM_UP[self.phase]
        if self.phase == "prefill":
            key, wanted = "n_prompt", [prompt for prompt, _ in lengths]
            work = ["-n", "0", "-p", ",".join(map(str, [first] + wanted))]
        else:
            key, wanted = "n_depth", [depth for _, depth in lengths]
            work = ["-p", "0", "-n", str(self.tokens), "-d", ",".join(map(str, [first] + wanted))]
        report = report_of([self.command, "-m", self.file, "-t", str(self.threads), "-r", "1", "--no-warmup", "-o",
                            "json", *work])
        return {(self.phase, run[key]): run["avg_ts"] for run in report if run[key] != first}


class Cortiq(Program):
    def figures(self, lengths):
        figures = {}
        for length, depth in lengths:
            if length != depth:
                raise ValueError("cortiq decodes behind the prompt that it has measured")
            report = report_of([self.command, "bench", self.file, "--json", "--core", "--ignore-eos", "--ctx",
                                str(length), "--tokens", str(self.tokens)],
                               {"CMF_THREADS": str(self.threads), "CMF_GPU": "0", "RUST_LOG": "error"})
            figures |= {("prefill", length): report["prefill_tok_s"], ("decode", depth): report["decode_tok_s_steady"]}
        return figures
