#include "formats/cmf/skills.h"

#include <gtest/gtest.h>

#include <functional>

#include "formats/cmf/cmf_file.h"
#include "golden.h"
#include "moewe/error.h"

namespace moewe::formats::cmf {
namespace {

constexpr SkillLimits kLimits{.hidden_size = 2, .num_layers = 4};

// Two values each: 1, 2 and 0.5, -1.
Json Record() {
  return Json::parse(R"({"id": "sql", "name": "SQL assistant", "layers": [1, 3],
    "selection": {"metric": "mse", "phi_layer": 2, "mean": "ADwAQA==", "basis": "ADgAvA==",
                  "rank": 1},
    "input_mask_task": null, "quality": {"metric": "ppl"}, "later": [1, {"a": null}]})");
}

std::vector<SkillRecord> Parse(const Json& record) {
  return ParseSkills(Json::array({record}), kLimits, "m.cmf");
}

std::string FaultField(const std::function<void(Json&)>& change) {
  Json record = Record();
  change(record);
  try {
    Parse(record);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kParse) << error.what();
    return error.where().field;
  }
  return "none";
}

TEST(SkillsTest, ReadsARecord) {
  const SkillRecord record = Parse(Record()).front();
  EXPECT_EQ(record.id, "sql");
  EXPECT_EQ(record.name, "SQL assistant");
  EXPECT_EQ(record.layers, (std::vector<uint32_t>{1, 3}));
  ASSERT_TRUE(record.selection);
  EXPECT_EQ(record.selection->phi_layer, 2u);
  EXPECT_EQ(record.selection->rank, 1u);
  EXPECT_EQ(record.selection->mean, (std::vector<float>{1, 2}));
  EXPECT_EQ(record.selection->basis, (std::vector<float>{0.5, -1}));
  EXPECT_EQ(record.input_mask_task, "");
  EXPECT_EQ(record.quality["metric"], "ppl");
  EXPECT_FALSE(record.standalone());
  EXPECT_EQ(record.json, Record());
}

TEST(SkillsTest, NullAndAbsentAreTheSame) {
  EXPECT_TRUE(ParseSkills(nullptr, kLimits, "m.cmf").empty());
  const SkillRecord bare = Parse({{"id", "a"}}).front();
  EXPECT_FALSE(bare.selection);
  EXPECT_TRUE(bare.quality.is_null());
  Json record = Record();
  for (const char* key : {"name", "layers", "selection", "quality", "base_dir_hash", "task"}) {
    record[key] = nullptr;
  }
  const SkillRecord empty = Parse(record).front();
  EXPECT_TRUE(empty.name.empty());
  EXPECT_TRUE(empty.layers.empty());
  EXPECT_FALSE(empty.selection);
  EXPECT_FALSE(empty.standalone());
}

TEST(SkillsTest, AnAbsentRankIsWhatTheBasisHolds) {
  Json record = Record();
  record["selection"].erase("rank");
  record["selection"]["basis"] = "ADgAvAA4ALw=";
  EXPECT_EQ(Parse(record).front().selection->rank, 2u);
}

TEST(SkillsTest, RefusesMalformedRecords) {
  EXPECT_EQ(FaultField([](Json&) {}), "none");
  const std::string at = "header.skills[0]";
  EXPECT_EQ(FaultField([](Json& r) { r = 3; }), at);
  EXPECT_EQ(FaultField([](Json& r) { r.erase("id"); }), at + ".id");
  EXPECT_EQ(FaultField([](Json& r) { r["id"] = ""; }), at + ".id");
  EXPECT_EQ(FaultField([](Json& r) { r["id"] = 1; }), at + ".id");
  EXPECT_EQ(FaultField([](Json& r) { r["id"] = "a\nb"; }), at + ".id");
  EXPECT_EQ(FaultField([](Json& r) { r["id"] = "a\x80"; }), at + ".id");
  EXPECT_EQ(FaultField([](Json& r) { r["name"] = 1; }), at + ".name");
  EXPECT_EQ(FaultField([](Json& r) { r["layers"] = 1; }), at + ".layers");
  EXPECT_EQ(FaultField([](Json& r) { r["layers"][1] = 4u; }), at + ".layers[1]");
  EXPECT_EQ(FaultField([](Json& r) { r["layers"][0] = -1; }), at + ".layers[0]");
  EXPECT_EQ(FaultField([](Json& r) { r["quality"] = 1.0; }), at + ".quality");
  EXPECT_EQ(FaultField([](Json& r) { r["base_dir_hash"] = "9F22593EB458BC6F"; }),
            at + ".base_dir_hash");
  EXPECT_EQ(FaultField([](Json& r) { r["base_dir_hash"] = ""; }), at + ".base_dir_hash");
  const std::string selection = at + ".selection";
  EXPECT_EQ(FaultField([](Json& r) { r["selection"] = 1; }), selection);
  EXPECT_EQ(FaultField([](Json& r) { r["selection"].erase("phi_layer"); }),
            selection + ".phi_layer");
  EXPECT_EQ(FaultField([](Json& r) { r["selection"]["phi_layer"] = 4u; }),
            selection + ".phi_layer");
  EXPECT_EQ(FaultField([](Json& r) { r["selection"].erase("mean"); }), selection + ".mean");
  EXPECT_EQ(FaultField([](Json& r) { r["selection"]["mean"] = "ADwAQA="; }), selection + ".mean");
  EXPECT_EQ(FaultField([](Json& r) { r["selection"]["mean"] = "ADw="; }), selection + ".mean");
  EXPECT_EQ(FaultField([](Json& r) { r["selection"]["mean"] = "ADwAfA=="; }),  // infinity
            selection + ".mean");
  EXPECT_EQ(FaultField([](Json& r) { r["selection"]["basis"] = "ADw="; }), selection + ".basis");
  EXPECT_EQ(FaultField([](Json& r) { r["selection"]["rank"] = 2u; }), selection + ".basis");
  EXPECT_EQ(FaultField([](Json& r) { r["selection"]["rank"] = uint64_t{1} << 63; }),
            selection + ".rank");
}

