// .smoe vaults through the program: made, looked at, checked, run, converted, upgraded.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "golden.h"
#include "process.h"
#include "program.h"

namespace moewe {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string Join(const std::vector<int>& ids) {
  std::string list;
  for (const int id : ids) list += (list.empty() ? "" : ",") + std::to_string(id);
  return list;
}

std::string Text(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

std::string Sha256(const std::string& path) {
  return RunShell("sha256sum " + path).out.substr(0, 64);
}

// The largest difference, in standard deviations of `expected`.
double Distance(const float* values, const std::vector<float>& expected) {
  double mean = 0.0, square = 0.0, largest = 0.0;
  for (size_t i = 0; i < expected.size(); ++i) {
    mean += double{expected[i]};
    square += double{expected[i]} * double{expected[i]};
    largest = std::max(largest, std::abs(double{values[i]} - double{expected[i]}));
  }
  const auto n = static_cast<double>(expected.size());
  return largest / std::sqrt(square / n - mean / n * mean / n);
}

// --- golden models ---

class SmoeModel : public testing::TestWithParam<std::string> {
 protected:
  std::string Checkpoint() const {
    return golden::Path("smoe/models/" + GetParam() + "/checkpoint/" + GetParam()).string();
  }
  json Read(const std::string& file) const {
    return golden::ReadJson(golden::Path("smoe/models/" + GetParam() + "/" + file));
  }
  std::string At(const std::string& name) const { return folder_.At(name); }
  std::string Vault(const std::string& bits) const { return At(bits + "/" + GetParam() + ".smoe"); }
  std::string Scout(const std::string& bits) const {
    return At(bits + "/" + GetParam() + ".scout.safetensors");
  }
  void Convert(const std::string& bits, const std::string& flags = "") const {
    fs::create_directories(At(bits));
    ASSERT_EQ(RunMoewe("convert --quiet " + Checkpoint() + " " + Vault(bits) + " --bits " +
                       bits.substr(1) + " " + flags)
                  .code,
              0);
  }

  // Logits and tokens of every golden prompt; routing, too, where `routing` names a variant.
  void ExpectGolden(const std::string& vault, const std::string& variant,
                    const std::string& routing) const {
    const json logits = Read("logits.json");
    const json routes = Read("routing.json");
    const std::vector<float> all =
        golden::ReadF32(golden::Path("smoe/models/" + GetParam() + "/logits/" + variant + ".bin"));
    const size_t vocab = logits.at("vocab_size");
    for (size_t p = 0; p < logits.at("prompts").size(); ++p) {
      SCOPED_TRACE(variant + " prompt " + std::to_string(p));
      std::vector<int> ids = logits["prompts"][p];
      const std::vector<int> greedy = logits["variants"][variant]["prompts"][p]["greedy"];
      const Outcome run = RunMoewe("run " + vault + " --json --activations f32 --greedy " +
                                   "--ignore-eos -n 12 --ids " + Join(ids));
      ASSERT_EQ(run.code, 0);
      EXPECT_EQ(run.json().at("ids"), json(greedy));
      const size_t prompt = ids.size();
      ids.insert(ids.end(), greedy.begin(), greedy.end());
      ASSERT_EQ(RunMoewe("logits " + vault + " --activations f32 --all --out " + At("out") +
                         " --router " + At("router.json") + " --ids " + Join(ids))
                    .code,
                0);
      const std::vector<float> ours = golden::ReadF32(At("out"));
      ASSERT_EQ(ours.size(), ids.size() * vocab);
      const size_t rows[] = {prompt - 1, ids.size() - 1};
      for (size_t which = 0; which < 2; ++which) {
        const auto begin = all.begin() + static_cast<ptrdiff_t>((2 * p + which) * vocab);
        const std::vector<float> expected(begin, begin + static_cast<ptrdiff_t>(vocab));
        EXPECT_LE(Distance(ours.data() + rows[which] * vocab, expected), 1e-3);
      }
      if (routing.empty()) continue;
      const json router = golden::ReadJson(At("router.json"));
      for (const auto& [layer, want] : routes.at(routing)[p].items()) {
        EXPECT_EQ(router.at(layer).at("ids"), want.at("experts")) << "layer " << layer;
      }
    }
  }

  ScratchFolder folder_;
};

TEST_P(SmoeModel, VaultsAndPlainScoutsAreTheGoldenOnesByteForByte) {
  const json vaults = Read("vaults.json").at("vaults");
  const std::string scout = vaults["q4"][GetParam() + ".scout.safetensors"];
  for (const std::string bits : {"q4", "q2"}) {
    Convert(bits, "--plain-scout");
    EXPECT_EQ(Sha256(Vault(bits)), vaults[bits][GetParam() + ".smoe"].get<std::string>());
    EXPECT_EQ(Sha256(Scout(bits)), scout);
  }
  // Its own Scout says more, about the same tensors; the vault is the same.
  fs::create_directories(At("own"));
  const std::string own = At("own/" + GetParam() + ".smoe");
  ASSERT_EQ(RunMoewe("convert --quiet " + Checkpoint() + " " + own).code, 0);
  EXPECT_EQ(Sha256(own), vaults["q4"][GetParam() + ".smoe"].get<std::string>());
  const json tensors = RunMoewe("info --json --tensors " + own).json().at("tensors");
  const json plain = RunMoewe("info --json --tensors " + Vault("q4")).json().at("tensors");
  ASSERT_EQ(tensors.size(), plain.size());
  for (size_t i = 0; i < plain.size(); ++i) {
    for (const char* key : {"name", "dtype", "shape", "nbytes", "offset"}) {
      EXPECT_EQ(tensors[i][key], plain[i][key]);
    }
  }
  EXPECT_EQ(golden::ReadBytes(At("own/" + GetParam() + ".tokenizer.json")),
            golden::ReadBytes(Checkpoint() + "/tokenizer.json"));
}

TEST_P(SmoeModel, RunsAsTheGoldensSay) {
  for (const std::string bits : {"q4", "q2"}) {
    Convert(bits);
    ExpectGolden(Vault(bits), bits, bits);
    EXPECT_EQ(RunMoewe("verify " + Vault(bits)).code, 0);
  }
}

// A vault's values, held exactly by f32, compute the same in another container.
TEST_P(SmoeModel, BecomesACmfWithTheSameValues) {
  Convert("q4");
  const std::string cmf = At("out.cmf");
  ASSERT_EQ(RunMoewe("convert --quiet " + Vault("q4") + " " + cmf).code, 0);
  const std::string arguments = " --activations f32 --all --ids 5,9,2,70,3 --out ";
  ASSERT_EQ(RunMoewe("logits " + Vault("q4") + arguments + At("a")).code, 0);
  ASSERT_EQ(RunMoewe("logits " + cmf + arguments + At("b")).code, 0);
  EXPECT_EQ(golden::ReadBytes(At("a")), golden::ReadBytes(At("b")));
  // And back: the levels are found again, whatever the scales become.
  const std::string back = At("back/" + GetParam() + ".smoe");
  fs::create_directories(At("back"));
  ASSERT_EQ(RunMoewe("convert --quiet " + cmf + " " + back).code, 0);
  EXPECT_EQ(RunMoewe("verify " + back).code, 0);
  ASSERT_EQ(RunMoewe("logits " + back + arguments + At("c")).code, 0);
  EXPECT_LE(Distance(golden::ReadF32(At("c")).data(), golden::ReadF32(At("a"))), 0.05);
}

INSTANTIATE_TEST_SUITE_P(Golden, SmoeModel,
                         testing::Values("deepseek-a", "olmoe-f32", "qwen2moe-a", "qwen3moe-hd128",
                                         "qwen3moe-odd"),
                         [](const auto& instance) {
                           std::string name = instance.param;
                           std::erase(name, '-');
                           return name;
                         });

// The v2 vault at `path` made a v1 vault: README of the goldens.
void MakeV1(const std::string& path) {
  std::string bytes = Text(golden::ReadBytes(path));
  uint32_t block = 0;
  std::memcpy(&block, bytes.data() + 60, sizeof(block));
  bytes[8] = 1;
  std::fill_n(bytes.begin() + 60, 4, '\0');
  std::fill_n(bytes.begin() + block, 128, '\0');
  std::ofstream(path, std::ios::binary) << bytes;
}

class SmoeV1 : public SmoeModel {};

TEST_P(SmoeV1, RunsWithLegacyConstantsAndSaysSo) {
  Convert("q4", "--plain-scout");
  MakeV1(Vault("q4"));
  EXPECT_EQ(Sha256(Vault("q4")),
            Read("vaults.json")["vaults"]["v1"][GetParam() + ".smoe"].get<std::string>());
  const bool right = GetParam() == "qwen3moe-hd128";  // the assumed constants are its own
  ExpectGolden(Vault("q4"), right ? "q4" : "v1_legacy_q4", right ? "q4" : "v1_legacy_q4");
  const json info = RunMoewe("info --json " + Vault("q4")).json();
  ASSERT_FALSE(info.at("warnings").empty());
  EXPECT_NE(info["warnings"][0].get<std::string>().find("header.version"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Golden, SmoeV1, testing::Values("deepseek-a", "qwen3moe-hd128"),
                         [](const auto& instance) {
                           return instance.param == "deepseek-a" ? "deepseek" : "hd128";
                         });

class SmoeUpgrade : public SmoeModel {
 protected:
  std::string Hash(const std::string& variant) const {
    return Read("vaults.json")["vaults"][variant][GetParam() + ".smoe"].get<std::string>();
  }
};

TEST_P(SmoeUpgrade, GivesTheV2VaultByteForByte) {
  Convert("q4", "--plain-scout");
  const std::string vault = Vault("q4");
  const std::string upgrade = "vault upgrade " + vault;
  MakeV1(vault);
  EXPECT_EQ(RunMoewe(upgrade + " --config " + Checkpoint()).code, 0);
  EXPECT_EQ(Sha256(vault), Hash("v1_upgraded"));
  EXPECT_EQ(RunMoewe(upgrade + " --config " + Checkpoint()).code, 2);  // v2 already
  EXPECT_EQ(RunMoewe(upgrade + " --force --config " + Checkpoint()).code, 0);
  EXPECT_EQ(Sha256(vault), Hash("v1_upgraded"));
  // Another block never overwrites the one in use.
  EXPECT_EQ(RunMoewe(upgrade + " --force").code, 0);
  EXPECT_EQ(RunMoewe("verify " + vault).code, 0);
  // A bare config.json, no Scout, no weights.
  Convert("q4", "--plain-scout");
  MakeV1(vault);
  fs::remove(Scout("q4"));
  EXPECT_EQ(RunMoewe(upgrade).code, 1);
  EXPECT_EQ(RunMoewe(upgrade + " --config " + Checkpoint() + "/config.json").code, 0);
  EXPECT_EQ(Sha256(vault), Hash("v1_upgraded_bare_config"));
}

INSTANTIATE_TEST_SUITE_P(Golden, SmoeUpgrade, testing::Values("olmoe-f32", "qwen3moe-hd128"),
                         [](const auto& instance) {
                           return instance.param == "olmoe-f32" ? "olmoe" : "hd128";
                         });

// --- odd files ---

class SmoeOddFile : public testing::TestWithParam<json> {
 protected:
  SmoeOddFile() {
    std::string bytes = Text(golden::ReadBytes(golden::Path("smoe/bad/base.smoe")));
    if (GetParam().contains("made")) {
      const json& made = GetParam().at("made");
      bytes.resize(made.at("size"));
      for (const json& patch : made.at("patches")) {
        const std::vector<uint8_t> changed = golden::FromHex(patch[1]);
        std::copy(changed.begin(), changed.end(), bytes.begin() + patch[0].get<ptrdiff_t>());
      }
    }
    vault_ = folder_.Put("odd.smoe", bytes);
    flags_ = vault_ + " --scout " +
             golden::Path("smoe/bad/" + GetParam().at("scout").get<std::string>()).string();
  }

  ScratchFolder folder_;
  std::string vault_;
  std::string flags_;
};

std::vector<json> OddFiles() {
  return golden::ReadJson(golden::Path("smoe/bad/cases.json")).at("cases").get<std::vector<json>>();
}

TEST_P(SmoeOddFile, GetsItsVerdictFromEveryVerb) {
  const std::string verdict = GetParam().at("verdict");
  const std::string field = GetParam().at("field");
  const Outcome verify = RunMoewe("verify --json " + flags_);
  const Outcome logits = RunMoewe("logits --json " + flags_ + " --activations f32 --ids 1,2,3,4,5" +
                                  " --out " + folder_.At("out"));
  if (verdict == "fail") {
    EXPECT_EQ(verify.code, 3) << verify.out;
    const json problem = verify.json().at("problems").at(0);
    EXPECT_NE(problem.at("where").get<std::string>().find(field), std::string::npos) << problem;
    EXPECT_EQ(logits.code, 3);
    const json error = logits.json().at("error");
    EXPECT_NE(error.at("where").get<std::string>().find(field), std::string::npos) << error;
    return;
  }
  ASSERT_EQ(verify.code, 0) << verify.out;
  ASSERT_EQ(logits.code, 0) << logits.out;
  const json warnings = verify.json().at("warnings");
  const bool v1 = GetParam().at("scout") == "base_v1.scout.safetensors";
  const bool named = std::any_of(warnings.begin(), warnings.end(), [&](const json& line) {
    return line.get<std::string>().find(field) != std::string::npos;
  });
  if (verdict == "warn") {
    EXPECT_TRUE(named) << warnings;
  } else if (!v1) {
    EXPECT_TRUE(warnings.empty()) << warnings;
  }
  // Other models: with a shared expert, with the embedding as its head.
  const std::string id = GetParam().at("id");
  if (id == "scout_has_shared_arch_says_0" || id == "scout_no_lm_head") return;
  const std::string own = GetParam().at("id") == "sarc_eps_0.1" ? "sarc_eps_0.1"
                          : v1                                  ? "v1_ok"
                                                                : "base";
  const std::vector<float> expected =
      golden::ReadF32(golden::Path("smoe/bad/" + own + ".logits.bin"));
  const bool rounded = GetParam().at("id") == "scout_f16_ok";
  if (rounded) {
    const std::vector<float> ours = golden::ReadF32(folder_.At("out"));
    for (size_t i = 0; i < ours.size(); ++i) EXPECT_NEAR(ours[i], expected[i], 0.05f);
  } else {
    EXPECT_LE(Distance(golden::ReadF32(folder_.At("out")).data(), expected), 1e-3);
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, SmoeOddFile, testing::ValuesIn(OddFiles()),
                         [](const auto& instance) {
                           std::string name = instance.param.at("id").template get<std::string>();
                           std::replace(name.begin(), name.end(), '.', '_');
                           return name;
                         });

// --- converting ---

class SmoeConvert : public testing::Test {
 protected:
  std::string At(const std::string& name) const { return folder_.At(name); }
  static std::string Checkpoint(const std::string& model) {
    return golden::Path("smoe/models/" + model + "/checkpoint/" + model).string();
  }
  // A copy of a golden checkpoint with other keys in its config.json.
  std::string Changed(const std::string& model, const json& changes) const {
    const std::string folder = At("changed");
    fs::remove_all(folder);
    fs::copy(Checkpoint(model), folder);
    json config = golden::ReadJson(folder + "/config.json");
    for (const auto& [key, value] : changes.items()) {
      if (value.is_null()) {
        config.erase(key);
      } else {
        config[key] = value;
      }
    }
    fs::remove(folder + "/config.json");
    std::ofstream(folder + "/config.json") << config;
    return folder;
  }
  static Outcome Errors(const std::string& arguments) {
    return RunShell("$MOEWE " + arguments + " 2>&1 >/dev/null");
  }

  ScratchFolder folder_;
};

TEST_F(SmoeConvert, TheFolderIsRunnableWithNothingElse) {
  const std::string vault = At("m.smoe");
  ASSERT_EQ(RunMoewe("convert --quiet " + Checkpoint("qwen2moe-a") + " " + vault).code, 0);
  const Outcome run = RunMoewe("run " + vault + " -p Hello -n 4 --greedy --json");
  EXPECT_EQ(run.code, 0);
  const Outcome folder =
      RunMoewe("template " + vault + " --messages " + folder_.Put("m.json", R"([{"role": "user",
                "content": "Hi"}])"));
  EXPECT_EQ(folder.out,
            RunMoewe("template " + Checkpoint("qwen2moe-a") + " --messages " + At("m.json")).out);
  EXPECT_EQ(RunMoewe("plan " + vault).code, 0);
  EXPECT_EQ(RunMoewe("ppl " + vault + " " + folder_.Put("t.txt", "one two three four")).code, 0);
  EXPECT_EQ(RunMoewe("diff --json " + vault + " " + vault).json().at("same"), true);
}

TEST_F(SmoeConvert, InfoShowsBitsGroupsPagesAndTheKey) {
  const std::string vault = At("m.smoe");
  ASSERT_EQ(RunMoewe("convert --quiet --bits 2 " + Checkpoint("qwen3moe-odd") + " " + vault).code,
            0);
  const json info = RunMoewe("info --json " + vault).json();
  const json header = info.at("vault").at("header");
  const json layout = info.at("vault").at("layout");
  const uint64_t experts = header.at("total_experts");
  const uint64_t values = info.at("dtypes").at("smoe_q2").at("values");
  EXPECT_EQ(header.at("bits"), 2);
  EXPECT_EQ(layout.at("groups"), values / 64);
  EXPECT_EQ(layout.at("expert_bytes"), values / 4 + values / 64 * 2);
  EXPECT_EQ(layout.at("page_bytes"), 16384);
  EXPECT_EQ(layout.at("pages").get<uint64_t>() * 16384,
            layout.at("expert_bytes").get<uint64_t>() + layout.at("padding_bytes").get<uint64_t>());
  EXPECT_EQ(fs::file_size(vault),
            header.at("data_offset").get<uint64_t>() + layout.at("pages").get<uint64_t>() * 16384);
  EXPECT_EQ(layout.at("pages").get<uint64_t>() % experts, 0u);
  EXPECT_EQ(layout.at("key"), "fits");
  const std::string text = RunMoewe("info " + vault).out;
  for (const char* part : {"2 bits", "groups of 64", "pages of 16 KiB", "key fits"}) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
  ASSERT_EQ(
      RunMoewe("convert --quiet --plain-scout " + Checkpoint("qwen3moe-odd") + " " + vault).code,
      0);
  EXPECT_EQ(RunMoewe("info --json " + vault).json()["vault"]["layout"]["key"], "none");
}

TEST_F(SmoeConvert, AScoutElsewhereIsNamed) {
  const std::string vault = At("m.smoe");
  ASSERT_EQ(RunMoewe("convert --quiet " + Checkpoint("qwen3moe-odd") + " " + vault).code, 0);
  const std::string name = "model.layers.0.mlp.experts.1.up_proj.weight";
  ASSERT_EQ(RunMoewe("dequant " + vault + " --tensor " + name + " --out " + At("a")).code, 0);
  fs::rename(At("m.scout.safetensors"), At("elsewhere"));
  const std::string scout = " --scout " + At("elsewhere");
  EXPECT_EQ(RunMoewe("dequant " + vault + " --tensor " + name + " --out " + At("b")).code, 1);
  ASSERT_EQ(RunMoewe("dequant " + vault + scout + " --tensor " + name + " --out " + At("b")).code,
            0);
  EXPECT_EQ(golden::ReadBytes(At("a")), golden::ReadBytes(At("b")));
  EXPECT_EQ(RunMoewe("diff " + vault + " " + vault).code, 1);
  EXPECT_EQ(RunMoewe("diff " + vault + " " + vault + scout).code, 1);
  const Outcome same =
      RunMoewe("diff --json " + vault + " " + vault + scout + " --scout-b " + At("elsewhere"));
  EXPECT_EQ(same.json().at("same"), true);
  for (const std::string verb :
       {"plan", "bench -p 4 -n 2 -d 4 -r 1", "verify", "info", "run -p Hi -n 2 --greedy"}) {
    EXPECT_EQ(RunMoewe(verb + " " + vault + scout).code, 0) << verb;
    EXPECT_GT(RunMoewe(verb + " " + vault).code, 0) << verb;
  }
}

TEST_F(SmoeConvert, AScoutOfAnotherVaultIsRefused) {
  const std::string a = At("a.smoe"), b = At("b.smoe");
  ASSERT_EQ(RunMoewe("convert --quiet " + Checkpoint("qwen3moe-odd") + " " + a).code, 0);
  ASSERT_EQ(RunMoewe("convert --quiet --bits 2 " + Checkpoint("qwen3moe-odd") + " " + b).code, 0);
  EXPECT_EQ(RunMoewe("verify " + b).code, 0);
  const Outcome wrong = RunMoewe("verify --json " + b + " --scout " + At("a.scout.safetensors"));
  EXPECT_EQ(wrong.code, 3);
  EXPECT_EQ(wrong.json()["problems"][0]["code"], "HashMismatch");
  EXPECT_EQ(RunMoewe("verify " + Checkpoint("qwen3moe-odd") + " --scout x").code, 2);
}

// What the arch block can't say is in moewe's Scout; a plain one is refused by name.
TEST_F(SmoeConvert, MathBeyondTheArchBlock) {
  const std::string vault = At("m.smoe");
  const std::string yarn = Changed(
      "qwen3moe-odd",
      {{"rope_scaling",
        {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 64}}}});
  const Outcome refused = Errors("convert --plain-scout " + yarn + " " + vault);
  EXPECT_EQ(refused.code, 3);
  EXPECT_NE(refused.out.find("rotary"), std::string::npos) << refused.out;
  EXPECT_FALSE(fs::exists(vault));
  ASSERT_EQ(RunMoewe("convert --quiet " + yarn + " " + vault).code, 0);
  const json arch = RunMoewe("info --json " + vault).json().at("arch");
  EXPECT_EQ(arch.at("yarn").at("factor"), 4.0);
  ASSERT_EQ(RunMoewe("convert --quiet " + Checkpoint("qwen3moe-odd") + " " + At("n.smoe")).code, 0);
  const std::string ids = " --ids 1,2,3,4,5,6 --out ";
  ASSERT_EQ(RunMoewe("logits " + vault + ids + At("yarn")).code, 0);
  ASSERT_EQ(RunMoewe("logits " + At("n.smoe") + ids + At("plain")).code, 0);
  EXPECT_NE(golden::ReadBytes(At("yarn")), golden::ReadBytes(At("plain")));
}

TEST_F(SmoeConvert, UnknownModelTypesNeedOnlyKnownKeys) {
  const std::string vault = At("m.smoe");
  const std::string known = Changed("qwen3moe-odd", {{"model_type", "a_model_type_that_is_new"}});
  const Outcome warned = Errors("convert " + known + " " + vault);
  EXPECT_EQ(warned.code, 0) << warned.out;
  EXPECT_NE(warned.out.find("not known"), std::string::npos);
  EXPECT_EQ(RunMoewe("info --json " + vault).json()["vault"]["arch"]["model_type"],
            "a_model_type_that_is_new");
  const std::string odd =
      Changed("qwen3moe-odd", {{"model_type", "a_model_type_that_is_new"}, {"router_twist", 0.5}});
  EXPECT_EQ(RunMoewe("convert " + odd + " " + At("n.smoe")).code, 3);
  EXPECT_EQ(
      RunMoewe("convert " + Changed("qwen3moe-odd", {{"hidden_act", "gelu"}}) + " " + At("n.smoe"))
          .code,
      3);
  EXPECT_EQ(RunMoewe("convert " + Changed("qwen3moe-odd", {{"num_attention_heads", nullptr}}) +
                     " " + At("n.smoe"))
                .code,
            3);
  EXPECT_FALSE(fs::exists(At("n.smoe")));
}

TEST_F(SmoeConvert, FlagsOfTheOtherFormatAreRefused) {
  const std::string source = Checkpoint("qwen3moe-odd");
  EXPECT_EQ(RunMoewe("convert " + source + " " + At("m.smoe") + " --bits 3").code, 2);
  EXPECT_EQ(RunMoewe("convert " + source + " " + At("m.smoe") + " --quant q8").code, 2);
  EXPECT_EQ(RunMoewe("convert " + source + " " + At("m.cmf") + " --bits 4").code, 2);
  EXPECT_EQ(RunMoewe("convert " + golden::Path("hf/llama").string() + " " + At("m.smoe")).code, 3);
  EXPECT_TRUE(fs::is_empty(At("")));
}

// Killed at any time, the old file is there, and --resume makes the same bytes.
TEST_F(SmoeConvert, AnInterruptedRunIsContinued) {
  const std::string source = Checkpoint("qwen3moe-hd128");
  ASSERT_EQ(RunMoewe("convert --quiet --bits 2 " + source + " " + At("whole.smoe")).code, 0);
  bool stopped = false;
  for (int pause = 2; pause < 400 && !stopped; pause += 8) {
    fs::remove(At("m.smoe"));
    Process process({"convert", "--bits", "2", source, At("m.smoe")}, Process::Via::kPipes);
    usleep(static_cast<useconds_t>(pause) * 1000);
    process.Kill();
    process.Wait();
    stopped = !fs::exists(At("m.smoe")) && fs::exists(At("m.smoe.partial.journal")) &&
              fs::file_size(At("m.smoe.partial.journal")) > 64;
  }
  ASSERT_TRUE(stopped);
  ASSERT_EQ(RunMoewe("convert --resume --bits 2 " + source + " " + At("m.smoe")).code, 0);
  EXPECT_EQ(golden::ReadBytes(At("m.smoe")), golden::ReadBytes(At("whole.smoe")));
  EXPECT_FALSE(fs::exists(At("m.smoe.partial")));
}

}  // namespace
}  // namespace moewe
