#!/usr/bin/env python3
"""Writes a GGUF of the Qwen3-30B-A3B shape with random Q4_0 weights, for timing only.

Needs the PyPI package gguf (bench/compare/peers.sh installs it into build/peers/python).
"""
import argparse
import os
import sys

import numpy as np

HIDDEN, HEADS, KV_HEADS, HEAD_DIM = 2048, 32, 4, 128
EXPERTS, TOP_K, EXPERT_FFN = 128, 8, 768


def q4_0(rng, *shape, deviation=None):
    """Random Q4_0 bytes of a tensor [..., rows, cols]: an f16 scale, then 16 bytes of nibbles, a block of 32."""
    *outer, cols = shape
    # Nibbles 1 to 15 stand for -7 to 7: with 0, whose weight has no opposite, every matrix would lean to one side, and
    # with it the hidden state and what the routers choose.
    nibbles = rng.integers(1, 16, size=(2, *outer, cols // 32, 18), dtype=np.uint8)
    blocks = nibbles[0] | nibbles[1] << 4
    # Weights of about N(0, 1 / cols), unless said otherwise: of 15 levels the deviation is 4.3.
    scale = np.float16((deviation or 1.0 / np.sqrt(cols)) / 4.3)
    blocks[..., :2] = np.frombuffer(scale.tobytes(), dtype=np.uint8)
    return blocks.reshape(*outer, cols // 32 * 18)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--vocab", type=int, default=32768)
    args = parser.parse_args()
    import gguf

    kind = gguf.GGMLQuantizationType.Q4_0
    rng = np.random.default_rng(1)
    part = args.out + ".part"
    # One tensor at a time goes through a temporary file, so that memory stays small.
    writer = gguf.GGUFWriter(part, "qwen3moe", use_temp_file=True)
    writer.add_name("shape")
    writer.add_context_length(40960)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(args.layers)
    writer.add_feed_forward_length(6144)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_rope_freq_base(1e6)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_expert_count(EXPERTS)
    writer.add_expert_used_count(TOP_K)
    writer.add_expert_feed_forward_length(EXPERT_FFN)
    writer.add_vocab_size(args.vocab)
    writer.add_tokenizer_model("none")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_0)

    def quantized(name, *shape, deviation=None):
        writer.add_tensor(name, q4_0(rng, *shape, deviation=deviation), raw_dtype=kind)

    def floats(name, *shape, value=None):
        data = np.full(shape, value, np.float32) if value is not None else (
            rng.standard_normal(shape, dtype=np.float32) / np.sqrt(np.float32(shape[-1])))
        writer.add_tensor(name, data)

    # Large embeddings: tokens are routed by what they are, not by what attention mixes in of all of them.
    quantized("token_embd.weight", args.vocab, HIDDEN, deviation=1.0)
    quantized("output.weight", args.vocab, HIDDEN)
    floats("output_norm.weight", HIDDEN, value=1)
    for i in range(args.layers):
        layer = f"blk.{i}."
        floats(layer + "attn_norm.weight", HIDDEN, value=1)
        floats(layer + "ffn_norm.weight", HIDDEN, value=1)
        floats(layer + "attn_q_norm.weight", HEAD_DIM, value=1)
        floats(layer + "attn_k_norm.weight", HEAD_DIM, value=1)
        quantized(layer + "attn_q.weight", HEADS * HEAD_DIM, HIDDEN)
        quantized(layer + "attn_k.weight", KV_HEADS * HEAD_DIM, HIDDEN)
        quantized(layer + "attn_v.weight", KV_HEADS * HEAD_DIM, HIDDEN)
        quantized(layer + "attn_output.weight", HIDDEN, HEADS * HEAD_DIM)
        floats(layer + "ffn_gate_inp.weight", EXPERTS, HIDDEN)
        quantized(layer + "ffn_gate_exps.weight", EXPERTS, EXPERT_FFN, HIDDEN)
        quantized(layer + "ffn_up_exps.weight", EXPERTS, EXPERT_FFN, HIDDEN)
        quantized(layer + "ffn_down_exps.weight", EXPERTS, HIDDEN, EXPERT_FFN)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.rename(part, args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
