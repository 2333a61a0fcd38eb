// moewe skill add, remove, export, apply: skills into files and out of them.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes_of.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/size.h"
#include "cli/change_file.h"
#include "cli/interrupt.h"
#include "cli/model_tokenizer.h"
#include "cli/number_flags.h"
#include "cli/skill_verbs.h"
#include "cli/text_input.h"
#include "convert/dtype_choice.h"
#include "convert/skill_edit.h"
#include "convert/skill_file.h"
#include "formats/signature.h"
#include "moewe/error.h"
#include "text/tokenizer.h"

namespace moewe::cli {
namespace {

using formats::CmfFile;

struct Flags {
  std::string file, id, name, task;
  std::string donor, dtype, layers, eval;
  std::vector<std::string> texts;
  double min_delta = 0.01;
  std::optional<uint32_t> phi_layer;
  uint32_t rank = 8;
  int threads = 0;
  std::string specialist, base, skill, dst;
  bool force = false;
};

// "0,2-5"
std::vector<uint32_t> ParseLayers(const std::string& text) {
  const auto fail = [&] {
    return Error(ErrorCode::kUsage,
                 "--layers takes numbers and ranges, 0,2-5 say, not '" + text + "'");
  };
  std::vector<uint32_t> layers;
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto number = [&] {
    uint32_t value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    // Above any model's, so that a range can be counted through.
    if (error != std::errc() || value > 100000) throw fail();
    at = next;
    return value;
  };
  for (;;) {
    const uint32_t first = number();
    uint32_t last = first;
    if (at != end && *at == '-') {
      ++at;
      last = number();
    }
    if (last < first) throw fail();
    for (uint32_t layer = first; layer <= last; ++layer) layers.push_back(layer);
    if (at == end) return layers;
    if (*at++ != ',') throw fail();
  }
}

convert::SkillAddOptions OptionsFrom(const Flags& flags, const CmfFile& file) {
  convert::SkillAddOptions options;
  options.id = flags.id;
  options.name = flags.name;
  options.input_mask_task = flags.task;
  options.min_delta = flags.min_delta;
  if (!flags.dtype.empty()) options.dtype = convert::ParseQuant(flags.dtype);
  if (!flags.layers.empty()) options.layers = ParseLayers(flags.layers);
  options.subspace.phi_layer =
      flags.phi_layer.value_or(convert::PhiLayer(file.contents().header.num_layers));
  options.subspace.rank = flags.rank;
  options.cancel = options.subspace.cancel = &CatchInterrupts();
  const std::string& path = file.files().front();
  if (file.tokenizer_json().empty()) {
    throw Error(ErrorCode::kUnsupported, "the model has no tokenizer for the texts",
                {path, "tokenizer"});
  }
  const auto tokenizer = text::Tokenizer::FromJson(file.tokenizer_json(), path);
  for (const std::string& text : flags.texts) {
    options.texts.push_back(tokenizer->Encode(ReadUtf8File(text)));
  }
  if (!flags.eval.empty()) {
    const std::string text = ReadUtf8File(flags.eval);
    options.eval = tokenizer->Encode(text);
    if (options.eval.size() < 2) {
      throw Error(ErrorCode::kUsage, "holds nothing to predict", {flags.eval, ""});
    }
    options.eval_sha256 = formats::Sha256Hex(BytesOf(text));
  }
  return options;
}

int Add(const Flags& flags, const Globals& globals) {
  const auto donor = formats::OpenCheckpoint(flags.donor);
  const auto appender = OpenToGrow(flags.file);
  const std::string path = appender->path();
  convert::SkillAddOptions options = OptionsFrom(flags, appender->file());
  std::optional<Progress> bar;
  options.progress = [&](uint64_t done, uint64_t total, std::string_view name) {
    if (!bar) bar.emplace("skill add", total, globals.quiet ? nullptr : stderr);
    bar->Update(done, name);
  };
  options.note = [&](const std::string& line) {
    bar.reset();
    if (!globals.quiet) LogInfo(line);
  };
  ThreadPool pool(flags.threads);
  const convert::SkillAddResult result = convert::AddSkill(appender.get(), *donor, options, pool);
  bar.reset();
  WarnOfSignature(path);
  const Json& quality = result.record["quality"];
  if (!globals.quiet) {
    LogInfo(fmt::format("added skill '{}' to {}: {} of {} tensors, {}", flags.id, path,
                        result.tensors, result.compared, FormatSize(result.bytes)));
    if (result.largest_left > 0.0) {
      LogInfo(fmt::format("what was left out changed by at most {1:.2g} ('{0}')",
                          result.largest_left_name, result.largest_left));
    }
    if (!quality.is_null()) {
      LogInfo(fmt::format("perplexity of {}: {:.4f} without the skill, {:.4f} with it", flags.eval,
                          quality["backbone"].get<double>(), quality["overlaid"].get<double>()));
    }
  }
  if (globals.json) {
    PrintJson({{"file", path},
               {"id", flags.id},
               {"tensors", result.tensors},
               {"compared", result.compared},
               {"bytes", result.bytes},
               {"largest_left", result.largest_left},
               {"quality", quality}});
  }
  return 0;
}

int Remove(const Flags& flags, const Globals& globals) {
  const auto appender = OpenToGrow(flags.file);
  const std::string path = appender->path();
  const uint64_t bytes = convert::RemoveSkill(appender.get(), flags.id);
  WarnOfSignature(path);
  if (!globals.quiet) {
    LogInfo(fmt::format("removed skill '{}' from {}; moewe compact frees its {}", flags.id, path,
                        FormatSize(bytes)));
  }
  if (globals.json) PrintJson({{"file", path}, {"id", flags.id}, {"unused_bytes", bytes}});
  return 0;
}

// "out/gfx.skill.cmf" -> "gfx"
std::string IdFromPath(const std::string& path) {
  std::string name = path.substr(path.find_last_of('/') + 1);
  for (const std::string_view extension : {".cmf", ".skill"}) {
    if (name.ends_with(extension)) name.resize(name.size() - extension.size());
  }
  return name;
}

void Report(const Globals& globals, const std::string& dst, const convert::SkillFileResult& result,
            const char* what) {
  if (!globals.quiet) {
    LogInfo(fmt::format("wrote {}: {} '{}', {} tensors, {}", dst, what, result.id, result.tensors,
                        FormatSize(result.bytes)));
  }
  if (globals.json) {
    PrintJson(
        {{"file", dst}, {"id", result.id}, {"tensors", result.tensors}, {"bytes", result.bytes}});
  }
}

int Export(const Flags& flags, const Globals& globals) {
  const auto specialist = OpenCmf(flags.specialist);
  const auto base = OpenCmf(flags.base);
  convert::SkillExportOptions options;
  options.id = flags.id.empty() ? IdFromPath(flags.dst) : flags.id;
  options.name = flags.name;
  options.task = flags.task;
  Report(globals, flags.dst, convert::ExportSkill(*specialist, *base, flags.dst, options),
         "standalone skill");
  return 0;
}

int Apply(const Flags& flags, const Globals& globals) {
  const auto base = OpenCmf(flags.base);
  const auto skill = OpenCmf(flags.skill);
  Report(globals, flags.dst,
         convert::ApplySkill(*base, *skill, flags.dst, flags.force,
                             [](const std::string& line) { LogWarning(line); }),
         "the base with skill");
  return 0;
}

}  // namespace

Action AddSkillAdd(CLI::App& verb, const Globals& globals) {
  auto flags = std::make_shared<Flags>();
  verb.add_option("FILE", flags->file, "the .cmf that gets the skill, in place")->required();
  verb.add_option("--donor", flags->donor, "fine-tuned checkpoint of the same base")->required();
  verb.add_option("--id", flags->id, "what --skill will call it")->required();
  verb.add_option("--texts", flags->texts, "texts that the skill is for: they route to it")
      ->required();
  verb.add_option("--eval", flags->eval, "held-out text to measure perplexity on");
  AddNumber(&verb, "--min-delta", &flags->min_delta, 0.0, 1e6,
            "take tensors that changed by more, relative to their size (default 0.01)");
  verb.add_option("--dtype", flags->dtype,
                  std::string("dtype of its tensors (default: that of what they replace): ") +
                      convert::kQuantNames);
  verb.add_option("--layers", flags->layers, "tensors of these layers only: 0,2-5");
  verb.add_option("--name", flags->name, "a line for people");
  verb.add_option("--task", flags->task, "a mask of the file that belongs to the skill");
  AddNumber(&verb, "--phi-layer", &flags->phi_layer, 0u, UINT32_MAX,
            "the layer whose output tells texts apart (default: two thirds up)");
  AddNumber(&verb, "--rank", &flags->rank, 1, 256, "directions of the subspace (default 8)");
  AddThreads(&verb, &flags->threads);
  return [flags, &globals] { return Add(*flags, globals); };
}

Action AddSkillRemove(CLI::App& verb, const Globals& globals) {
  auto flags = std::make_shared<Flags>();
  verb.add_option("FILE", flags->file, "a .cmf file")->required();
  verb.add_option("ID", flags->id, "the skill")->required();
  return [flags, &globals] { return Remove(*flags, globals); };
}

Action AddSkillExport(CLI::App& verb, const Globals& globals) {
  auto flags = std::make_shared<Flags>();
  verb.add_option("SPECIALIST", flags->specialist, "a .cmf file")->required();
  verb.add_option("DST", flags->dst, "the standalone skill to make")->required();
  verb.add_option("--base", flags->base, "the .cmf that the specialist was made of")->required();
  verb.add_option("--id", flags->id, "its id (default: by DST's name)");
  verb.add_option("--name", flags->name, "a line for people");
  verb.add_option("--task", flags->task,
                  "the mask that it activates (default: the specialist's default task)");
  return [flags, &globals] { return Export(*flags, globals); };
}

Action AddSkillApply(CLI::App& verb, const Globals& globals) {
  auto flags = std::make_shared<Flags>();
  verb.add_option("BASE", flags->base, "the .cmf that the skill was cut against")->required();
  verb.add_option("SKILL", flags->skill, "the standalone skill")->required();
  verb.add_option("DST", flags->dst, "the .cmf to make")->required();
  verb.add_flag("--force", flags->force, "also if BASE is not the one that it was cut against");
  return [flags, &globals] { return Apply(*flags, globals); };
}

}  // namespace moewe::cli
