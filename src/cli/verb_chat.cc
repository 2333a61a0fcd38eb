// moewe chat: a conversation.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>

#include "base/log.h"
#include "cli/answer_output.h"
#include "cli/interrupt.h"
#include "cli/line_reader.h"
#include "cli/run_flags.h"
#include "cli/sampling_flags.h"
#include "cli/stream_report.h"
#include "cli/text_input.h"
#include "cli/verbs.h"
#include "moewe/error.h"
#include "moewe/moewe.h"

namespace moewe::cli {
namespace {

struct Flags {
  RunFlags run;
  SamplingFlags sampling;
  std::string model, system;
};

constexpr std::string_view kHelp =
    "/system [TEXT]  what the system says from now on; nothing without TEXT\n"
    "/again          another answer to what you said last\n"
    "/undo           forget what you said last and its answer\n"
    "/clear          forget the conversation\n"
    "/stats          what the last answer took\n"
    "/exit           leave (so does the end of input, Ctrl-D)\n"
    "Several lines: begin with \"\"\" and end with \"\"\", or end a line with \\.\n"
    "A line that begins with // says what follows the first /.\n"
    "Ctrl-C stops an answer; twice at the prompt, it leaves.\n";

constexpr std::string_view kFence = "\"\"\"";

class Chat {
 public:
  Chat(const Flags& flags, const Globals& globals, Model model)
      : globals_(globals),
        stats_(flags.run.stats),
        options_(OptionsOf(flags.sampling, flags.run)),
        seed_(flags.run.seed ? *flags.run.seed : std::random_device()()),
        session_(std::move(model), CheckedText(flags.system, "--system")),
        interrupted_(CatchCtrlC()),
        reader_(STDIN_FILENO, &interrupted_, "stdin"),
        terminal_(isatty(STDIN_FILENO) != 0) {
    options_.cancel = &interrupted_;
    if (options_.temperature != 0.0f && !globals.quiet) LogInfo("seed " + std::to_string(seed_));
  }

  int Run() {
    if (terminal_) Note("/help shows what can be typed here beside text");
    while (true) {
      std::string text;
      switch (ReadMessage(&text)) {
        case LineReader::Event::kEnd:
          if (terminal_) Note("");
          return Leave();
        case LineReader::Event::kInterrupt:
          if (std::exchange(hinted_, true)) throw Error(ErrorCode::kInterrupted, "stopped");
          Note("\nCtrl-C again or /exit to leave");
          break;
        case LineReader::Event::kLine:
          hinted_ = false;
          if (!Handle(text)) return Leave();
          break;
      }
    }
  }

 private:
  // For the person at the terminal, and no part of the result.
  void Note(std::string_view text) const {
    std::fprintf(stderr, "%.*s\n", static_cast<int>(text.size()), text.data());
  }
  void Prompt(std::string_view text) const {
    if (terminal_) std::fprintf(stderr, "%.*s", static_cast<int>(text.size()), text.data());
  }

  // One line, or several of them put together.
  LineReader::Event ReadMessage(std::string* text) {
    Prompt("> ");
    LineReader::Event event = reader_.Read(text);
    if (event != LineReader::Event::kLine) return event;
    std::string line;
    if (text->starts_with(kFence)) {
      text->erase(0, kFence.size());
      while (!text->ends_with(kFence)) {
        Prompt(". ");
        event = reader_.Read(&line);
        if (event == LineReader::Event::kInterrupt) return event;
        if (event == LineReader::Event::kEnd) return LineReader::Event::kLine;
        *text += "\n" + line;
      }
      text->resize(text->size() - kFence.size());
      if (text->starts_with('\n')) text->erase(0, 1);
      if (text->ends_with('\n')) text->pop_back();
      return LineReader::Event::kLine;
    }
    while (text->ends_with('\\')) {
      Prompt(". ");
      event = reader_.Read(&line);
      if (event == LineReader::Event::kInterrupt) return event;
      text->back() = '\n';
      if (event == LineReader::Event::kEnd) break;
      *text += line;
    }
    return LineReader::Event::kLine;
  }

  // False to leave.
  bool Handle(const std::string& text) {
    if (text.find_first_not_of(" \t\n") == std::string::npos) return true;
    if (text.starts_with("//")) {
      Reply([&](const OnText& on_text) { return session_.Say(text.substr(1), options_, on_text); });
    } else if (text.starts_with('/')) {
      return Command(text);
    } else {
      Reply([&](const OnText& on_text) { return session_.Say(text, options_, on_text); });
    }
    return true;
  }

