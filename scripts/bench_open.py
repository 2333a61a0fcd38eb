#!/usr/bin/env python3
"""How long a model of very many tensors takes to open, as safetensors and as .cmf, and to give its first logits.

    scripts/bench_open.py [--moewe build/release/moewe] [--tensors 20000 100000]

Of the whole process, each the best of five: processor time, which is held to a limit, and wall time. `moewe info`
(start, open, check, summarize; it has one thread) and, of the .cmf, `moewe logits` of one token on one thread. The files are made in a temporary folder: a tiny
mixture-of-experts model with as many layers as the tensors need; all weights are 0.
"""
import argparse
import json
import math
import pathlib
import resource
import struct
import subprocess
import sys
import tempfile
import time

LIMITS = {20000: 0.5, 100000: 1.5}  # seconds that each may take on the 2-core test machine
SIZE, VOCAB, EXPERTS = 32, 64, 128
TENSORS_A_LAYER = 9 + 3 * EXPERTS
CONFIG = {"model_type": "qwen3_moe", "hidden_size": SIZE, "intermediate_size": SIZE, "moe_intermediate_size": SIZE,
          "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": SIZE, "num_experts": EXPERTS,
          "num_experts_per_tok": 8, "vocab_size": VOCAB, "rms_norm_eps": 1e-6, "tie_word_embeddings": False}


def layers(count: int) -> int:
    """As many as at least `count` tensors need."""
    return -(-(count - 3) // TENSORS_A_LAYER)


def shapes(count: int):
    """Name and shape of every tensor."""
    yield "model.embed_tokens.weight", (VOCAB, SIZE)
    for layer in range(layers(count)):
        prefix = f"model.layers.{layer}."
        for name in "input_layernorm", "post_attention_layernorm", "self_attn.q_norm", "self_attn.k_norm":
            yield f"{prefix}{name}.weight", (SIZE,)
        for role in "qkvo":
            yield f"{prefix}self_attn.{role}_proj.weight", (SIZE, SIZE)
        yield f"{prefix}mlp.gate.weight", (EXPERTS, SIZE)
        for expert in range(EXPERTS):
            for role in "gate", "up", "down":
                yield f"{prefix}mlp.experts.{expert}.{role}_proj.weight", (SIZE, SIZE)
    yield "model.norm.weight", (SIZE,)
    yield "lm_head.weight", (VOCAB, SIZE)


def bytes_of(shape: tuple) -> int:
    return 2 * math.prod(shape)


def write_safetensors(folder: pathlib.Path, count: int) -> None:
    header, at = {}, 0
    for name, shape in shapes(count):
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + bytes_of(shape)]}
        at += bytes_of(shape)
    text = json.dumps(header).encode()
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIG | {"num_hidden_layers": layers(count)}))
    with open(folder / "model.safetensors", "wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        out.truncate(8 + len(text) + at)


def write_cmf(path: pathlib.Path, count: int) -> None:
    """By docs/formats/cmf.md: envelope, header, directory, data; no hashes."""
    depth = layers(count)
    arch = {"arch_name": "qwen3_moe", "hidden_size": SIZE, "intermediate_size": SIZE, "num_layers": depth,
            "num_attention_heads": 1, "num_kv_heads": 1, "head_dim": SIZE, "vocab_size": VOCAB,
            "layer_types": ["FullAttention"] * depth, "rms_norm_eps": 1e-6, "max_position_embeddings": 8,
            "tie_word_embeddings": False, "moe": {"num_experts": EXPERTS, "top_k": 8, "moe_intermediate_size": SIZE,
                                                  "norm_topk_prob": True}}
    header = json.dumps({"version": 2, "quant_type": "BF16", "arch": arch}).encode()
    bf16, at, total = 2, 0, 0
    records, pool = bytearray(), bytearray()
    for name, shape in shapes(count):
        records += struct.pack("<IHBB6IQQQ", len(pool), len(name), bf16, len(shape), *shape, *[0] * (6 - len(shape)),
                               at, bytes_of(shape), 0)
        pool += name.encode()
        at += bytes_of(shape)
        total += 1
    directory = struct.pack("<QQ", total, 16 + len(records)) + records + pool
    data_offset = -(-(128 + len(header) + len(directory)) // 4096) * 4096
    envelope = struct.pack("<4sIII14Q", b"CMF\x01", 2, 0, 1, 128, len(header), 128 + len(header), len(directory),
                           data_offset, at, 0, 0, 0, 0, 0, 0, 0, 0)
    with open(path, "wb") as out:
        out.write(envelope + header + directory)
        out.truncate(data_offset + at)


def best(command: list) -> tuple:
    """Processor time and wall time."""
    times, walls = [], []
    for _ in range(5):
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        walls.append(time.monotonic() - start)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(times), min(walls)


def first_logits(cmf: pathlib.Path) -> list:
    """The verb that opens a model and runs one token."""
    return ["logits", str(cmf), "--ids", "1", "--threads", "1", "--out", str(cmf.with_suffix(".logits")), "--quiet"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moewe", default="build/release/moewe")
    parser.add_argument("--tensors", type=int, nargs="*", default=list(LIMITS))
    options = parser.parse_args()
    slow = False
    with tempfile.TemporaryDirectory() as scratch:
        for count in options.tensors:
            folder, cmf = pathlib.Path(scratch) / str(count), pathlib.Path(scratch) / f"{count}.cmf"
            write_safetensors(folder, count)
            write_cmf(cmf, count)
            for kind, command in (("safetensors", ["info", "--json", str(folder)]),
                                  ("cmf", ["info", "--json", str(cmf)]), ("cmf, first logits", first_logits(cmf))):
                seconds, wall = best([options.moewe, *command])
                limit = LIMITS.get(count, float("inf"))
                slow |= seconds > limit
                print(f"{count} tensors, {kind}: {seconds:.3f} s, wall {wall:.3f} s" +
                      (" TOO SLOW" if seconds > limit else ""))
    sys.exit(1 if slow else 0)


if __name__ == "__main__":
    main()
