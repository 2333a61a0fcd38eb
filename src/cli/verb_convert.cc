// `convert`: a checkpoint to a CMF file.
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "base/size.h"
#include "cli/interrupt.h"
#include "cli/verbs.h"
#include "convert/convert.h"
#include "convert/dtype_choice.h"
#include "moewe/error.h"

namespace moewe::cli {
namespace {

struct ConvertFlags {
  std::string src;
  std::string dst;
  std::string quant;
  std::vector<std::string> tensors;
  bool resume = false;
  int threads = 0;
};

int Convert(const ConvertFlags& flags, const Globals& globals) {
  if (!flags.dst.ends_with(".cmf")) {
    throw Error(ErrorCode::kUsage, "DST must end in .cmf: no other target can be written yet");
  }
  convert::ConvertOptions options;
  options.resume = flags.resume;
  if (!flags.quant.empty()) options.quant = convert::ParseQuant(flags.quant);
  for (const std::string& rule : flags.tensors) {
    const size_t equals = rule.rfind('=');
    if (equals == std::string::npos) {
      throw Error(ErrorCode::kUsage, "--tensor takes GLOB=DTYPE, not '" + rule + "'");
    }
    options.tensor_rules.emplace_back(rule.substr(0, equals),
                                      convert::ParseQuant(rule.substr(equals + 1)));
  }
  // Stops between two tensors, so that --resume finds whole ones.
  const std::atomic<bool>& interrupted = CatchInterrupts();
  size_t shown = 0;
  options.progress = [&](size_t done, size_t total) {
    if (interrupted) {
      throw Error(ErrorCode::kInterrupted, "stopped; --resume continues", {flags.dst, "", {}});
    }
    const size_t percent = done * 100 / total;
    if (globals.quiet || percent < shown + 10) return;
    shown = percent;
    std::fprintf(stderr, "moewe: %zu of %zu tensors (%zu %%)\n", done, total, percent);
  };
  const auto source = formats::OpenCheckpoint(flags.src);
  ThreadPool pool(flags.threads);
  const convert::ConvertResult result = convert::ConvertToCmf(*source, flags.dst, options, pool);
  for (const std::string& warning : result.warnings) LogWarning(warning);
  const uint64_t file_bytes = std::filesystem::file_size(flags.dst);
  const double bits = result.elements == 0 ? 0.0
                                           : 8.0 * static_cast<double>(result.bytes) /
                                                 static_cast<double>(result.elements);
  if (!globals.quiet) {
    if (result.fallbacks != 0) {
      std::fprintf(stderr, "moewe: %llu matrices with columns no multiple of 32 became q8_2f\n",
                   static_cast<unsigned long long>(result.fallbacks));
    }
    std::fprintf(stderr, "moewe: wrote %s: %llu tensors, %s, %.2f bits a weight\n",
                 flags.dst.c_str(), static_cast<unsigned long long>(result.tensors),
                 FormatSize(file_bytes).c_str(), bits);
  }
  if (globals.json) {
    PrintJson({{"file", flags.dst},
               {"tensors", result.tensors},
               {"weights", result.elements},
               {"bytes", file_bytes},
               {"bits_per_weight", bits},
               {"fallbacks", result.fallbacks}});
  }
  return 0;
}

}  // namespace

Action AddConvert(CLI::App& verb, const Globals& globals) {
  auto flags = std::make_shared<ConvertFlags>();
  verb.add_option("SRC", flags->src, "Hugging Face folder or .cmf")->required();
  verb.add_option("DST", flags->dst, "the .cmf to make")->required();
  verb.add_option("--quant", flags->quant, "q8, q8_2f, q4, q4t, q4tp, f16, bf16 or f32");
  verb.add_option("--tensor", flags->tensors, "GLOB=DTYPE: another dtype for some tensors")
      ->allow_extra_args(false);
  verb.add_flag("--resume", flags->resume, "continue an interrupted conversion");
  verb.add_option("--threads", flags->threads, "threads (default: all this process may use)");
  return [flags, &globals] { return Convert(*flags, globals); };
}

}  // namespace moewe::cli
