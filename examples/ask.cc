// Ask a model questions from a program: ask MODEL [QUESTION...]
//
// Outside of the project it is built like this:
//   find_package(moewe REQUIRED)
//   target_link_libraries(ask PRIVATE moewe::moewe)
#include <moewe/moewe.h>

#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

namespace {

void Print(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void Ask(const std::string& path, const std::vector<std::string>& questions) {
  // Weights stay where they are in the file; "auto" memory is what this machine has to spare.
  moewe::ModelOptions how;
  how.context = 1024;
  const moewe::Model model = moewe::Model::Open(path, how);
  std::printf("%s: %u layers, %u experts, %d threads\n", model.info().family.c_str(),
              model.info().num_layers, model.info().num_experts, model.info().threads);

  // A conversation. Text comes as it is made; earlier turns are not computed again.
  moewe::Session session(model);
  moewe::GenerateOptions options;
  options.temperature = 0.0f;  // always the most likely token
  options.max_tokens = 100;
  for (const std::string& question : questions) {
    std::printf("> %s\n", question.c_str());
    const moewe::Answer answer = session.Say(question, options, Print);
    std::printf("\n  [%zu tokens, of the prompt %zu of %zu were known]\n", answer.ids.size(),
                answer.reused_tokens, answer.prompt_tokens);
  }

  // Without a conversation: continue a text, and say how likely a text is.
  const std::vector<moewe::Token> prompt = model.Tokenize("Once upon a time");
  const moewe::Answer tale = model.Generate(prompt, options);
  std::printf("Once upon a time%s\n", tale.text.c_str());
  double sum = 0.0;
  const std::vector<double> log_probs = model.LogProbs(tale.ids);
  for (const double log_prob : log_probs) sum -= log_prob;
  std::printf("perplexity %.2f\n", std::exp(sum / static_cast<double>(log_probs.size())));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fputs("usage: ask MODEL [QUESTION...]\n", stderr);
    return 2;
  }
  try {
    Ask(argv[1], {argv + 2, argv + argc});
    return 0;
  } catch (const moewe::Error& error) {  // what() names the file, the field and the offset
    std::fprintf(stderr, "ask: %s\n", error.what());
    return moewe::ExitCode(error.code());
  }
}
