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
    for path in sorted(GOLDEN.glob("hf/*/model.safetensors")) + [ROOT / "models/demo/model.safetensors"]:
        small_safetensors(out / "fuzz_safetensors", path)
    hf_folders(out / "fuzz_hf_folder", out / "fuzz_safetensors")
    signatures(out / "fuzz_signature")
    masks(out / "fuzz_masks")
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
