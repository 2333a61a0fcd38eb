#!/usr/bin/env python3
"""Collects the seed corpora of the fuzz targets from the goldens: make_corpus.py OUT."""
import json
import pathlib
import shutil
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


def main() -> None:
    out = pathlib.Path(sys.argv[1])
    copy(out, "fuzz_cmf", "cmf/bad/*.cmf")
    for path in sorted(GOLDEN.glob("hf/*/model.safetensors")) + [ROOT / "models/demo/model.safetensors"]:
        small_safetensors(out / "fuzz_safetensors", path)
    copy(out, "fuzz_config", "hf/*/config*.json")
    copy(out, "fuzz_tokenizer_json", "text/mini/*.json", 16384)
    folder = out / "fuzz_jinja"
    folder.mkdir(parents=True, exist_ok=True)
    for line in (GOLDEN / "text/chat/micro.jsonl").read_text().splitlines():
        case = json.loads(line)
        (folder / case["id"]).write_text(case["template"])


if __name__ == "__main__":
    main()
