"""The Python reader on the golden files: run with `python3 python/test_moewe_reader.py`."""

import json
import os
import pathlib
import struct
import sys
import tempfile
import unittest

try:
    import numpy as np
except ImportError:
    print("skipped: no numpy")
    sys.exit(77)

import moewe_reader as reader

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden" / "cmf"


def load(path):
    return json.loads((GOLDEN / path).read_text())


class ReaderTest(unittest.TestCase):
    def test_hash64(self):
        cases = load("hash64/hash64.json")["vectors"]
        self.assertGreater(len(cases), 10)
        for case in cases:
            self.assertEqual(f"{reader.hash64(bytes.fromhex(case['hex'])):016x}", case["hash64"])

    def test_codecs_bit_for_bit(self):
        entries = load("codecs/manifest.json")["entries"]
        for entry in entries:
            with self.subTest(entry["name"]):
                data = (GOLDEN / "codecs" / entry["encoded"]).read_bytes()
                values = reader.decode(entry["dtype"], data, (entry["rows"], entry["cols"]))
                expected = np.fromfile(GOLDEN / "codecs" / entry["decoded"], "<u4")
                np.testing.assert_array_equal(values.view(np.uint32).ravel(), expected)
                self.assertEqual(f"{reader.hash64(data):016x}", entry["hash64"])

    def test_files(self):
        checked = 0
        for path in sorted((GOLDEN / "files").glob("*.expected.json")):
            expected = json.loads(path.read_text())
            if "envelope" not in expected:
                continue
            with self.subTest(path.name):
                checked += 1
                model = reader.open(GOLDEN / "files" / expected["file"])
                self.assertEqual(model.header, expected["header"])
                self.assertEqual(model.required_features, expected["required_features"])
                self.assertEqual(len(model.tensors), len(expected["tensors"]))
                for record in expected["tensors"]:
                    tensor = model.tensors[record["name"]]
                    self.assertEqual(tensor.dtype, record["dtype"])
                    self.assertEqual(list(tensor.shape), record["shape"])
                    self.assertEqual(tensor.nbytes, record["nbytes"])
                    self.assertEqual(f"{tensor.hash:016x}", record["hash"])
                for record in expected["masks"]:
                    mask = model.masks[record["name"]]
                    self.assertEqual(mask.ffn.sum(1).tolist(), record["ffn_popcount"])
                    self.assertEqual(mask.heads.sum(1).tolist(), record["head_popcount"])
                self.assertEqual(len(model.sparse_index), len(expected["sparse_index"]))
                for file in model.files:
                    self.assertEqual([str(p) for p in reader.verify(file)], [])
        self.assertGreater(checked, 40)

    def test_bad_files(self):
        for case in load("bad/expected.json")["cases"]:
            if case["action"] == "apply" or case["name"] == "run_unknown_skill":
                continue
            with self.subTest(case["name"]):
                path = GOLDEN / "bad" / case["open"]
                code = None
                if case["action"] == "verify":
                    problems = reader.verify(path)
                    code = problems[0].code if problems else None
                else:
                    try:
                        model = reader.open(path)
                        if case["action"] == "run":
                            model.check()
                    except reader.CmfError as error:
                        code = error.code
                if case["expect"] == "ok":
                    self.assertIsNone(code)
                elif case["expect"] == "fail":
                    self.assertIsNotNone(code)
                    wanted = {"Hash": "HashMismatch", "FileNotFound": "NotFound"}.get(
                        case["spec_error"], case["spec_error"])
                    if wanted is not None:
                        self.assertEqual(code, wanted)

    def test_skills(self):
        model = reader.open(GOLDEN / "files" / "skills_1.cmf")
        name = "model.layers.1.mlp.gate_proj.weight"
        self.assertFalse(np.array_equal(model.read(name), model.read(name, "code")))
        self.assertTrue(np.array_equal(model.read("lm_head.weight"),
                                       model.read("lm_head.weight", "code")))
        with self.assertRaises(reader.CmfError) as caught:
            model.read(name, "nope")
        self.assertEqual(caught.exception.code, "UnknownName")

    def test_routing_and_blends(self):
        model = reader.open(GOLDEN / "files" / "skills_2.cmf")
        for prompt in load("files/skills_2.expected.json")["routing"]:
            for wanted in prompt["golden_E"]:
                layer = model.skills[wanted["id"]]["selection"]["phi_layer"]
                energy = model.energy(wanted["id"], prompt["phi"][str(layer)])
                self.assertAlmostEqual(energy, wanted["E"], delta=1e-5)
        self.assertEqual(len(model.skill_tensors("code")), 6)
        name = "model.layers.0.mlp.up_proj.weight"  # which code has not
        np.testing.assert_allclose(
            model.read(name, {"code": 0.625, "prose": 0.375}),
            0.625 * model.read(name) + 0.375 * model.read(name, "prose"), rtol=1e-6)

    def test_malformed_skills(self):
        good = reader.open(GOLDEN / "files" / "skills_1.cmf").header["skills"][0]
        arch = {"num_layers": 3, "hidden_size": 64}

        def field(**changes):
            record = {**good, "selection": dict(good["selection"])}
            for key, value in changes.items():
                target = record["selection"] if key in record["selection"] else record
                target[key] = value
            faults = []

            def fail(key, problem):
                faults.append(key)
                raise reader.CmfError("Parse", problem, key)

            try:
                reader._check_skill(record, arch, fail)
            except reader.CmfError:
                pass
            return faults[0] if faults else None

        self.assertIsNone(field())
        self.assertIsNone(field(rank=None, name=None, quality=None, layers=None))
        for key, values in {"id": ("", None, 1, "a\n"), "layers": (1, [3], [-1], [True]),
                            "quality": (1,), "base_dir_hash": ("", "9F22593EB458BC6F")}.items():
            for value in values:
                self.assertTrue(field(**{key: value}).startswith("." + key), (key, value))
        for key, values in {"phi_layer": (3, None), "rank": (-1, 1.0),
                            "mean": (None, "!", good["selection"]["basis"],
                                     good["selection"]["mean"].rstrip("=")),
                            "basis": (None, good["selection"]["mean"])}.items():
            for value in values:
                self.assertEqual(field(**{key: value}), ".selection." + key, (key, value))

    def verified(self, name, patch):
        """The codes that verify finds in a golden file without hashes, after patch(bytes, sections)."""
        content = bytearray((GOLDEN / "files" / name).read_bytes())
        numbers = struct.unpack_from("<12Q", content, 16)
        names = ("header", "dir", "data", "masks", "vocab", "index")
        places = dict(zip(names, zip(numbers[::2], numbers[1::2])))
        content[0x70:0x80] = bytes(16)
        content = content.replace(b'"section_hashes"', b'"no_more_hashes"')
        patch(content, places)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "patched.cmf")
            pathlib.Path(path).write_bytes(content)
            return [problem.code for problem in reader.verify(path)]

    def test_parts_that_contradict_each_other(self):
        def put(form, place, *values):
            return lambda content, places: struct.pack_into(form, content, place(places), *values)

        def index(offset):
            return lambda places: places["index"][0] + 8 + offset

        name = "masks_llama_q8row.cmf"
        self.assertEqual(self.verified(name, lambda *_: None), [])
        self.assertEqual(self.verified(name, put("<I", index(0), 9)), ["Parse"])  # the task
        # Another one, which then has two entries of a layer.
        self.assertEqual(self.verified(name, put("<I", index(0), 3)), ["Parse", "Parse"])
        self.assertEqual(self.verified(name, put("<I", index(4), 7)), ["Parse"])  # the layer
        self.assertEqual(self.verified(name, put("<HH", index(16), 1, 0)), ["Parse"])  # the order
        self.assertEqual(self.verified(name, put("<H", index(20), 99)), ["Parse"])  # the range
        # What begins as a list of masks ends with it.
        self.assertEqual(self.verified(name, lambda content, places: struct.pack_into(
            "<I", content, places["masks"][0] + 4, places["masks"][1] - 8)), ["Parse"])

        def rename(begin):
            def patch(content, places):
                at = content.index(begin, places["dir"][0])
                content[at : at + len(begin)] = begin[:-1] + b"9"
            return patch

        # A skill's tensor that replaces nothing: the name pool has each name once.
        skill = b"skill.prose.model.layers.0.mlp.gate_proj.weight"
        self.assertEqual(["MissingTensor"], self.verified("skills_2.cmf", rename(skill)))
        problems = reader.verify(GOLDEN / "bad" / "run_router_rows_mismatch.cmf")
        self.assertEqual([problem.code for problem in problems], ["Parse"])

    def test_names_of_others_are_escaped(self):
        self.assertEqual(reader._shown("a\x1b[m\n\x9b\x7f\u00fc\u20ac b"),
                         "a\\x1b[m\\n\\x9b\\x7f\u00fc\u20ac b")

    def test_command_line(self):
        path = str(GOLDEN / "files" / "mixed_all_dtypes.cmf")
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "t.f32")
            name = next(iter(reader.open(path).tensors))
            self.assertEqual(reader.main(["dequant", path, "--tensor", name, "--out", out]), 0)
            np.testing.assert_array_equal(np.fromfile(out, "<f4"),
                                          reader.open(path).read(name).ravel())
        for verb in ("info", "tensors", "header", "check", "verify"):
            self.assertEqual(reader.main([verb, path]), 0)
        self.assertEqual(reader.main(["info", "/nowhere.cmf"]), 3)


if __name__ == "__main__":
    unittest.main()
