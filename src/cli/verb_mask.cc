// moewe mask: the task masks of a CMF file, listed, shown, added, removed.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/log.h"
#include "cli/change_file.h"
#include "cli/mask_report.h"
#include "cli/verbs.h"
#include "convert/mask_description.h"
#include "convert/mask_edit.h"
#include "formats/cmf/cmf_file.h"
#include "moewe/error.h"
#include "platform/file_io.h"

namespace moewe::cli {
namespace {

using formats::CmfFile;
using formats::cmf::TaskMask;

constexpr uint64_t kLargestInput = uint64_t{1} << 30;

struct Flags {
  std::string file, name, description_file, output;
  std::string ffn, heads, layers, experts;  // .npy files
  std::string description, priority, parent, quality;
  bool make_default = false;
  CLI::Option* name_option = nullptr;
};

int List(const Flags& flags, const Globals& globals) {
  const std::unique_ptr<CmfFile> file = OpenCmf(flags.file);
  const formats::cmf::MaskCatalog& catalog = file->contents().masks;
  if (globals.json) {
    PrintJson(
        {{"default_task", catalog.default_task}, {"masks", MaskList(*file, MaskRowsAs::kCounts)}});
    return 0;
  }
  if (catalog.masks.empty()) fmt::print("no masks\n");
  for (const TaskMask& mask : catalog.masks) {
    fmt::print("{}\n", MaskLine(*file, mask));
  }
  return 0;
}

int Show(const Flags& flags, const Globals& globals) {
  const std::unique_ptr<CmfFile> file = OpenCmf(flags.file);
  const formats::cmf::MaskCatalog& catalog = file->contents().masks;
  for (size_t i = 0; i < catalog.masks.size(); ++i) {
    if (catalog.masks[i].name != flags.name) continue;
    if (globals.json) {
      PrintJson(MaskList(*file, MaskRowsAs::kHex)[i]);
    } else {
      PrintMask(*file, catalog.masks[i]);
    }
    return 0;
  }
  throw Error(
      ErrorCode::kUnknownName,
      fmt::format("there is no mask '{}': {}", flags.name, formats::cmf::MaskNames(catalog)),
      {flags.file, "masks"});
}

std::string Target(const CmfFile& file, const Flags& flags) {
  return flags.output.empty() ? file.files().front() : flags.output;
}

convert::MaskDescription Describe(const Flags& flags, const formats::cmf::Header& header) {
  convert::MaskDescription mask(header);
  using convert::MaskPart;
  const auto add_npy = [&](const std::string& path, MaskPart part) {
    if (path.empty()) return;
    const std::vector<uint8_t> bytes = ReadWholeFile(path, kLargestInput);
    convert::DescribeByNpy(formats::ParseNpyBits(bytes, path), part, header, path, &mask);
  };
  if (!flags.description_file.empty()) {
    const std::string& path = flags.description_file;
    const std::vector<uint8_t> bytes = ReadWholeFile(path, kLargestInput);
    if (formats::IsNpy(bytes)) {
      if (!flags.ffn.empty()) {
        throw Error(ErrorCode::kUsage, "the FFN neurons are given twice", {path, "--ffn"});
      }
      convert::DescribeByNpy(formats::ParseNpyBits(bytes, path), MaskPart::kFfn, header, path,
                             &mask);
    } else {
      convert::DescribeByJson(ParseJson(bytes, path, "mask"), header, path, &mask);
    }
  }
  add_npy(flags.ffn, MaskPart::kFfn);
  add_npy(flags.heads, MaskPart::kHeads);
  add_npy(flags.layers, MaskPart::kLayers);
  add_npy(flags.experts, MaskPart::kExperts);
  if (flags.name_option->count() > 0) mask.name = flags.name;
  if (!flags.description.empty()) mask.description = flags.description;
  if (!flags.priority.empty()) mask.priority = flags.priority;
  if (!flags.parent.empty()) mask.parent = flags.parent;
  if (!flags.quality.empty()) {
    mask.quality = ParseJson(ReadWholeFile(flags.quality, kLargestInput), flags.quality, "quality");
    convert::CheckQuality(mask.quality, flags.quality);
  }
  return mask;
}

int Add(const Flags& flags, const Globals& globals) {
  const auto [lock, file] = OpenToReplace(flags.file);
  const convert::MaskDescription mask = Describe(flags, file->contents().header);
  const std::string target = Target(*file, flags);
  const uint32_t id = convert::AddMask(*file, mask, flags.make_default, target);
  WarnOfSignature(target);
  if (!globals.quiet) LogInfo(fmt::format("added mask {} '{}' to {}", id, mask.name, target));
  if (globals.json) PrintJson({{"file", target}, {"task_id", id}, {"name", mask.name}});
  return 0;
}

int Remove(const Flags& flags, const Globals& globals) {
  const auto [lock, file] = OpenToReplace(flags.file);
  const std::string target = Target(*file, flags);
  convert::RemoveMask(*file, flags.name, target);
  WarnOfSignature(target);
  if (!globals.quiet) LogInfo(fmt::format("removed mask '{}' from {}", flags.name, target));
  if (globals.json) PrintJson({{"file", target}, {"name", flags.name}});
  return 0;
}

}  // namespace

Action AddMask(CLI::App& verb, const Globals& globals) {
  auto flags = std::make_shared<Flags>();
  const auto sub = [&](const char* name, const char* summary, const char* example) {
    CLI::App* app = verb.add_subcommand(name, summary);
    app->footer(std::string("Example: moewe mask ") + example);
    app->fallthrough();
    app->add_option("FILE", flags->file, "a .cmf file")->required();
    return app;
  };
  CLI::App* list = sub("list", "names, priorities, what is live", "list demo.cmf");
  CLI::App* show = sub("show", "one mask layer by layer", "show demo.cmf code");
  show->add_option("NAME", flags->name, "the mask")->required();
  CLI::App* remove = sub("remove", "take a mask out of the file", "remove demo.cmf code");
  remove->add_option("NAME", flags->name, "the mask")->required();
  CLI::App* add =
      sub("add", "a new mask from a description", "add demo.cmf keep.npy --name code --default");
  add->add_option("DESCRIPTION", flags->description_file,
                  "a JSON description, or a .npy [layers, neurons] of live neurons");
  flags->name_option = add->add_option("--name", flags->name, "what --task will call it");
  add->add_option("--ffn", flags->ffn, ".npy of live neurons [layers, intermediate_size]");
  add->add_option("--heads", flags->heads, ".npy of live heads [layers, heads]");
  add->add_option("--layers", flags->layers, ".npy of live layers [layers]");
  add->add_option("--experts", flags->experts, ".npy of routable experts [layers, experts]");
  add->add_option("--description", flags->description, "a line for people");
  add->add_option("--priority", flags->priority, "Fallback, Normal or Primary")
      ->check(CLI::IsMember({"Fallback", "Normal", "Primary"}));
  add->add_option("--parent", flags->parent, "the mask that it comes from");
  add->add_option("--quality", flags->quality, "JSON file with the measured quality");
  add->add_flag("--default", flags->make_default, "active without --task");
  for (CLI::App* changing : {add, remove}) {
    changing->add_option("-o,--out", flags->output, "write here and leave FILE as it is");
  }
  return [=, &globals] {
    if (list->parsed()) return List(*flags, globals);
    if (show->parsed()) return Show(*flags, globals);
    if (add->parsed()) return Add(*flags, globals);
    if (remove->parsed()) return Remove(*flags, globals);
    throw Error(ErrorCode::kUsage, "say what to do: mask list, show, add or remove");
  };
}

}  // namespace moewe::cli
