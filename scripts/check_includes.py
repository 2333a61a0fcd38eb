#!/usr/bin/env python3
"""Checks that includes only point downwards in the layers of docs/architecture.md."""
import pathlib
import re
import sys

# Each layer and the ones that it may include (itself is always allowed).
BELOW = {
    "base": [],
    "platform": ["base"],
    "quant": ["base"],
    "formats": ["quant", "platform", "base"],
    "kernels": ["quant", "platform", "base"],
    "text": ["platform", "base"],
    "experts": ["formats", "kernels", "quant", "platform", "base"],
    "model": ["experts", "formats", "kernels", "quant", "platform", "base"],
    "engine": ["model", "text", "experts", "formats", "kernels", "quant", "platform", "base"],
    "convert": ["engine", "model", "text", "experts", "formats", "kernels", "quant", "platform", "base"],
    "api": ["engine", "model", "text", "experts", "formats", "kernels", "quant", "platform", "base"],
}
TOP = list(BELOW)  # cli and server may include every layer
BELOW["cli"] = TOP
BELOW["server"] = TOP
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')


def main() -> int:
    root = pathlib.Path(__file__).resolve().parent.parent
    faults = 0
    for path in sorted([*(root / "src").rglob("*.h"), *(root / "src").rglob("*.cc")]):
        layer = path.relative_to(root / "src").parts[0]
        if layer not in BELOW:
            print(f"{path.relative_to(root)}: '{layer}' is no layer of scripts/check_includes.py")
            faults += 1
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            target = match.group(1).split("/")[0]
            if target in BELOW and target != layer and target not in BELOW[layer]:
                print(f"{path.relative_to(root)}:{number}: {layer}/ must not include {match.group(1)}")
                faults += 1
    for path in sorted((root / "include").rglob("*.h")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            if match and not match.group(1).startswith("moewe/"):
                print(f"{path.relative_to(root)}:{number}: a public header includes {match.group(1)}")
                faults += 1
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
