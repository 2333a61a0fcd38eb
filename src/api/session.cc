// moewe::Session: a conversation's messages. Its keys and values are the engine's to keep.
#include <utility>

#include "moewe/moewe.h"

namespace moewe {
namespace {

bool IsSystem(const Message& message) { return message.role == "system"; }

// Up to what the user said last, without its answer; empty if there is nothing.
std::vector<Message> UpToLastQuestion(std::vector<Message> messages) {
  while (!messages.empty() && messages.back().role != "user") messages.pop_back();
  return messages;
}

}  // namespace

Session::Session(Model model, std::string system) : model_(std::move(model)) {
  SetSystem(std::move(system));
}

Answer Session::Say(std::string_view text, const GenerateOptions& options, const OnText& on_text) {
  std::vector<Message> messages = messages_;
  messages.push_back({"user", std::string(text)});
  return Reply(std::move(messages), options, on_text);
}

Answer Session::Again(const GenerateOptions& options, const OnText& on_text) {
  std::vector<Message> messages = UpToLastQuestion(messages_);
  if (messages.empty()) throw Error(ErrorCode::kUsage, "nothing has been said yet");
  return Reply(std::move(messages), options, on_text);
}

Answer Session::Reply(std::vector<Message> messages, const GenerateOptions& options,
                      const OnText& on_text) {
  Answer answer = model_.Generate(model_.Prompt(messages), options, on_text);
  if (answer.finish_reason == FinishReason::kCancelled && answer.text.empty()) return answer;
  messages.push_back({"assistant", answer.text});
  messages_ = std::move(messages);
  return answer;
}

bool Session::Undo() {
  std::vector<Message> messages = UpToLastQuestion(messages_);
  if (messages.empty()) return false;
  messages.pop_back();
  messages_ = std::move(messages);
  return true;
}

void Session::Clear() {
  while (!messages_.empty() && !IsSystem(messages_.back())) messages_.pop_back();
}

void Session::SetSystem(std::string system) {
  if (!messages_.empty() && IsSystem(messages_.front())) messages_.erase(messages_.begin());
  if (!system.empty()) messages_.insert(messages_.begin(), {"system", std::move(system)});
}

const std::vector<Message>& Session::messages() const { return messages_; }

}  // namespace moewe