  bool Command(const std::string& line) {
    const size_t space = std::min(line.find(' '), line.size());
    const std::string name = line.substr(0, space);
    const size_t rest = std::min(line.find_first_not_of(' ', space), line.size());
    if (name == "/exit" || name == "/quit") return false;
    if (name == "/help") {
      Note(kHelp.substr(0, kHelp.size() - 1));
    } else if (name == "/system") {
      session_.SetSystem(line.substr(rest));
    } else if (name == "/again") {
      Reply([&](const OnText& on_text) { return session_.Again(options_, on_text); });
    } else if (name == "/undo") {
      if (!session_.Undo()) Note("nothing has been said yet");
    } else if (name == "/clear") {
      session_.Clear();
    } else if (name == "/stats") {
      ShowStats();
    } else {
      Note("there is no " + name + "; /help lists what there is");
    }
    return true;
  }

  template <typename Ask>
  void Reply(const Ask& ask) {
    options_.seed = seed_++;
    interrupted_.store(false);
    const auto start = std::chrono::steady_clock::now();
    try {
      last_ = ask(globals_.json ? OnText() : OnText(PrintText));
    } catch (const Error& error) {
      // A mistake of one message; the conversation goes on.
      seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      Note(std::string("moewe: ") + error.what());
      if (exit_code_ == 0) exit_code_ = ExitCode(error.code());
      answers_.push_back({{"error", ErrorJson(error)}});
      return;
    }
    interrupted_.store(false);
    seconds_ += last_.prefill_seconds + last_.decode_seconds;
    if (globals_.json) {
      answers_.push_back(AnswerJson(last_));
    } else {
      PrintText("\n");
    }
    if (stats_) ShowCost();
    if (!last_.skill_energies.empty() && !globals_.quiet) LogInfo(SkillChosen(last_));
  }

  // Of the last answer; of streaming, since the model was opened.
  void ShowCost() const {
    PrintStats(last_);
    if (const auto streaming = session_.model().streaming()) PrintStream(*streaming, seconds_);
  }

  void ShowStats() const {
    ShowCost();
    std::fprintf(stderr, "context %zu of %u positions, %zu messages, seed %llu\n",
                 last_.prompt_tokens + last_.ids.size(), session_.model().info().context,
                 session_.messages().size(), static_cast<unsigned long long>(last_.seed));
  }

  int Leave() const {
    if (globals_.json) {
      nlohmann::ordered_json messages = nlohmann::ordered_json::array();
      for (const Message& message : session_.messages()) {
        messages.push_back({{"role", message.role}, {"content", message.content}});
      }
      nlohmann::ordered_json report = {{"messages", messages}, {"answers", answers_}};
      if (const auto streaming = session_.model().streaming()) {
        report["streaming"] = StreamJson(*streaming, seconds_);
      }
      PrintJson(report);
    }
    // A person has seen the messages; a script needs the code.
    return terminal_ ? 0 : exit_code_;
  }

  const Globals& globals_;
  const bool stats_;
  GenerateOptions options_;
  uint64_t seed_;  // of the next answer
  Session session_;
  std::atomic<bool>& interrupted_;
  LineReader reader_;
  const bool terminal_;
  bool hinted_ = false;  // the last event was Ctrl-C
  int exit_code_ = 0;
  Answer last_;
  double seconds_ = 0.0;  // of all answers, computing; failed ones too
  nlohmann::ordered_json answers_ = nlohmann::ordered_json::array();
};

int Run(const Flags& flags, const Globals& globals) {
  Model model = Model::Open(flags.model, ModelOptionsOf(flags.run));
  const ModelInfo& info = model.info();
  if (!info.has_tokenizer) model.Tokenize("");  // throws, saying why there is none
  if (!info.has_chat_template) LogInfo("the model has no chat template; using ChatML");
  return Chat(flags, globals, std::move(model)).Run();
}

}  // namespace

Action AddChat(CLI::App& verb, const Globals& globals) {
  auto flags = std::make_shared<Flags>();
  verb.add_option("MODEL", flags->model, "model file or folder")->required();
  verb.add_option("--system", flags->system, "what the system says before the conversation");
  AddSamplingFlags(&verb, &flags->sampling);
  AddRunFlags(&verb, &flags->run);
  return [flags, &globals] { return Run(*flags, globals); };
}

}  // namespace moewe::cli
