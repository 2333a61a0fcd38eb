#include "cli/verbs.h"

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace moewe::cli {

std::span<const VerbEntry> Verbs() {
  // name, one line, example, function; one line of the table a verb.
  static constexpr auto kVerbs = std::to_array<VerbEntry>({
      {"run", "one answer", "moewe run demo.cmf --raw -p 'Once upon a time'", AddRun},
      {"chat", "a conversation", "moewe chat demo.cmf --system 'Be brief.'", AddChat},
      {"plan", "what goes where in memory, and how fast it can be",
       "moewe plan demo.cmf --memory 1GiB", AddPlan},
      {"ppl", "perplexity of a text", "moewe ppl demo.cmf models/demo/eval/tales.txt", AddPpl},
      {"convert", "a checkpoint to a .cmf file", "moewe convert models/demo demo.cmf --quant q4tp",
       AddConvert},
      {"requant", "a .cmf in other dtypes", "moewe requant demo.cmf small.cmf --quant q4t",
       AddRequant},
      {"compact", "a .cmf without unused bytes", "moewe compact grown.cmf tight.cmf", AddCompact},
      {"shard", "a .cmf divided into files", "moewe shard m.cmf out/m.cmf --max 4GB", AddShard},
      {"tokenize", "text to token ids", "moewe tokenize demo.cmf -p 'Hello there'", AddTokenize},
      {"detokenize", "token ids to text", "moewe detokenize demo.cmf --ids 1,2,3", AddDetokenize},
      {"template", "what the chat template makes of messages",
       "moewe template demo.cmf --messages chat.json", AddTemplate},
      {"info", "what a model file is", "moewe info demo.cmf --tensors", AddInfo},
      {"verify", "check every hash, bound and rule of a file", "moewe verify demo.cmf", AddVerify},
      {"sign", "write a signature beside a file", "moewe sign demo.cmf --key release.key --new-key",
       AddSign},
      {"diff", "what changed between two models", "moewe diff demo.cmf other.cmf", AddDiff},
      {"mask", "task masks: list, show, add, remove",
       "moewe mask add demo.cmf keep.npy --name code --default", AddMask},
      {"skill", "skills: list, route, explain, add, remove, export, apply",
       "moewe skill route demo.cmf -p 'int main('", AddSkill},
      {"experts", "which experts tasks use; masks, smaller files, cache simulation",
       "moewe experts stats demo.cmf code.txt --out code.json", AddExperts},
      {"vault", "a .smoe changed in place: upgrade",
       "moewe vault upgrade old.smoe --config checkpoint/config.json", AddVault},
      {"dequant", "one tensor as f32",
       "moewe dequant demo.cmf --tensor lm_head.weight --out head.f32", AddDequant},
      {"bench", "how fast a model runs on this machine",
       "moewe bench --shape qwen3-30b-a3b --layers 4 --vocab 32768 --quant q4tp", AddBench},
      {"families", "model families and what each needs", "moewe families --json", AddFamilies},
      {"logits", "what the model computes for given tokens",
       "moewe logits demo.cmf --ids 1453,1087,260 --out logits.f32", AddLogits},
  });
  return kVerbs;
}

nlohmann::ordered_json ErrorJson(const Error& error) {
  return {{"code", ErrorCodeName(error.code())},
          {"message", error.message()},
          {"where", error.where().ToString()}};
}

void PrintJson(const nlohmann::ordered_json& object) {
  // Bytes that are not UTF-8 (a broken name in a broken file) must not stop a report.
  const std::string text =
      object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

}  // namespace moewe::cli
