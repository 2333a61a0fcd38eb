"""How each program is run on a model file for one figure, and where its report has the figure.

A task is ("prefill", tokens) or ("decode", depth); a run gives {"tokens_per_s": ..., and for moewe "scan": bytes a
second that the same threads just read of the same bytes, in turn with the tokens}, or {"error": why there is none}.
"""
import json
import os
import subprocess


class Program:
    """One program on one file: a row of a table."""

    def __init__(self, name, quant, command, file, described):
        self.label = f"{name} {quant}"
        self.name, self.quant, self.command, self.file = name, quant, command, file
        self.described = described  # of the file

    def run(self, task, threads, tokens):
        arguments, environment = self.arguments(task, threads, tokens)
        result = subprocess.run([self.command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env=os.environ | environment)
        try:
            if result.returncode != 0:
                raise ValueError(f"exit code {result.returncode}: {result.stderr.strip()[-200:]}")
            return self.figures(task, json.loads(result.stdout))
        except (ValueError, LookupError) as error:
            return {"error": str(error)}


class Moewe(Program):
    def arguments(self, task, threads, tokens):
        phase, length = task
        # Prefill decodes a little, too, for the scan.
        work = (["-p", str(length), "-n", "8", "-d", "0"] if phase == "prefill" else
                ["-p", "1", "-n", str(tokens), "-d", str(length)])
        return ["bench", self.file, "--json", "--quiet", "--memory", "all", "--threads", str(threads), "-r", "1",
                *work], {}

    def figures(self, task, report):
        return {"tokens_per_s": report[task[0]]["tokens_per_s"], "scan": report["scan"]["bytes_per_s"]}


class LlamaCpp(Program):
    def arguments(self, task, threads, tokens):
        phase, length = task
        work = ["-p", str(length), "-n", "0"] if phase == "prefill" else ["-p", "0", "-n", str(tokens), "-d",
                                                                           str(length)]
        return ["-m", self.file, "-t", str(threads), "-r", "1", "-o", "json", *work], {}

    def figures(self, task, report):
        return {"tokens_per_s": report[0]["avg_ts"]}


class Cortiq(Program):
    def arguments(self, task, threads, tokens):
        phase, length = task
        return ["bench", self.file, "--json", "--core", "--ignore-eos", "--ctx", str(length), "--tokens",
                str(2 if phase == "prefill" else tokens)], {"CMF_THREADS": str(threads), "RUST_LOG": "error"}

    def figures(self, task, report):
        key = "prefill_tok_s" if task[0] == "prefill" else "decode_tok_s_steady"
        return {"tokens_per_s": report[key]}
