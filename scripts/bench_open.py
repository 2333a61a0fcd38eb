#!/usr/bin/env python3
"""How long a model of very many tensors takes to open, as safetensors and as .cmf.

    scripts/bench_open.py [--moewe build/release/moewe] [--tensors 20000 100000]

Processor time of the whole process `moewe info` (start, open, check, summarize; it has one thread), the best of
five. The files are made in a temporary folder: names and shapes of a mixture-of-experts model, 64 values a tensor.
"""
import argparse
import json
import pathlib
import resource
import struct
import subprocess
import sys
import tempfile

LIMITS = {20000: 0.5, 100000: 1.5}  # seconds that opening may take on the 2-core test machine
CONFIG = {"model_type": "qwen3_moe", "hidden_size": 8, "intermediate_size": 8, "moe_intermediate_size": 8,
          "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 8,
          "num_experts": 4, "num_experts_per_tok": 2, "vocab_size": 8, "rms_norm_eps": 1e-6}
EXPERTS = 128


def names(count: int):
    for i in range(count):
        expert, projection = divmod(i, 3)
        layer, expert = divmod(expert, EXPERTS)
        yield f"model.layers.{layer}.mlp.experts.{expert}.{('gate', 'up', 'down')[projection]}_proj.weight"


def write_safetensors(folder: pathlib.Path, count: int) -> None:
    size = 8 * 8 * 2
    header = {name: {"dtype": "BF16", "shape": [8, 8], "data_offsets": [i * size, (i + 1) * size]}
              for i, name in enumerate(names(count))}
    text = json.dumps(header).encode()
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    with open(folder / "model.safetensors", "wb") as out:
        out.write(len(text).to_bytes(8, "little") + text + bytes(count * size))


def write_cmf(path: pathlib.Path, count: int) -> None:
    """By docs/formats/cmf.md: envelope, header, directory, data; no hashes."""
    arch = {"arch_name": "qwen3_moe", "hidden_size": 8, "intermediate_size": 8, "num_layers": 1,
            "num_attention_heads": 1, "num_kv_heads": 1, "head_dim": 8, "vocab_size": 8,
            "layer_types": ["FullAttention"], "rms_norm_eps": 1e-6, "max_position_embeddings": 8}
    header = json.dumps({"version": 2, "quant_type": "BF16", "arch": arch}).encode()
    size, bf16 = 8 * 8 * 2, 2
    records, pool = bytearray(), bytearray()
    for i, name in enumerate(names(count)):
        records += struct.pack("<IHBB6IQQQ", len(pool), len(name), bf16, 2, 8, 8, 0, 0, 0, 0, i * size, size, 0)
        pool += name.encode()
    directory = struct.pack("<QQ", count, 16 + len(records)) + records + pool
    data_offset = -(-(128 + len(header) + len(directory)) // 4096) * 4096
    envelope = struct.pack("<4sIII14Q", b"CMF\x01", 2, 0, 1, 128, len(header), 128 + len(header), len(directory),
                           data_offset, count * size, 0, 0, 0, 0, 0, 0, 0, 0)
    with open(path, "wb") as out:
        out.write(envelope + header + directory)
        out.seek(data_offset + count * size - 1)
        out.write(bytes(1))


def best(command: list) -> float:
    times = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(times)


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
            for kind, path in ("safetensors", folder), ("cmf", cmf):
                seconds = best([options.moewe, "info", "--json", str(path)])
                limit = LIMITS.get(count, float("inf"))
                slow |= seconds > limit
                print(f"{count} tensors, {kind}: {seconds:.3f} s" + (" TOO SLOW" if seconds > limit else ""))
    sys.exit(1 if slow else 0)


if __name__ == "__main__":
    main()
