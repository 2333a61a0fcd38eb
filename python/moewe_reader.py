"""A reader of CMF v2 model files: standard library and numpy, one file.

    import moewe_reader
    model = moewe_reader.open("model.cmf")        # any shard of a set opens all of it
    model.tensors["model.norm.weight"].shape
    weights = model.read("lm_head.weight")        # float32, decoded
    model.read(name, skill="sql")                 # the skill's tensor where it has one
    model.read(name, skill={"sql": 0.6, "prose": 0.4})   # a blend
    model.skills["sql"]                           # its record; model.skill_tensors("sql") its tensors
    model.energy("sql", phi)                      # how far a prompt's state is from the skill's texts
    model.masks["code"].ffn[3]                    # bool array, True = active
    model.check()                                 # would a runtime accept it as a model?
    moewe_reader.verify("model.cmf")              # [] or what is wrong

Opening checks everything but the tensors' own hashes, as strictly as moewe itself: a file is valid
or opening raises CmfError, whose `code` is that of moewe's errors. The layouts are described in
docs/formats/cmf.md.
"""

import argparse
import base64
import binascii
import json
import mmap
import os
import re
import struct
import sys

import numpy as np

_open = open  # the module has its own
__version__ = "0.1.0"
__all__ = ["CmfError", "Model", "Tensor", "TaskMask", "decode", "hash64", "open", "verify"]

ENVELOPE_SIZE = 128
FEATURES = ["TENSOR_DIR", "BINARY_MASKS", "QUANT_2F", "DELTA_MASKS", "HOT_PACKS", "LOOP_MASKS",
            "SKILL_FILE"]
KNOWN_FEATURES = 0b1100111
LAYER_TYPES = {"FullAttention", "LinearAttention", "SlidingAttention", "ShortConv", "Kda"}
LARGEST_SIZE = (2**32 - 1) // 2
MAX_DEPTH = 256
MAX_LOOPS = 64
GROUP = 32
VBIT_WIDTHS = (3, 4, 5, 6, 8)


class CmfError(Exception):
    """What is wrong with a file: `code` (Parse, Bounds, HashMismatch, ...), `field`, `file`."""

    def __init__(self, code, message, field="", file=""):
        self.code, self.message, self.field, self.file = code, message, field, file
        super().__init__(f"{file}: {field}: {code}: {message}")


# --- hashing -------------------------------------------------------------------------------------


def _fmix64(k):
    k = k ^ (k >> np.uint64(33))
    k = k * np.uint64(0xFF51AFD7ED558CCD)
    k = k ^ (k >> np.uint64(33))
    k = k * np.uint64(0xC4CEB9FE1A85EC53)
    return k ^ (k >> np.uint64(33))


