#!/usr/bin/env python3
"""Tests of what becomes of measurements: which figure of which report, medians, targets, the table."""
import json
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import turns  # noqa: E402 (beside this file)
from programs import Cortiq, LlamaCpp, Moewe  # noqa: E402
from report import Figure, Section, markdown, summary  # noqa: E402


class TurnsTest(unittest.TestCase):
    def test_programs_alternate_and_each_second_turn_goes_backwards(self):
        calls = []
        results = turns.take(3, {name: lambda name=name: calls.append(name) or len(calls) for name in "ab"})
        self.assertEqual(calls, list("abbaab"))
        self.assertEqual(results, {"a": [1, 4, 5], "b": [2, 3, 6]})

    def test_what_is_dropped_has_no_more_turns(self):
        results = turns.take(4, {"a": lambda: 1, "b": lambda: 2}, (2, lambda so_far: [n for n in so_far if n == "a"]))
        self.assertEqual(results, {"a": [1, 1], "b": [2, 2, 2, 2]})

    def test_ratios_are_of_the_same_turn_and_skip_what_failed(self):
        self.assertEqual(turns.median_ratio([10, 40, 90], [10, 10, 30]), 3)
        self.assertEqual(turns.median_ratio([10, None, 90], [10, 10, 0]), 1)
        self.assertIsNone(turns.median_ratio([], [1]))


class FigureTest(unittest.TestCase):
    def test_a_target_is_met_or_missed(self):
        self.assertEqual(Figure(0.75, 0.75).markdown(), "0.75 (>= 0.75)")
        self.assertEqual(Figure(0.74, 0.75).markdown(), "**0.74** (>= 0.75: missed)")
        self.assertEqual(Figure(0.6, 0.5, at_most=True, unit=" s").markdown(), "**0.60 s** (<= 0.5 s: missed)")
        self.assertEqual(Figure(3.0).markdown(), "3.00")

    def test_what_could_not_be_measured_has_not_met_its_target(self):
        self.assertFalse(Figure(None, 1.5).met())
        self.assertIn("missed", Figure(None, 1.5).markdown())

    def test_the_table_counts(self):
        section = Section("Some", ["what", "a", "b"], [["x", Figure(2.0, 1.0), Figure(1.0, 2.0)]], ["a note"])
        self.assertEqual(summary([section]), (1, 2))
        text = markdown("All", {"Machine": "this"}, [section])
        self.assertIn("1 of 2 figures", text)
        self.assertIn("| x | 2.00 (>= 1) | **1.00** (>= 2: missed) |", text)


class ProgramsTest(unittest.TestCase):
    """With a script in a program's place, which prints a report and says what it was called with."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def script(self, text):
        path = os.path.join(self.folder.name, "program")
        with open(path, "w") as file:
            file.write(f"#!{sys.executable}\nimport json, os, sys\narguments = sys.argv[1:]\n{text}\n")
        os.chmod(path, 0o755)
        return path

    def test_moewe_has_a_scan_and_a_share_at_each_depth(self):
        report = {"prefill": {"tokens_per_s": 300}, "decode": {"tokens_per_s": 80, "bytes_per_s": 8e9},
                  "scan": {"bytes_per_s": 16e9}}
        program = Moewe(self.script(f"print(json.dumps({json.dumps(report)}))"), "m.cmf", 2, 48)
        self.assertEqual(program.run([(512, 128)]), {("prefill", 512): 300, ("decode", 128): 80, ("scan", 128): 16e9,
                                                     ("share", 128): 0.5})

    def test_llama_bench_is_asked_for_all_lengths_at_once_and_its_warm_up_does_not_count(self):
        command = self.script("""
flag = "-d" if "-d" in arguments else "-p"
lengths = map(int, arguments[arguments.index(flag) + 1].split(","))
print(json.dumps([{"n_prompt": n * (flag == "-p"), "n_depth": n * (flag == "-d"), "avg_ts": n + 1} for n in lengths]))
""")
        lengths = [(512, 128), (2048, 2048)]
        self.assertEqual(LlamaCpp("prefill", command, "m.gguf", 2, 48).run(lengths),
                         {("prefill", 512): 513, ("prefill", 2048): 2049})
        self.assertEqual(LlamaCpp("decode", command, "m.gguf", 2, 48).run(lengths),
                         {("decode", 128): 129, ("decode", 2048): 2049})

    def test_cortiq_decodes_behind_its_prompt(self):
        program = Cortiq(self.script("print(json.dumps({'prefill_tok_s': float(os.environ['CMF_THREADS']), "
                                     "'decode_tok_s_steady': 9}))"), "m.cmf", 2, 48)
        self.assertEqual(program.run([(512, 512)]), {("prefill", 512): 2.0, ("decode", 512): 9})
        self.assertIn("behind the prompt", program.run([(512, 128)])["error"])

    def test_a_program_that_fails_or_says_nothing_is_an_error_with_its_reason(self):
        failing = Cortiq(self.script("sys.exit('no such tensor')"), "m.cmf", 2, 48)
        self.assertIn("no such tensor", failing.run([(512, 512)])["error"])
        other = Cortiq(self.script("print('{}')"), "m.cmf", 2, 48)
        self.assertIn("prefill_tok_s", other.run([(512, 512)])["error"])


if __name__ == "__main__":
    unittest.main()
