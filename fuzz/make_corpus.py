#!/usr/bin/env python3
"""Collects the seed corpora of the fuzz targets from the goldens: make_corpus.py OUT."""
import hashlib
import json
import pathlib
import shutil
import struct
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden"


def copy(out: pathlib.Path, target: str, pattern: str, limit: int = 65536) -> None:
    folder = out / target
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(GOLDEN.glob(pattern)):
        if path.stat().st_size <= limit:
            shutil.copy(path, folder / "-".join(path.relative_to(GOLDEN).parts))


def small_safetensors(folder: pathlib.Path, path: pathlib.Path, tensors: int = 5) -> None:
    """The first tensors of a file as a file of their own, all sizes cut to at most 4 elements."""
    folder.mkdir(parents=True, exist_ok=True)
    raw = path.read_bytes()
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    small, offset = {}, 0
    for name, info in list(header.items())[: tensors + 1]:
        if name == "__metadata__":
            small[name] = info
            continue
        begin, end = info["data_offsets"]
        elements = 1
        for dimension in info["shape"]:
            elements *= dimension
        size = (end - begin) // elements * 4
        small[name] = {"dtype": info["dtype"], "shape": [4], "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(small).encode()
    (folder / path.parent.name).write_bytes(len(text).to_bytes(8, "little") + text + bytes(offset))


# As in fuzz_hf_folder.cc.
FOLDER_FILES = ["config.json", "model.safetensors.index.json", "model.safetensors", "a.safetensors",
                "b.safetensors", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                "generation_config.json", "chat_template.jinja", "chat_template.json"]


def packed_folder(files: dict, names: list = FOLDER_FILES) -> bytes:
    """The files of a folder as one input (scratch_folder.h); `names` as in the target."""
    out = b""
    for name, content in files.items():
        content = content[:65535]
        out += bytes([names.index(name)]) + len(content).to_bytes(2, "little") + content
    return out


def hf_folders(folder: pathlib.Path, safetensors: pathlib.Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    weights = sorted(safetensors.iterdir())[0].read_bytes()
    names = list(json.loads(weights[8 : 8 + int.from_bytes(weights[:8], "little")]))
    demo = {path.name: path.read_bytes() for path in (ROOT / "models/demo").iterdir()
            if path.name in FOLDER_FILES and path.suffix == ".json" and path.stat().st_size < 16384}
    for path in sorted(GOLDEN.glob("hf/*/config.json")):
        files = {"config.json": path.read_bytes(), "model.safetensors": weights}
        side = path.parent / "generation_config.json"
        if side.exists():
            files[side.name] = side.read_bytes()
        (folder / path.parent.name).write_bytes(packed_folder(files))
    index = {"weight_map": {name: "a.safetensors" for name in names if name != "__metadata__"}}
    sharded = {"model.safetensors.index.json": json.dumps(index).encode(), "a.safetensors": weights}
    tokens = {"bos_token": {"content": "<s>"}, "additional_special_tokens": ["<|a|>"]}
    (folder / "sharded").write_bytes(packed_folder(demo | sharded))
    chat = {"special_tokens_map.json": json.dumps(tokens).encode(),
            "chat_template.json": b'{"chat_template": [{"name": "default", "template": "{{ messages }}"}]}',
            "tokenizer.json": (GOLDEN / "text/mini/post_template.json").read_bytes()}
    (folder / "chat").write_bytes(packed_folder(demo | {"model.safetensors": weights} | chat))


def signatures(folder: pathlib.Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    signed = GOLDEN / "cmf/files/signed.cmf.sig"
    key = (GOLDEN / "cmf/files/signed.key.hex").read_bytes()
    files = {"m.cmf.sig": signed.read_bytes(), "key.hex": key}
    (folder / "good").write_bytes(packed_folder(files, list(files)))
    hashed = json.loads(signed.read_text())
    hashed["sha256"] = hashlib.sha256(b"not what was signed").hexdigest()
    files["m.cmf.sig"] = json.dumps(hashed).encode()
    (folder / "of_this_file").write_bytes(packed_folder(files, list(files)))


def masks(folder: pathlib.Path) -> None:
    """As in fuzz_masks.cc: the model's sizes, the kind, the bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ["masks_llama_f32", "loop_masks", "moe_qwen2_q8_expertmask"]:
        raw = (GOLDEN / f"cmf/files/{name}.cmf").read_bytes()
        about = json.loads((GOLDEN / f"cmf/files/{name}.expected.json").read_text())
        arch, where = about["header"]["arch"], about["envelope"]
        experts = (arch.get("moe") or {}).get("num_experts", 0)
        sizes = [arch["num_layers"] - 1, min(arch["intermediate_size"], 256) - 1, arch["num_attention_heads"] - 1,
                 arch.get("num_loops", 1) - 1, experts]
        for kind, section in enumerate(["masks", "index"]):
            begin, length = where.get(section + "_off", 0), where.get(section + "_len", 0)
            (folder / f"{name}-{section}").write_bytes(bytes(sizes + [kind]) + raw[begin : begin + length])
    sizes = [1, 7, 3, 1, 4]  # 2 layers of 8 neurons, 4 heads, 2 passes, 4 experts
    rows = {"name": "x", "ffn": {"0": {"dead": [1, 2]}, "1": "0f"}, "heads": "all", "layers": [True, False],
            "experts": [[0, 1], {"live": [3]}], "quality": {"metric": "ppl", "value": 3.5}}
    (folder / "description").write_bytes(bytes(sizes + [2]) + json.dumps(rows).encode())
    header = b"{'descr': '|b1', 'fortran_order': False, 'shape': (2, 8), }".ljust(117) + b"\n"
    array = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes([1, 0] * 8)
    (folder / "array").write_bytes(bytes(sizes + [3]) + array)


def indices(folder: pathlib.Path) -> None:
    """As in fuzz_index.cc: the model's sizes, the bits of task 0, the entries of tasks 0 and 1."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ["masks_llama_f32", "masks_qwen3_q8row"]:
        about = json.loads((GOLDEN / f"cmf/files/{name}.expected.json").read_text())
        arch = about["header"]["arch"]
        layers, neurons, heads = arch["num_layers"], arch["intermediate_size"], arch["num_attention_heads"]
        for mask in about["masks"]:
            ffn = [bytes.fromhex(row) for row in mask["ffn_masks_hex"]]
            head_rows = [bytes.fromhex(row) for row in mask["head_masks_hex"]]
            gates = sum(live << i for i, live in enumerate(mask["layer_gates"])).to_bytes((layers + 7) // 8, "little")
            bits = b"".join(ffn + head_rows) + gates
            bits = bits.ljust((len(bits) + 7) // 8 * 8, b"\0")
            entries = [index_entry(0, i, ffn[i], head_rows[i]) for i in range(layers)]
            entries.append(index_entry(1, 0, bytes([255] * len(ffn[0])), bytes([(1 << heads) - 1])))
            sizes = bytes([layers - 1, (neurons - 1) % 256, (neurons - 1) // 256, heads - 1, 0, len(bits) // 8])
            index = struct.pack("<II", len(entries), 0) + b"".join(entries)
            (folder / f"{name}-{mask['name']}").write_bytes(sizes + bits + index)


def index_entry(task: int, layer: int, ffn: bytes, heads: bytes) -> bytes:
    def live(row: bytes) -> list:
        return [i for i in range(8 * len(row)) if row[i // 8] >> i % 8 & 1]

    groups = sorted({neuron // 32 for neuron in live(ffn)})
    body = struct.pack(f"<IIII{len(groups)}H", task, layer, len(groups), len(live(heads)), *groups) + bytes(live(heads))
    return body.ljust((len(body) + 3) // 4 * 4, b"\0")


def small_cmf(arch: dict, tensors: list, masks: bytes = b"", index: bytes = b"", skills: list = (), bits: int = 0) -> bytes:
    """A whole file without hashes: what mutates it gets past them. A tensor is (name, dtype, shape, payload)."""
    header = json.dumps({"format": "cmf", "version": 2, "quant_type": "F32", "arch": arch, "skills": list(skills)}).encode()
    records, pool, data = b"", b"", b""
    for name, dtype, shape, payload in tensors:
        data = data.ljust((len(data) + 63) // 64 * 64, b"\0")
        sizes = list(shape) + [0] * (6 - len(shape))
        records += struct.pack("<IHBB6IQQQ", len(pool), len(name), dtype, len(shape), *sizes, len(data), len(payload), 0)
        pool, data = pool + name.encode(), data + payload
    directory = struct.pack("<QQ", len(tensors), 16 + len(records)) + records + pool
    places, out = [], b""
    for content, begin in [(header, 128), (directory, 0), (data, 4096), (masks, 0), (b"", 0), (index, 0)]:
        out = out.ljust(max(begin, len(out)) if begin < 4096 else (len(out) + 4095) // 4096 * 4096, b"\0")
        places += [len(out) if content else 0, len(content)]
        out += content
    return struct.pack("<4sIII12QQQ", b"CMF\x01", 2, 0, 1 | bits, *places, 0, 0) + out[128:]


def small_cmfs(folder: pathlib.Path) -> None:
    """What small faulty files have none of: every dtype, masks with an index, passes, experts, skills, a shard."""
    arch = {"arch_name": "qwen2", "hidden_size": 4, "intermediate_size": 40, "num_layers": 2, "num_attention_heads": 2,
            "num_kv_heads": 1, "head_dim": 2, "vocab_size": 8, "layer_types": ["FullAttention"] * 2, "rms_norm_eps": 1e-6,
            "max_position_embeddings": 64}
    every = {}
    for entry in json.loads((GOLDEN / "cmf/codecs/manifest.json").read_text())["entries"]:
        payload = (GOLDEN / "cmf/codecs" / entry["encoded"]).read_bytes()
        shape = [entry["rows"], entry["cols"]]
        if entry["dtype_id"] not in every or len(payload) < len(every[entry["dtype_id"]][3]):
            every[entry["dtype_id"]] = (f"t.{entry['dtype_id']}", entry["dtype_id"], shape, payload)
    (folder / "every_dtype").write_bytes(small_cmf(arch, list(every.values())))

    def section(blobs: list, more: dict) -> bytes:
        meta = {"default_task": "m0", "masks": [{"task_id": i, "name": f"m{i}", "quality": None, "blob_off": 1024 + 64 * i,
                                                  "blob_len": len(blob), **more} for i, blob in enumerate(blobs)]}
        text = json.dumps(meta).encode()
        out = (struct.pack("<II", len(blobs), len(text)) + text).ljust(1024, b"\0")
        return out + b"".join(blob.ljust(64, b"\0") for blob in blobs)

    norm = ("model.norm.weight", 1, [4], bytes(8))
    rest = bytes([3, 3, 3])  # two layers' heads, the gates
    index = struct.pack("<II", 1, 0) + index_entry(1, 1, bytes([255] * 5), bytes([3]))
    masks = section([bytes(10) + rest, bytes([255] * 10) + rest], {})
    (folder / "masks_and_index").write_bytes(small_cmf(arch, [norm], masks, index, bits=2))
    looped = arch | {"num_loops": 2}
    (folder / "passes").write_bytes(small_cmf(looped, [norm], section([bytes(20) + rest], {}), bits=2 | 32))
    routed = arch | {"moe": {"num_experts": 2, "top_k": 1, "moe_intermediate_size": 4}}
    experts = [("model.layers.0.mlp.gate.weight", 0, [2, 4], bytes(32))]
    experts += [(f"model.layers.0.mlp.experts.{e}.up_proj.weight", 0, [4, 4], bytes(64)) for e in range(2)]
    blob = section([bytes(10) + rest + bytes([1, 3])], {"has_expert_fields": True})
    (folder / "experts").write_bytes(small_cmf(routed, [norm] + experts, blob, bits=2))
    selection = {"metric": "mse", "phi_layer": 1, "mean": "AAAAAAAAAAA=", "basis": "AAAAAAAAAAA=", "rank": 1}
    skill = {"id": "a", "name": "A", "layers": [0], "selection": selection, "input_mask_task": None, "quality": None}
    replaced = ("skill.a.model.norm.weight", 1, [4], bytes(8))
    (folder / "skill").write_bytes(small_cmf(arch, [norm, replaced], skills=[skill]))
    (folder / "standalone").write_bytes(small_cmf(arch, [norm], skills=[{"id": "a", "base_dir_hash": "0" * 16}], bits=64))


def skills(folder: pathlib.Path) -> None:
    """As in fuzz_skills.cc: hidden size and layers, the list."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(GOLDEN.glob("cmf/files/*skill*.expected.json")):
        header = json.loads(path.read_text())["header"]
        sizes = bytes([header["arch"]["hidden_size"] - 1, header["arch"]["num_layers"] - 1])
        (folder / path.name.split(".")[0]).write_bytes(sizes + json.dumps(header.get("skills")).encode())


def codecs(folder: pathlib.Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for entry in json.loads((GOLDEN / "cmf/codecs/manifest.json").read_text())["entries"]:
        rows, cols = entry["rows"], entry["cols"]
        if rows > 255 or cols >= 16 * 32:
            continue
        head = bytes([entry["dtype_id"], rows, cols % 32, cols // 32])
        (folder / entry["name"]).write_bytes(head + (GOLDEN / "cmf/codecs" / entry["encoded"]).read_bytes())


def vaults(folder: pathlib.Path) -> None:
    """[u32 length][vault][Scout] of every odd pair; a vault is byte patches to base.smoe."""
    folder.mkdir(parents=True, exist_ok=True)
    bad = GOLDEN / "smoe/bad"
    base = (bad / "base.smoe").read_bytes()
    for case in json.loads((bad / "cases.json").read_text())["cases"]:
        vault = bytearray(base)
        made = case.get("made", {"size": len(base), "patches": []})
        vault = vault[: made["size"]].ljust(made["size"], b"\0")
        for offset, text in made["patches"]:
            vault[offset : offset + len(text) // 2] = bytes.fromhex(text)
        head = struct.pack("<I", len(vault))
        (folder / case["id"]).write_bytes(head + vault + (bad / case["scout"]).read_bytes())


def texts(folder: pathlib.Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in {"ascii": "Hello", "mixed": "é世\U0001f600\U0010ffff", "bom": "\ufeffx"}.items():
        (folder / name).write_text(text, encoding="utf-8")
    for name, raw in {"overlong": b"\xc0\x80\xe0\x80\xaf", "surrogate": b"\xed\xa0\x80", "beyond": b"\xf4\x90\x80\x80"}.items():
        (folder / name).write_bytes(raw)


def main() -> None:
    out = pathlib.Path(sys.argv[1])
    copy(out, "fuzz_cmf", "cmf/bad/*.cmf")
    small_cmfs(out / "fuzz_cmf")
    for path in sorted(GOLDEN.glob("hf/*/model.safetensors")) + [ROOT / "models/demo/model.safetensors"]:
        small_safetensors(out / "fuzz_safetensors", path)
    hf_folders(out / "fuzz_hf_folder", out / "fuzz_safetensors")
    signatures(out / "fuzz_signature")
    masks(out / "fuzz_masks")
    indices(out / "fuzz_index")
    skills(out / "fuzz_skills")
    codecs(out / "fuzz_codec")
    vaults(out / "fuzz_smoe")
    texts(out / "fuzz_utf8")
    copy(out, "fuzz_json", "hf/*/config*.json")
    copy(out, "fuzz_json", "text/mini/pre_*.json", 4096)
    copy(out, "fuzz_config", "hf/*/config*.json")
    copy(out, "fuzz_tokenizer_json", "text/mini/*.json", 16384)
    folder = out / "fuzz_jinja"
    folder.mkdir(parents=True, exist_ok=True)
    for line in (GOLDEN / "text/chat/micro.jsonl").read_text().splitlines():
        case = json.loads(line)
        (folder / case["id"]).write_text(case["template"])


if __name__ == "__main__":
    main()
