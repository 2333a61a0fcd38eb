"""What every section of the comparison needs: programs, models, threads, turns; the quick setting for trying it."""
import dataclasses

from peers import Peers
from shapes import Shape


@dataclasses.dataclass
class Setting:
    moewe: str
    kernels_bench: str
    peers: Peers
    models: str  # their folder
    quant: str   # of moewe, beside llama.cpp
    threads: int
    turns: int
    quick: bool

    def shape(self, name, layers=4):
        layers, vocab = (1, 4096) if self.quick else (layers, 32768)
        return Shape(name, layers, vocab, self.models, self.moewe, self.peers)

    def lengths(self):
        """(tokens of prefill, depth of decoding), measured together."""
        return [(64, 16), (128, 128)] if self.quick else [(512, 128), (2048, 2048)]

    def tokens(self):
        """To decode for a figure."""
        return 8 if self.quick else 48
