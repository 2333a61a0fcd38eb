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


def main() -> None:
    out = pathlib.Path(sys.argv[1])
    copy(out, "fuzz_cmf", "cmf/bad/*.cmf")
    copy(out, "fuzz_safetensors", "hf/*/model.safetensors")
    copy(out, "fuzz_config", "hf/*/config*.json")
    copy(out, "fuzz_tokenizer_json", "text/mini/*.json", 16384)
    folder = out / "fuzz_jinja"
    folder.mkdir(parents=True, exist_ok=True)
    for line in (GOLDEN / "text/chat/micro.jsonl").read_text().splitlines():
        case = json.loads(line)
        (folder / case["id"]).write_text(case["template"])


if __name__ == "__main__":
    main()