def hash64(data):
    """The format's hash (section 8) of bytes, as an int."""
    data = memoryview(data).cast("B")
    length, fold, step = len(data), np.uint64(0), 1 << 20
    with np.errstate(over="ignore"):
        for begin in range(0, length, step * 8):
            chunk = bytes(data[begin : begin + step * 8])
            chunk += b"\0" * (-len(chunk) % 8)
            words = np.frombuffer(chunk, "<u8")
            index = np.arange(begin // 8, begin // 8 + len(words), dtype=np.uint64)
            salted = _fmix64(words) ^ (index * np.uint64(0x9E3779B97F4A7C15))
            fold ^= np.bitwise_xor.reduce(salted)
        return int(_fmix64(np.array([fold ^ np.uint64(length)], np.uint64))[0])


# --- dtypes --------------------------------------------------------------------------------------

DTYPES = {0: "f32", 1: "f16", 2: "bf16", 3: "q8_row", 4: "q4_block", 6: "u8", 8: "vbit",
          9: "q8_2f", 10: "vbit_ro", 11: "q4_tiled", 12: "q1", 13: "q1s", 14: "q1t", 15: "q4tp"}
GROUPED = {"vbit", "vbit_ro", "q4_tiled", "q1", "q1s", "q1t", "q4tp"}
MATRIX_ONLY = GROUPED | {"q8_row", "q8_2f"}


def _f16(data):
    """f16 bytes as float32, bit for bit (also NaN payloads)."""
    bits = np.frombuffer(data, "<u2").astype(np.uint32)
    special = (bits & 0x7C00) == 0x7C00
    values = np.frombuffer(data, "<f2").astype(np.float32)
    exact = ((bits & 0x8000) << 16 | 0x7F800000 | (bits & 0x3FF) << 13).view(np.float32)
    return np.where(special, exact.view(np.uint32), values.view(np.uint32)).view(np.float32)


def _holds(dtype, rows, cols, ndim):
    if dtype in MATRIX_ONLY and ndim != 2:
        return False
    if dtype in GROUPED and cols % GROUP:
        return False
    if dtype == "q1s" and rows * cols > 2**32:
        return False
    return dtype != "q1t" or cols <= 0xFFFF


def _fixed_size(dtype, rows, cols):
    """Bytes of the encoding; None where only the data tells."""
    n, groups = rows * cols, cols // GROUP
    if dtype in ("f32",):
        return 4 * n
    if dtype in ("f16", "bf16"):
        return 2 * n
    if dtype == "u8":
        return n
    if dtype == "q8_row":
        return n + 2 * rows
    if dtype == "q8_2f":
        return n + 2 * (rows + cols)
    if dtype == "q4_block":
        return (n + GROUP - 1) // GROUP * 18
    if dtype == "q4_tiled":
        return rows * groups * 18
    if dtype == "q1":
        return rows * groups * 6
    if dtype == "q4tp":
        return rows * (groups * 16 + 4 + (groups * 5 + 7) // 8)
    return None


def _variable_extent(dtype, data, rows, cols, fail):
    """Checks what a payload of data-dependent length says about itself; fail(code, message)."""
    groups = cols // GROUP
    if dtype in ("vbit", "vbit_ro"):
        table = 4 * (rows + 1) if dtype == "vbit_ro" else 0
        packed = rows + 2 * rows * groups + table
        if packed > len(data):
            fail("Bounds", f"{len(data)} bytes stored, the shape needs more than {packed}")
        widths = np.frombuffer(data, np.uint8, rows)
        wrong = np.flatnonzero(~np.isin(widths, VBIT_WIDTHS))
        if len(wrong):
            fail("Bounds", f"row {wrong[0]} has width {widths[wrong[0]]}, not one of 3, 4, 5, 6, 8")
        ends = np.cumsum(widths.astype(np.uint64) * np.uint64(cols // 8))
        total = packed + (int(ends[-1]) if rows else 0)
        if total != len(data):
            fail("Bounds", f"{len(data)} bytes stored, the widths need {total}")
        if table:
            offsets = np.frombuffer(data, "<u4", rows + 1, rows + 2 * rows * groups)
            if offsets[0] != 0 or not np.array_equal(offsets[1:].astype(np.uint64), ends):
                fail("Bounds", "the row offsets are not those that the widths give")
        return
    tiles = rows * groups * (6 if dtype == "q1s" else 9)
    if dtype == "q1s":
        if tiles + 4 > len(data):
            fail("Bounds", f"{len(data)} bytes stored, the shape needs {tiles + 4}")
        count = struct.unpack_from("<I", data, tiles)[0]
        if tiles + 4 + 6 * count != len(data):
            fail("Bounds", f"{len(data)} bytes stored, {count} entries need another number")
        index = _entries(data, tiles + 4, "<u4", 6)[0].astype(np.int64)
        if count and index.max() >= rows * cols:
            fail("Bounds", "an overlay entry is for a weight that does not exist")
        if np.any(np.diff(index) <= 0):
            fail("Parse", "the overlay is out of order")
        return
    pointers_end = tiles + 4 * (rows + 1)
    if pointers_end > len(data):
        fail("Bounds", f"{len(data)} bytes stored, the shape needs {pointers_end}")
    pointers = np.frombuffer(data, "<u4", rows + 1, tiles).astype(np.int64)
    if pointers[0] != 0 or np.any(np.diff(pointers) < 0):
        fail("Parse", "the row pointers are out of order")
    if pointers_end + 4 * int(pointers[-1]) != len(data):
        fail("Bounds", f"{len(data)} bytes stored, {pointers[-1]} entries need another number")
    columns = _entries(data, pointers_end, "<u2", 4)[0]
    if len(columns) and columns.max() >= cols:
        fail("Bounds", "an overlay entry is for a column that does not exist")


def _entries(data, offset, index_type, size):
    """Indices and values of an overlay."""
    raw = np.frombuffer(data, np.uint8, len(data) - offset, offset).reshape(-1, size)
    width = size - 2
    return (np.ascontiguousarray(raw[:, :width]).view(index_type).ravel(),
            _f16(np.ascontiguousarray(raw[:, width:]).tobytes()))


def _nibbles(raw):
    """[..., 16] bytes to [..., 32] signed values."""
    low, high = (raw & 15).astype(np.int32) - 8, (raw >> 4).astype(np.int32) - 8
    return np.stack([low, high], -1).reshape(*raw.shape[:-1], 32).astype(np.float32)


def _tiles(data, count, size):
    """Scales [count, 1] and the other bytes [count, size - 2] of tiles at the start of data."""
    raw = np.frombuffer(data, np.uint8, count * size).reshape(count, size)
    return _f16(np.ascontiguousarray(raw[:, :2]).tobytes())[:, None], raw[:, 2:]


def _decode_vbit(data, rows, cols, has_table):
    groups = cols // GROUP
    widths = np.frombuffer(data, np.uint8, rows)
    scales = _f16(data[rows : rows + 2 * rows * groups]).reshape(rows, groups, 1)
    out = np.empty((rows, groups, GROUP), np.float32)
    position = rows + 2 * rows * groups + (4 * (rows + 1) if has_table else 0)
    for row, width in enumerate(widths.tolist()):
        size = cols // 8 * width
        bits = np.unpackbits(np.frombuffer(data, np.uint8, size, position)).reshape(cols, width)
        weights = (1 << np.arange(width - 1, -1, -1)).astype(np.int32)
        codes = bits.astype(np.int32) @ weights - ((1 << (width - 1)) - 1)
        out[row] = codes.astype(np.float32).reshape(groups, GROUP) * scales[row]
        position += size
    return out.reshape(-1)


def _decode_q4tp(data, rows, cols):
    groups = cols // GROUP
    quants = _nibbles(np.frombuffer(data, np.uint8, rows * groups * 16).reshape(rows, groups, 16))
    offset = rows * groups * 16
    params = _f16(data[offset : offset + 4 * rows]).reshape(rows, 2)
    code_bytes = (groups * 5 + 7) // 8
    raw = np.frombuffer(data, np.uint8, rows * code_bytes, offset + 4 * rows)
    bits = np.unpackbits(raw.reshape(rows, code_bytes), axis=1, bitorder="little")
    codes = bits[:, : groups * 5].reshape(rows, groups, 5) @ np.array([1, 2, 4, 8, 16], np.uint8)
    powers = np.exp2(params.astype(np.float64)).astype(np.float32)
    ladder = np.empty((rows, 32), np.float32)
    ladder[:, 0] = powers[:, 0]
    for rung in range(1, 32):  # the running f32 product is the definition
        ladder[:, rung] = ladder[:, rung - 1] * powers[:, 1]
    return (quants * np.take_along_axis(ladder, codes.astype(np.int64), 1)[:, :, None]).reshape(-1)


def _decode_flat(dtype, data, rows, cols):
    n, count = rows * cols, rows * (cols // GROUP)
    if dtype == "f32":
        return np.frombuffer(data, "<f4").copy()
    if dtype == "f16":
        return _f16(data)
    if dtype == "bf16":
        return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
    if dtype == "u8":
        return np.frombuffer(data, np.uint8).astype(np.float32)
    if dtype in ("q8_row", "q8_2f"):
        quants = np.frombuffer(data, np.int8, n).astype(np.float32).reshape(rows, cols)
        fields = _f16(data[n:])
        values = quants * fields[:rows, None]
        return (values * fields[None, rows:] if dtype == "q8_2f" else values).reshape(-1)
    if dtype == "q4_block":
        groups = (n + GROUP - 1) // GROUP
        quants = _nibbles(np.frombuffer(data, np.uint8, groups * 16).reshape(groups, 16))
        return (quants * _f16(data[groups * 16 :])[:, None]).reshape(-1)[:n]
    if dtype == "q4_tiled":
        scales, raw = _tiles(data, count, 18)
        return (_nibbles(raw) * scales).reshape(-1)
    if dtype in ("vbit", "vbit_ro"):
        return _decode_vbit(data, rows, cols, dtype == "vbit_ro")
    if dtype in ("q1", "q1s"):
        scales, raw = _tiles(data, count, 6)
        bits = np.unpackbits(raw, axis=1, bitorder="little").astype(np.float32)
        values = (scales * (2 * bits - 1)).reshape(-1)
        if dtype == "q1s":
            index, kept = _entries(data, count * 6 + 4, "<u4", 6)
            values[index.astype(np.int64)] = kept
        return values
    if dtype == "q1t":
        scales, raw = _tiles(data, count, 9)
        digits = raw[:, :, None].astype(np.int32) // np.array([1, 3, 9, 27, 81]) % 3
        digits = digits.reshape(count, 35)[:, :GROUP]
        values = np.where(digits == 1, scales, np.where(digits == 2, -scales, np.float32(0)))
        values = values.astype(np.float32).reshape(rows, cols)
        pointers = np.frombuffer(data, "<u4", rows + 1, count * 9).astype(np.int64)
        columns, kept = _entries(data, count * 9 + 4 * (rows + 1), "<u2", 4)
        values[np.repeat(np.arange(rows), np.diff(pointers)), columns.astype(np.int64)] = kept
        return values.reshape(-1)
    assert dtype == "q4tp", dtype
    return _decode_q4tp(data, rows, cols)


def _matrix(shape):
    """rows, cols of a shape; rows * cols is the element count."""
    rows = 1
    for dimension in shape[:-1]:
        rows *= dimension
    return rows, (shape[-1] if len(shape) else 1)


def _check_payload(dtype, data, shape, fail):
    rows, cols = _matrix(shape)
    if not _holds(dtype, rows, cols, len(shape)):
        fail("Parse", f"{dtype} cannot hold the shape {list(shape)}")
    size = _fixed_size(dtype, rows, cols)
    if size is None:
        _variable_extent(dtype, data, rows, cols, fail)
    elif size != len(data):
        fail("Bounds", f"{len(data)} bytes stored, the shape needs {size}")


def decode(dtype, data, shape):
    """A payload as a float32 array of `shape`; `dtype` is a name of DTYPES. Raises CmfError."""

    def fail(code, message):
        raise CmfError(code, message, "payload")

    data = bytes(data)
    _check_payload(dtype, data, shape, fail)
    with np.errstate(all="ignore"):
        return _decode_flat(dtype, data, *_matrix(shape)).reshape(tuple(shape))


# --- JSON ----------------------------------------------------------------------------------------


def _parse_json(data, file, field):
    def fail(message):
        raise CmfError("Parse", message, field, file)

    def unique(pairs):
        result = dict(pairs)
        if len(result) != len(pairs):
            fail("a key is given twice")
        return result

    def constant(name):
        fail(f"{name} is no JSON value")

    def real(text):
        value = float(text)
        if value in (float("inf"), float("-inf")):
            fail(f"{text} is too large")
        return value

    try:
        text = bytes(data).decode("utf-8")
        depth = deepest = 0
        for token in re.finditer(r'"(?:[^"\\]|\\.)*"|[\[{\]}]', text, re.S):
            if token[0] in "[{":
                depth += 1
                deepest = max(deepest, depth)
            elif token[0] in "]}":
                depth -= 1
        if deepest > MAX_DEPTH:
            fail("nested too deep")
        value = json.loads(text, object_pairs_hook=unique, parse_constant=constant,
                           parse_float=real)
        json.dumps(value, ensure_ascii=False).encode("utf-8")  # no lone surrogates
        return value
    except UnicodeError:
        fail("not UTF-8")
    except (ValueError, RecursionError) as error:
        fail(f"not valid JSON: {error}")


def _halves(text):
    """The f16 values of a base64 string as float32; None for anything else."""
    try:
        data = base64.b64decode(text, validate=True) if isinstance(text, str) else b"?"
    except (binascii.Error, ValueError):
        return None
    if len(data) % 2 or base64.b64encode(data).decode() != text:
        return None
    values = np.frombuffer(data, "<f2").astype(np.float32)
    return values if np.isfinite(values).all() else None


def _check_skill(skill, arch, fail):
    """Whether a record of the registry (section 9) is well-formed; null means absent."""
    if not isinstance(skill, dict):
        fail("", "is no object")
    for key in ("id", "name", "input_mask_task", "base_dir_hash", "base_arch", "task"):
        if skill.get(key) is not None and not isinstance(skill[key], str):
            fail(f".{key}", "is no string")
    if not skill.get("id"):
        fail(".id", "is required and a string that is not empty")
    if any(ord(c) < 0x20 or ord(c) == 0x7F for c in skill["id"]):
        fail(".id", "has characters that no id may have")
    if skill.get("quality") is not None and not isinstance(skill["quality"], dict):
        fail(".quality", "is no object")
    base = skill.get("base_dir_hash")
    if base is not None and not re.fullmatch("[0-9a-f]{16}", base):
        fail(".base_dir_hash", "is not 16 lower-case hex digits")

    def layer(value, key):
        if not _is_unsigned(value) or value >= arch["num_layers"]:
            fail(key, f"is no layer of the {arch['num_layers']} that there are")

    layers = skill.get("layers") or []
    if not isinstance(layers, list):
        fail(".layers", "is no list")
    for i, value in enumerate(layers):
        layer(value, f".layers[{i}]")
    selection = skill.get("selection")
    if selection is None:
        return
    if not isinstance(selection, dict):
        fail(".selection", "is no object")
    if selection.get("metric") is not None and not isinstance(selection["metric"], str):
        fail(".selection.metric", "is no string")
    layer(selection.get("phi_layer"), ".selection.phi_layer")
    mean, basis = _halves(selection.get("mean")), _halves(selection.get("basis"))
    hidden = arch["hidden_size"]
    if mean is None or len(mean) != hidden:
        fail(".selection.mean", f"is no base64 of {hidden} f16 values")
    rank = selection.get("rank")
    if rank is not None and not _is_unsigned(rank):
        fail(".selection.rank", "is no unsigned integer")
    if basis is None or len(basis) != (len(basis) // max(hidden, 1) if rank is None
                                       else rank) * hidden:
        fail(".selection.basis", "is no base64 of f16 values, rank rows of hidden_size")


def _is_unsigned(value):
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _as_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


# --- one file ------------------------------------------------------------------------------------


class Tensor:
    """A directory record: name, dtype, shape, nbytes, hash, offset (absolute) and data."""

    __slots__ = ("name", "dtype", "shape", "nbytes", "hash", "offset", "file")

    @property
    def data(self):
        return self.file.data[self.offset : self.offset + self.nbytes]


class TaskMask:
    """What of the model is active for a task. Bool arrays: ffn [layers or visits, intermediate],
    heads [layers, heads], layers [layers], experts [layers, experts] or None."""

    __slots__ = ("name", "task_id", "meta", "ffn", "heads", "layers", "experts")


def _bits(data, rows, bits, fail):
    size = (bits + 7) // 8
    raw = np.frombuffer(data, np.uint8, rows * size).reshape(rows, size)
    fields = np.unpackbits(raw, axis=1, bitorder="little").astype(bool)
    if fields[:, bits:].any():
        fail("bits are set beyond the dimension")
    return fields[:, :bits]


class _File:
    """One .cmf file, parsed and checked."""

    def __init__(self, path, problems=None):
        self.path = path
        try:
            with _open(path, "rb") as handle:
                size = os.fstat(handle.fileno()).st_size
                self._map = mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
        except FileNotFoundError:
            raise CmfError("NotFound", "no such file", "", path) from None
        except OSError as error:
            raise CmfError("Io", str(error), "", path) from None
        self.data = memoryview(self._map)
        self._problems = problems  # hashes that differ are collected here, if given, not raised
        self._envelope()
        self._check_hash("header", self._section("header"), self.header_hash)
        self.header = _parse_json(self._section("header"), path, "header")
        self._check_header()
        self._check_hash("directory", self._section("dir"), self.dir_hash)
        self._directory()
        hashes = self.header.get("section_hashes") or {}
        for key in ("masks", "vocab", "index"):
            stored = hashes.get(key)
            if stored is None or not self.sections[key][1]:
                continue
            if not isinstance(stored, str) or not re.fullmatch("[0-9a-f]{16}", stored):
                self._hash_problem(key, "the stored hash is not 16 lower-case hex digits")
                continue
            self._check_hash(key, self._section(key), int(stored, 16))
        self.masks, self.default_task = self._masks()
        self.sparse_index = self._index()
        self.tokenizer = bytes(self._section("vocab"))

    def fail(self, code, message, field):
        raise CmfError(code, message, field, self.path)

    def _section(self, name):
        offset, length = self.sections[name]
        return self.data[offset : offset + length]

    def _hash_problem(self, field, message):
        if self._problems is None:
            self.fail("HashMismatch", message, field)
        self._problems.append(CmfError("HashMismatch", message, field, self.path))

    def _check_hash(self, field, data, stored):
        if stored and hash64(data) != stored:
            self._hash_problem(field, f"hash {stored:016x} is stored, the bytes have another")

    def _envelope(self):
        data = self.data
        if len(data) >= 4 and bytes(data[:4]) != b"CMF\x01":
            self.fail("InvalidMagic", "the file does not begin with CMF\\x01", "magic")
        if len(data) < ENVELOPE_SIZE:
            self.fail("Bounds", f"{len(data)} bytes are too few for the envelope", "envelope")
        version, self.flags, self.required_features = struct.unpack_from("<III", data, 4)
        if version != 2:
            self.fail("UnsupportedVersion", f"version {version}, not 2", "version")
        unknown = self.required_features & ~KNOWN_FEATURES
        if unknown:
            names = [FEATURES[b] if b < len(FEATURES) else f"bit {b}" for b in range(32)
                     if unknown >> b & 1]
            self.fail("UnsupportedFeature", ", ".join(names), "required_features")
        words = struct.unpack_from("<14Q", data, 0x10)
        self.sections = {}
        for i, name in enumerate(("header", "dir", "data", "masks", "vocab", "index")):
            offset, length = words[2 * i], words[2 * i + 1]
            if not length and name in ("header", "dir"):
                self.fail("Bounds", "the section is required", f"envelope.{name}")
            if length and offset + length > len(data):
                self.fail("Bounds", "the section runs past the file", f"envelope.{name}")
            self.sections[name] = (offset if length or name == "data" else 0, length)
        self.header_hash, self.dir_hash = words[12:]
        if self.sections["data"][0] % 4096:
            self.fail("Bounds", "data_off is not a multiple of 4096", "envelope.data_off")

    def _check_header(self):
        header = self.header

        def fail(field, problem):
            self.fail("Parse", problem, f"header.{field}")

        def unsigned(block, key, prefix=""):
            value = block.get(key)
            if not _is_unsigned(value) or value > LARGEST_SIZE:
                fail(prefix + key, "is required and an integer from 0 to 2^31")
            return value

        if not isinstance(header, dict):
            fail("", "is no object")
        if header.get("format") not in (None, "cmf"):
            fail("format", 'is not "cmf"')
        if unsigned(header, "version") != 2:
            fail("version", "is not 2")
        if not isinstance(header.get("quant_type"), str):
            fail("quant_type", "is required and a string")
        arch = header.get("arch")
        if not isinstance(arch, dict):
            fail("arch", "is required and an object")
        if not isinstance(arch.get("arch_name"), str):
            fail("arch.arch_name", "is required and a string")
        for key in ("hidden_size", "num_kv_heads", "head_dim", "vocab_size",
                    "max_position_embeddings", "intermediate_size", "num_attention_heads"):
            unsigned(arch, key, "arch.")
        layers = unsigned(arch, "num_layers", "arch.")
        if not _as_number(arch.get("rms_norm_eps")):
            fail("arch.rms_norm_eps", "is required and a number")
        types = arch.get("layer_types")
        if not isinstance(types, list) or len(types) != layers:
            fail("arch.layer_types", "is required and a list with one entry a layer")
        for tag in types:
            if not isinstance(tag, str) or tag not in LAYER_TYPES:
                fail("arch.layer_types", f"has an unknown layer type {tag!r}")
        self.loops = 1 if arch.get("num_loops") is None else unsigned(arch, "num_loops", "arch.")
        if not 1 <= self.loops <= MAX_LOOPS:
            fail("arch.num_loops", f"is not from 1 to {MAX_LOOPS}")
        moe = arch.get("moe")
        self.experts = 0
        if moe is not None:
            if not isinstance(moe, dict):
                fail("arch.moe", "is no object")
            self.experts = unsigned(moe, "num_experts", "arch.moe.")
            unsigned(moe, "top_k", "arch.moe.")
        shard = header.get("shard")
        self.shard = None
        if shard is not None:
            if not isinstance(shard, dict):
                fail("shard", "is no object")
            no, count = unsigned(shard, "no", "shard."), unsigned(shard, "count", "shard.")
            if not 1 <= no <= count <= 99999:
                fail("shard", "does not hold 1 <= no <= count")
            self.shard = (no, count)
        skills = header.get("skills")
        if skills is None:
            skills = []
        if not isinstance(skills, list):
            fail("skills", "is no list")
        self.skills = {}
        for i, skill in enumerate(skills):
            _check_skill(skill, arch, lambda key, problem, i=i: fail(f"skills[{i}]{key}", problem))
            if skill["id"] in self.skills:
                fail(f"skills[{i}].id", "appears twice")
            self.skills[skill["id"]] = skill
        for key in ("tokenizer_config", "section_hashes"):
            if header.get(key) is not None and not isinstance(header[key], dict):
                fail(key, "is no object")

    def _directory(self):
        section = self._section("dir")
        base, data_length = self.sections["data"]
        if len(section) < 16:
            self.fail("Bounds", "the directory is too short", "directory")
        count, pool_offset = struct.unpack_from("<QQ", section)
        if count * 56 > len(section) - 16:
            self.fail("Parse", f"{count} records do not fit the section", "directory.count")
        if not 16 + count * 56 <= pool_offset <= len(section):
            self.fail("Parse", "the name pool is not after the records", "directory.pool_off")
        pool = section[pool_offset:]
        self.tensors = {}
        names_left = len(section)  # names may share bytes, but short records make no long names
        extents = [(0, ENVELOPE_SIZE, "the envelope")]
        for name in ("header", "dir", "masks", "vocab", "index"):
            offset, length = self.sections[name]
            if length:
                extents.append((offset, offset + length, f"the {name} section"))
        for i in range(count):
            fields = struct.unpack_from("<IHBB6IQQQ", section, 16 + 56 * i)
            names_left -= fields[1]
            if names_left < 0:
                self.fail("Parse", "the names are longer than the whole directory", f"directory[{i}].name")
            tensor = self._record(i, fields, pool, base, data_length)
            if tensor.name in self.tensors:
                self.fail("Parse", f"'{tensor.name}' appears twice", f"directory[{i}].name")
            self.tensors[tensor.name] = tensor
            if tensor.nbytes:
                extents.append((tensor.offset, tensor.offset + tensor.nbytes, tensor.name))
        extents.sort()
        for before, after in zip(extents, extents[1:]):
            if after[0] < before[1]:
                self.fail("Bounds", f"{before[2]} and {after[2]} share bytes", "directory")

    def _record(self, i, fields, pool, base, data_length):
        name_offset, name_length, dtype_id, ndim = fields[:4]
        shape, (offset, nbytes, stored_hash) = fields[4:10], fields[10:]

        def fail(code, message, field):
            self.fail(code, message, f"directory[{i}].{field}")

        if name_length == 0 or name_offset + name_length > len(pool):
            fail("Parse", "the name is empty or lies outside of the name pool", "name")
        tensor = Tensor()
        try:
            tensor.name = bytes(pool[name_offset : name_offset + name_length]).decode("utf-8")
        except UnicodeDecodeError:
            fail("Parse", "the name is not UTF-8", "name")
        if dtype_id not in DTYPES:
            kind = "reserved" if dtype_id in (5, 7) else "unknown"
            fail("Parse", f"'{tensor.name}' has the {kind} dtype id {dtype_id}", "dtype")
        if ndim > 6:
            fail("Parse", f"'{tensor.name}' has {ndim} dimensions", "ndim")
        if any(shape[ndim:]):
            fail("Parse", f"'{tensor.name}' gives sizes beyond its dimensions", "shape")
        tensor.file, tensor.dtype = self, DTYPES[dtype_id]
        tensor.shape, tensor.nbytes, tensor.hash = shape[:ndim], nbytes, stored_hash
        rows, cols = _matrix(tensor.shape)
        if rows >= 2**64 or rows * cols >= 2**64:
            fail("Bounds", "the element count does not fit 64 bits", "shape")
        if rows * cols == 0 and nbytes:
            fail("Bounds", f"'{tensor.name}' has no elements but bytes", "shape")
        if offset % 64:
            fail("Bounds", f"the offset of '{tensor.name}' is not a multiple of 64", "off")
        if offset + nbytes > data_length:
            fail("Bounds", f"'{tensor.name}' runs past the data section", "off")
        tensor.offset = base + offset
        _check_payload(tensor.dtype, tensor.data, tensor.shape,
                       lambda code, message: fail(code, f"'{tensor.name}': {message}", "nbytes"))
        return tensor

    def _masks(self):
        section = self._section("masks")
        if not len(section):
            return {}, None

        def fail(message, field="masks"):
            self.fail("Parse", message, field)

        if len(section) < 8:
            fail("the section is too short")
        count, meta_length = struct.unpack_from("<II", section)
        if meta_length > len(section) - 8:
            fail("meta_len runs past the section")
        meta = _parse_json(section[8 : 8 + meta_length], self.path, "masks.meta")
        if not isinstance(meta, dict) or not isinstance(meta.get("masks"), list):
            fail("has no list of masks", "masks.meta")
        if len(meta["masks"]) != count:
            fail(f"says {count} masks, the metadata lists {len(meta['masks'])}")
        if not self.header["arch"]["num_attention_heads"]:
            fail("the model has no attention heads")
        masks = {}
        self._unclaimed = len(section) - 8 - meta_length
        for i, record in enumerate(meta["masks"]):
            mask = self._mask(record, section, lambda message: fail(message, f"masks[{i}]"))
            masks.setdefault(mask.name, mask)
        default = meta.get("default_task")
        return masks, default if isinstance(default, str) else None

    def _mask(self, record, section, fail):
        if not isinstance(record, dict):
            fail("is no object")
        for key in ("task_id", "blob_off", "blob_len"):
            if not _is_unsigned(record.get(key)):
                fail(f"{key} is required and an unsigned integer")
        if record["task_id"] >= 2**32:
            fail("task_id does not fit 32 bits")
        if not isinstance(record.get("name"), str):
            fail("name is required and a string")
        has_experts = record.get("has_expert_fields") is True
        if has_experts and not self.experts:
            fail("the model has no experts")
        begin, length = record["blob_off"], record["blob_len"]
        if begin + length > len(section):
            fail("the blob runs past the section")
        if length > self._unclaimed:
            fail("the blobs are longer than what is behind the metadata")
        self._unclaimed -= length
        blob = section[begin : begin + length]
        arch = self.header["arch"]
        layers, ffn = arch["num_layers"], arch["intermediate_size"]
        heads = arch["num_attention_heads"]

        def size(bits):
            return (bits + 7) // 8

        rest = layers * (size(heads) + (size(self.experts) if has_experts else 0)) + size(layers)
        ffn_rows = layers * self.loops
        if length != ffn_rows * size(ffn) + rest:
            ffn_rows = layers
            if length != ffn_rows * size(ffn) + rest:
                fail(f"{length} bytes, the model's masks take {ffn_rows * size(ffn) + rest}")
        mask = TaskMask()
        mask.name, mask.task_id, mask.meta, position = record["name"], record["task_id"], record, 0

        def rows(number, bits):
            nonlocal position
            end = position + number * size(bits)
            fields = _bits(blob[position:end], number, bits, fail)
            position = end
            return fields

        mask.ffn, mask.heads = rows(ffn_rows, ffn), rows(layers, heads)
        mask.layers = rows(1, layers)[0]
        mask.experts = rows(layers, self.experts) if has_experts else None
        return mask

    def _index(self):
        section = self._section("index")
        if not len(section):
            return []

        def take(position, length):
            if length > len(section) - position:
                self.fail("Parse", "an entry runs past the section", "index")
            return position + length

        entries = []
        position = take(0, 8)
        for _ in range(struct.unpack_from("<I", section)[0]):
            begin, position = position, take(position, 16)
            task, layer, groups, heads = struct.unpack_from("<IIII", section, begin)
            begin, position = position, take(position, 2 * groups)
            group_list = np.frombuffer(section, "<u2", groups, begin).tolist()
            begin, position = position, take(position, heads)
            head_list = list(section[begin:position])
            position = take(position, -position % 4)
            entries.append((task, layer, group_list, head_list))
        return entries


# --- a model -------------------------------------------------------------------------------------

_SHARD_NAME = re.compile(r"-(\d{5})-of-(\d{5})\.cmf$")


class Model:
    """A file or a set of shards: header, tensors by name, masks, skills, tokenizer."""

    def __init__(self, files):
        first = files[0]
        self.files = [file.path for file in files]
        self.header, self.masks, self.default_task = first.header, first.masks, first.default_task
        self.skills, self.tokenizer = first.skills, first.tokenizer
        self.sparse_index, self.required_features = first.sparse_index, first.required_features
        self.tensors = {}
        for file in files:
            for name, tensor in file.tensors.items():
                if name in self.tensors:
                    raise CmfError("Parse", f"'{name}' is in two shards", "directory", file.path)
                self.tensors[name] = tensor

    def tensor(self, name, skill=None):
        """The directory record that a runtime reads for `name` with `skill` active."""
        if skill is not None:
            if skill not in self.skills:
                raise CmfError("UnknownName", f"no skill '{skill}'; there are: "
                               + (", ".join(self.skills) or "none"), "skill", self.files[0])
            replaced = self.tensors.get(f"skill.{skill}.{name}")
            if replaced is not None:
                base = self.tensor(name)
                if base.shape != replaced.shape:
                    raise CmfError("Parse", f"shape {list(replaced.shape)}, replaces one of "
                                   f"{list(base.shape)}", replaced.name, self.files[0])
                return replaced
        if name not in self.tensors:
            raise CmfError("MissingTensor", f"no tensor '{name}'", name, self.files[0])
        return self.tensors[name]

    def read(self, name, skill=None):
        """A tensor as float32; `skill` is an id, or the weights of several: {"a": 0.6, "b": 0.4}."""
        if isinstance(skill, dict):
            total = sum(np.float32(weight) * self.read(name, id) for id, weight in skill.items())
            return np.asarray(total, np.float32)
        tensor = self.tensor(name, skill)
        return decode(tensor.dtype, tensor.data, tensor.shape)

    def skill_tensors(self, skill):
        """What `skill` replaces: {name of the backbone's tensor: the skill's}. Ids may contain dots: a
        name that fits several of them is that of the one whose rest the backbone has, else of the
        longest."""
        result = {}
        for name, tensor in self.tensors.items():
            fits = [id for id in self.skills if name.startswith(f"skill.{id}.")
                    and len(name) > len(id) + 7]
            if not fits:
                continue
            rest = {id: name[len(id) + 7:] for id in fits}
            owner = max(fits, key=lambda id: (rest[id] in self.tensors
                                              and not rest[id].startswith("skill."), len(id)))
            if owner == skill:
                result[rest[owner]] = tensor
        return result

    def energy(self, skill, phi):
        """E of section 9 for `phi`, the mean over a prompt's positions of the residual stream after
        layer self.skills[skill]["selection"]["phi_layer"]: the skill with the least is chosen."""
        selection = self.skills[skill]["selection"]
        phi = np.asarray(phi, np.float64)
        r = phi - _halves(selection["mean"])
        explained = _halves(selection["basis"]).reshape(-1, len(phi)).astype(np.float64) @ r
        return max(r @ r - explained @ explained, 0.0) / (phi @ phi)

    def index_faults(self):
        """Entries of the sparse index that speak of no mask or layer of the file, are out of order or
        range, or differ from the mask (with loops, groups live in some passes can't be told)."""
        arch = self.header["arch"]
        groups_end, heads_end = (arch["intermediate_size"] + GROUP - 1) // GROUP, arch["num_attention_heads"]
        masks = {mask.task_id: mask for mask in reversed(self.masks.values())}
        seen = set()
        for i, (task, layer, groups, heads) in enumerate(self.sparse_index):
            problem = None
            mask = masks.get(task)
            if mask is None:
                problem = f"is of the unknown task {task}"
            elif layer >= arch["num_layers"]:
                problem = f"is of layer {layer}"
            elif (task, layer) in seen:
                problem = f"is the second of mask '{mask.name}' and layer {layer}"
            elif any(values != sorted(set(values)) or (values and values[-1] >= end)
                     for values, end in ((groups, groups_end), (heads, heads_end))):
                problem = "lists groups or heads out of order or out of range"
            else:
                live = sorted(set((np.flatnonzero(mask.ffn[layer]) // GROUP).tolist()))
                whole = len(mask.ffn) == arch["num_layers"]
                if heads != np.flatnonzero(mask.heads[layer]).tolist() or (whole and groups != live):
                    problem = f"differs from mask '{mask.name}' in layer {layer}"
            if problem:
                yield CmfError("Parse", f"entry {i} {problem}", "index", self.files[0])
            seen.add((task, layer))

    def skill_faults(self):
        """Tensors of skills that replace nothing, or something of another shape."""
        for skill in self.skills:
            for name in self.skill_tensors(skill):
                try:
                    self.tensor(name, skill)
                except CmfError as error:
                    yield error

    def router_faults(self):
        """Routers with more or fewer rows than their layer has experts, experts numbered with gaps."""
        experts = {}
        for name in self.tensors:
            found = re.match(r"model\.layers\.(\d+)\.mlp\.experts\.(\d+)", name)
            if found:
                experts.setdefault(int(found[1]), set()).add(int(found[2]))
        for layer, numbers in sorted(experts.items()):
            router = self.tensors.get(f"model.layers.{layer}.mlp.gate.weight")
            if router is None or len(router.shape) != 2:
                continue
            if not len(numbers) == max(numbers) + 1 == router.shape[0]:
                yield CmfError("Parse", f"the router has {router.shape[0]} rows, but the layer has {len(numbers)} "
                               f"experts numbered up to {max(numbers)}", router.name, self.files[0])

    def check(self):
        """Raises CmfError unless the structure is that of a model that can run: the tensors that
        every model needs are there and their shapes fit each other, the tokenizer is JSON."""
        arch = self.header["arch"]
        path = self.files[0]
        if any(skill.get("base_dir_hash") is not None for skill in self.skills.values()):
            raise CmfError("Parse", "a standalone skill is no model: apply it to its base", "skills",
                           path)
        for skill in self.skills:
            for name in self.skill_tensors(skill):
                self.tensor(name, skill)
        if self.tokenizer:
            _parse_json(self.tokenizer, path, "vocab")
        hidden, vocab = arch["hidden_size"], arch["vocab_size"]
        self._expect("model.embed_tokens.weight", (vocab, hidden))
        self._expect("model.norm.weight", (hidden,))
        if not arch.get("tie_word_embeddings"):
            self._expect("lm_head.weight", (vocab, hidden))
        for layer, tag in enumerate(arch["layer_types"]):
            prefix = f"model.layers.{layer}."
            if tag == "SlidingAttention" and not arch.get("sliding_window"):
                raise CmfError("Parse", "a SlidingAttention layer needs it",
                               "header.arch.sliding_window", path)
            self._expect(prefix + "input_layernorm.weight", (hidden,))
            self._expect(prefix + "post_attention_layernorm.weight", (hidden,))
            if prefix + "mlp.gate.weight" in self.tensors:
                self._check_experts(prefix + "mlp.", hidden)
            else:
                self._check_ffn(prefix + "mlp.", hidden)

    def _expect(self, name, shape):
        actual = self.tensor(name).shape
        if len(actual) != len(shape) or any(w is not None and w != a
                                            for w, a in zip(shape, actual)):
            raise CmfError("Parse", f"shape {list(actual)}, expected {list(shape)}", name,
                           self.files[0])
        return actual

    def _check_ffn(self, prefix, hidden):
        width = self._expect(prefix + "gate_proj.weight", (None, hidden))[0]
        self._expect(prefix + "up_proj.weight", (width, hidden))
        self._expect(prefix + "down_proj.weight", (hidden, width))

    def _check_experts(self, prefix, hidden):
        moe = self.header["arch"].get("moe")
        router = prefix + "gate.weight"
        if moe is None:
            raise CmfError("Parse", "a router, but no moe block in the header", router,
                           self.files[0])
        rows = self._expect(router, (None, hidden))[0]
        count = 0
        while (count < moe["num_experts"]
               and f"{prefix}experts.{count}.gate_proj.weight" in self.tensors):
            self._check_ffn(f"{prefix}experts.{count}.", hidden)
            count += 1
        if rows != count or count == 0:
            raise CmfError("Parse", f"{rows} rows, but the layer has {count} experts", router,
                           self.files[0])



def open(path):  # noqa: A001 (the module's verb, as in gzip.open)
    """The Model of a file; of a set of shards any name opens all of it. Raises CmfError."""
    path = os.fspath(path)
    file = _File(path)
    if file.shard is None:
        return Model([file])
    no, count = file.shard
    suffix = f"-{no:05}-of-{count:05}.cmf"
    if not path.endswith(suffix):
        raise CmfError("Parse", f"a shard whose name does not end with {suffix}", "header.shard",
                       path)
    files = []
    for i in range(1, count + 1):
        name = path[: -len(suffix)] + f"-{i:05}-of-{count:05}.cmf"
        part = file if i == no else _File(name)
        if part.shard != (i, count):
            raise CmfError("Parse", f"expected shard {i} of {count}", "header.shard", name)
        files.append(part)
        for key in ("arch", "shard_set"):
            if part.header.get(key) != files[0].header.get(key):
                raise CmfError("Parse", "the shard is of another model than shard 1",
                               f"header.{key}", name)
    return Model(files)


def verify(path):
    """The problems of one file (a shard alone, too), hashes of all tensors included."""
    problems = []
    try:
        file = _File(os.fspath(path), problems)
    except CmfError as error:  # what does not parse may be explained by a hash before it
        return problems + [error]
    model = Model([file])
    problems.extend(model.index_faults())
    if file.shard is None:  # of a shard alone the rest is elsewhere
        problems.extend(model.skill_faults())
        if all(skill.get("base_dir_hash") is None for skill in file.skills.values()):
            problems.extend(model.router_faults())
    for tensor in file.tensors.values():
        if tensor.hash and hash64(tensor.data) != tensor.hash:
            problems.append(CmfError("HashMismatch", "the bytes have another hash than stored",
                                     tensor.name, file.path))
    return problems


# --- command line --------------------------------------------------------------------------------


def _shown(text):
    """As part of one line on a terminal: control characters (C0, DEL, C1) escaped."""
    return "".join(c if " " <= c < "\x7f" or c >= "\xa0" else c.encode("unicode_escape").decode()
                   for c in str(text))


def _info(model):
    arch = model.header["arch"]
    print(f"{_shown(arch['arch_name'])}: {arch['num_layers']} layers, hidden {arch['hidden_size']}, "
          f"{len(model.tensors)} tensors in {len(model.files)} file(s)")
    totals = {}
    for tensor in model.tensors.values():
        count, size = totals.get(tensor.dtype, (0, 0))
        totals[tensor.dtype] = (count + 1, size + tensor.nbytes)
    for dtype, (count, size) in sorted(totals.items()):
        print(f"  {dtype:9} {count:6} tensors {size:14} bytes")
    for mask in model.masks.values():
        print(f"  mask {_shown(mask.name)}: {mask.ffn.mean():.1%} of FFN, {mask.heads.mean():.1%} of heads")
    for skill in model.skills.values():
        tensors = model.skill_tensors(skill["id"]).values()
        print(f"  skill {_shown(skill['id'])}: {_shown(skill.get('name') or '')} "
              f"({len(tensors)} tensors, {sum(tensor.nbytes for tensor in tensors)} bytes)")


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="moewe_reader", description="Reads CMF v2 model files.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb, text in (("info", "what it is"), ("tensors", "the directory"),
                       ("header", "the header JSON"), ("check", "whether it is a runnable model"),
                       ("verify", "every hash and bound of one file")):
        verbs.add_parser(verb, help=text).add_argument("file")
    dequant = verbs.add_parser("dequant", help="one tensor as f32")
    dequant.add_argument("file")
    dequant.add_argument("--tensor", required=True)
    dequant.add_argument("--skill")
    dequant.add_argument("--out", required=True)
    flags = parser.parse_args(arguments)
    try:
        if flags.verb == "verify":
            problems = verify(flags.file)
            for problem in problems:
                print(_shown(problem))
            print("FAULTY" if problems else "ok")
            return 3 if problems else 0
        model = open(flags.file)
        if flags.verb == "info":
            _info(model)
        elif flags.verb == "tensors":
            for tensor in model.tensors.values():
                print(f"{_shown(tensor.name)} {tensor.dtype} {list(tensor.shape)} {tensor.nbytes}")
        elif flags.verb == "header":
            print(json.dumps(model.header, indent=1, ensure_ascii=False))
        elif flags.verb == "check":
            model.check()
            print("ok")
        else:
            model.read(flags.tensor, flags.skill).astype("<f4").tofile(flags.out)
    except CmfError as error:
        print(f"moewe_reader: {_shown(error)}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
