#!/usr/bin/env python3
"""Model files of the same weights in other formats; runs where the PyPI package gguf is installed (peers.py).

    model_files.py checkpoint IN.cmf FOLDER     a Hugging Face checkpoint (config.json, model.safetensors)
    model_files.py gguf IN.cmf OUT.gguf         bf16, for llama-quantize
    model_files.py describe FILE                {"bytes", "weights", "bytes_per_token"} of a .cmf or .gguf, as JSON

IN.cmf is a Qwen3 model, dense or with experts, whose matrices are bf16.
"""
import json
import os
import sys

import gguf
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
import moewe_reader  # noqa: E402 (it lies in a folder of its own)

# Names in a GGUF of what the other formats call: a layer's tensors, its FFN or experts, and the rest.
LAYER = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
         "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
         "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
FFN = ("gate", "up", "down")
OUTER = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def write_checkpoint(model, folder):
    arch = model.header["arch"]
    config = {"model_type": arch["arch_name"], "hidden_size": arch["hidden_size"],
              "intermediate_size": arch["intermediate_size"], "num_hidden_layers": arch["num_layers"],
              "num_attention_heads": arch["num_attention_heads"], "num_key_value_heads": arch["num_kv_heads"],
              "head_dim": arch["head_dim"], "vocab_size": arch["vocab_size"], "rms_norm_eps": arch["rms_norm_eps"],
              "rope_theta": arch["rope_theta"], "max_position_embeddings": arch["max_position_embeddings"],
              "tie_word_embeddings": False, "torch_dtype": "bfloat16"}
    moe = arch.get("moe")
    if moe:
        config |= {"num_experts": moe["num_experts"], "num_experts_per_tok": moe["top_k"],
                   "moe_intermediate_size": moe["moe_intermediate_size"], "norm_topk_prob": moe["norm_topk_prob"],
                   "decoder_sparse_step": 1, "mlp_only_layers": []}
        config["architectures"] = ["Qwen3MoeForCausalLM"]
    else:
        config["architectures"] = ["Qwen3ForCausalLM"]
    header, at = {}, 0
    for name, tensor in model.tensors.items():
        header[name] = {"dtype": tensor.dtype.upper(), "shape": list(tensor.shape),
                        "data_offsets": [at, at + tensor.nbytes]}
        at += tensor.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "model.safetensors"), "wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for tensor in model.tensors.values():
            out.write(tensor.data)
    # Last: a folder with a config is whole.
    with open(os.path.join(folder, "config.json"), "w") as out:
        json.dump(config, out, indent=1)


def gguf_names(arch):
    """Each tensor of a GGUF as (name, names of what it is made of): the experts of a layer are one there."""
    moe = arch.get("moe")
    for theirs, ours in OUTER.items():
        yield theirs, [ours]
    for i in range(arch["num_layers"]):
        theirs, ours = f"blk.{i}.", f"model.layers.{i}."
        for name, source in LAYER.items():
            yield theirs + name, [ours + source]
        if moe:
            yield theirs + "ffn_gate_inp", [ours + "mlp.gate"]
        for role in FFN:
            if moe:
                experts = [f"{ours}mlp.experts.{e}.{role}_proj" for e in range(moe["num_experts"])]
                yield f"{theirs}ffn_{role}_exps", experts
            else:
                yield f"{theirs}ffn_{role}", [f"{ours}mlp.{role}_proj"]


def write_gguf(model, path):
    arch = model.header["arch"]
    moe = arch.get("moe")
    writer = gguf.GGUFWriter(path, "qwen3moe" if moe else "qwen3")
    writer.add_name("shape")
    writer.add_context_length(arch["max_position_embeddings"])
    writer.add_embedding_length(arch["hidden_size"])
    writer.add_block_count(arch["num_layers"])
    writer.add_feed_forward_length(arch["intermediate_size"])
    writer.add_head_count(arch["num_attention_heads"])
    writer.add_head_count_kv(arch["num_kv_heads"])
    writer.add_key_length(arch["head_dim"])
    writer.add_value_length(arch["head_dim"])
    writer.add_rope_freq_base(arch["rope_theta"])
    writer.add_layer_norm_rms_eps(arch["rms_norm_eps"])
    if moe:
        writer.add_expert_count(moe["num_experts"])
        writer.add_expert_used_count(moe["top_k"])
        writer.add_expert_feed_forward_length(moe["moe_intermediate_size"])
    writer.add_vocab_size(arch["vocab_size"])
    writer.add_tokenizer_model("none")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)

    # What is not bf16 (norms, routers) becomes f32, as llama.cpp wants it.
    for name, sources in gguf_names(arch):
        first = model.tensors[sources[0] + ".weight"]
        shape = ([len(sources)] if len(sources) > 1 else []) + list(first.shape)
        kind, size = ((gguf.GGMLQuantizationType.BF16, 2) if first.dtype == "bf16"
                      else (gguf.GGMLQuantizationType.F32, 4))
        writer.add_tensor_info(name + ".weight", shape, np.dtype(np.float32), int(np.prod(shape)) * size, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for _, sources in gguf_names(arch):
        parts = [model.tensors[source + ".weight"] for source in sources]
        raw = [part.data if part.dtype == "bf16" else model.read(part.name).tobytes() for part in parts]
        writer.write_tensor_data(np.frombuffer(b"".join(raw), np.uint8))
    writer.close()


def described(tensors, used):
    """Of (name, bytes, weights): a token reads all but the embedding, and of experts the share `used`."""
    total = {"bytes": 0, "weights": 0, "bytes_per_token": 0}
    for name, size, weights in tensors:
        total["bytes"] += size
        total["weights"] += weights
        if "embd" in name or "embed_tokens" in name:
            continue
        total["bytes_per_token"] += round(size * used) if ".experts." in name or "_exps" in name else size
    return total


def describe(path):
    if path.endswith(".cmf"):
        model = moewe_reader.open(path)
        moe = model.header["arch"].get("moe") or {"top_k": 1, "num_experts": 1}
        tensors = [(name, t.nbytes, int(np.prod(t.shape))) for name, t in model.tensors.items()]
        return described(tensors, moe["top_k"] / moe["num_experts"])
    reader = gguf.GGUFReader(path)

    def number(key):
        field = next((f for name, f in reader.fields.items() if name.endswith(key)), None)
        return int(field.parts[field.data[0]][0]) if field else 1

    tensors = [(t.name, int(t.n_bytes), int(t.n_elements)) for t in reader.tensors]
    return described(tensors, number(".expert_used_count") / number(".expert_count"))


def main():
    if len(sys.argv) == 4 and sys.argv[1] in ("checkpoint", "gguf"):
        write = write_checkpoint if sys.argv[1] == "checkpoint" else write_gguf
        write(moewe_reader.open(sys.argv[2]), sys.argv[3])
    elif len(sys.argv) == 3 and sys.argv[1] == "describe":
        print(json.dumps(describe(sys.argv[2])))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