TEST(SkillsTest, AnIdAppearsOnce) {
  try {
    ParseSkills(Json::array({Record(), Record()}), kLimits, "m.cmf");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.where().field, "header.skills[1].id");
  }
}

TEST(SkillsTest, WritesWhatItReadsAndKeepsWhatItDoesNotKnow) {
  const SkillRecord record = Parse(Record()).front();
  const Json written = SkillToJson(record);
  EXPECT_EQ(written["selection"]["mean"], Record()["selection"]["mean"]);
  EXPECT_EQ(written["selection"]["basis"], Record()["selection"]["basis"]);
  EXPECT_EQ(written["later"], Record()["later"]);
  const SkillRecord again = Parse(written).front();
  EXPECT_EQ(SkillToJson(again), written);
  EXPECT_EQ(again.layers, record.layers);
  EXPECT_EQ(again.quality, record.quality);

  SkillRecord bare;
  bare.id = "a";
  EXPECT_EQ(SkillToJson(bare), Json::parse(R"({"id": "a", "layers": [], "quality": null})"));
}

TEST(SkillsTest, NamesOfTensorsResolveByTheRegistry) {
  std::vector<SkillRecord> skills(3);
  skills[0].id = "a";
  skills[1].id = "a.model";
  skills[2].id = "b";
  const auto find = [&](std::string_view name, std::string_view known) -> std::string {
    const auto is_backbone = [&](std::string_view tensor) { return tensor == known; };
    const auto found = SkillOfTensor(skills, name, is_backbone);
    return found ? found->skill->id + "|" + std::string(found->tensor) : "none";
  };
  EXPECT_EQ(SkillTensorName("a", "model.norm.weight"), "skill.a.model.norm.weight");
  EXPECT_EQ(find("skill.b.model.norm.weight", ""), "b|model.norm.weight");
  EXPECT_EQ(find("skill.a.model.norm.weight", "model.norm.weight"), "a|model.norm.weight");
  EXPECT_EQ(find("skill.a.model.norm.weight", "norm.weight"), "a.model|norm.weight");
  EXPECT_EQ(find("skill.a.model.norm.weight", ""), "a.model|norm.weight");
  EXPECT_EQ(find("skill.a.model.", ""), "a|model.");
  EXPECT_EQ(find("skill.a", ""), "none");
  EXPECT_EQ(find("skill.c.model.norm.weight", ""), "none");
  EXPECT_EQ(find("model.norm.weight", "model.norm.weight"), "none");
}

TEST(SkillsTest, ReadsTheRegistriesOfFiles) {
  const auto file = CmfFile::Open(golden::Path("cmf/files/skills_2.cmf").string());
  const std::vector<SkillRecord>& skills = file->contents().header.skills;
  ASSERT_EQ(skills.size(), 2u);
  EXPECT_EQ(SkillNames(skills), "'code', 'prose'");
  ASSERT_EQ(FindSkill(skills, "prose"), &skills[1]);
  EXPECT_EQ(FindSkill(skills, "nope"), nullptr);
  EXPECT_EQ(skills[1].selection->rank, 3u);
  EXPECT_EQ(skills[1].selection->mean.size(), 64u);
  // What is decoded encodes to the same text.
  EXPECT_EQ(SkillToJson(skills[1])["selection"]["basis"], skills[1].json["selection"]["basis"]);

  const auto standalone = CmfFile::Open(golden::Path("cmf/files/gfx.skill.cmf").string());
  EXPECT_TRUE(standalone->contents().header.standalone_skill);
  EXPECT_EQ(standalone->contents().header.skills.front().base_dir_hash, "246fe80d8a6e1b09");
}

}  // namespace
}  // namespace moewe::formats::cmf
