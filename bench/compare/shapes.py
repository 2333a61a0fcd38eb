"""The model files of a comparison: one set of made-up weights in every program's format.

`moewe bench --shape` makes the weights in bf16. From them come a checkpoint (converted by moewe and by whom it is
compared with), the .cmf files that moewe and cortiq run, and the GGUF files that llama.cpp runs. A file that is there
is taken as it is; each is written beside its place and renamed when it is whole.
"""
import functools
import json
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
# Without it the head of a Q4_0 file has 6.6 bits: slower. Q4_K_M is a mixture by its definition.
QUANTIZE_FLAGS = {"Q4_0": ["--pure"]}


class Shape:
    def __init__(self, name, layers, vocab, folder, moewe, peers):
        self.name, self.layers, self.vocab = name, layers, vocab
        self.stem = os.path.join(folder, f"{name}-{layers}-{vocab}")
        self.moewe, self.peers = moewe, peers
        os.makedirs(folder, exist_ok=True)

    def checkpoint(self):
        return self._made(self.stem + "-checkpoint", lambda out: self._model_files("checkpoint", self._bf16(), out))

    def cmf(self, quant):
        return self._made(f"{self.stem}-{quant}.cmf", lambda out: self._run(
            self.moewe, "convert", self.checkpoint(), out, "--quant", quant, "--quiet"))

    def gguf(self, quant):
        return self._made(f"{self.stem}-{quant}.gguf", lambda out: self._run(
            self.peers.llama_quantize, *QUANTIZE_FLAGS.get(quant, []), self._gguf_bf16(), out, quant))

    @functools.lru_cache(maxsize=None)
    def described(self, file):
        """{"bytes", "weights", "bytes_per_token"} of a .cmf or .gguf."""
        return json.loads(self._run(self.peers.python, os.path.join(HERE, "model_files.py"), "describe", file))

    def drop_sources(self):
        """Removes what only other files were made of."""
        for file in (self.stem + "-bf16.cmf", self.stem + "-bf16.gguf"):
            if os.path.exists(file):
                os.remove(file)

    def _bf16(self):
        return self._made(self.stem + "-bf16.cmf", lambda out: self._run(
            self.moewe, "bench", "--shape", self.name, "--layers", str(self.layers), "--vocab", str(self.vocab),
            "--quant", "bf16", "--out", out, "-p", "1", "-n", "1", "-d", "0", "-r", "1", "--quiet"))

    def _gguf_bf16(self):
        return self._made(self.stem + "-bf16.gguf", lambda out: self._model_files("gguf", self._bf16(), out))

    def _model_files(self, *arguments):
        self._run(self.peers.python, os.path.join(HERE, "model_files.py"), *arguments)

    @staticmethod
    def _made(path, make):
        if not os.path.exists(path):
            stem, suffix = os.path.splitext(path)
            part = stem + ".part" + suffix  # names end as the programs expect
            shutil.rmtree(part, ignore_errors=True)
            make(part)
            os.rename(part, path)
        return path

    @staticmethod
    def _run(*command):
        print(" ".join(command), file=sys.stderr)
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if result.returncode != 0:
            raise SystemExit(f"{' '.join(command)}\n{result.stdout[-2000:]}{result.stderr[-2000:]}")
        return result.stdout
