#include "cli/help.h"

#include <algorithm>
#include <string_view>

namespace moewe::cli {
namespace {

constexpr size_t kWidth = 100;
constexpr size_t kColumn = 28;  // where descriptions begin

// `left` and `right` in two columns, the right one broken at blanks.
std::string HelpRow(std::string_view left, std::string_view right) {
  std::string text = "  " + std::string(left);
  if (text.size() + 2 > kColumn) {
    text += "  ";
  } else {
    text.resize(kColumn, ' ');
  }
  size_t room = kWidth - std::min(text.size(), kWidth);
  while (right.size() > room) {
    size_t cut = right.rfind(' ', room);
    if (cut == std::string_view::npos) cut = right.find(' ');
    if (cut == std::string_view::npos) break;
    text += std::string(right.substr(0, cut)) + "\n" + std::string(kColumn, ' ');
    right.remove_prefix(cut + 1);
    room = kWidth - kColumn;
  }
  return text + std::string(right) + "\n";
}

// What stands for a flag's value: "TEXT", "N", "int8|f32"; nothing for a flag without one.
std::string ValueName(const CLI::Option& option) {
  if (option.get_type_size_max() == 0) return "";
  const std::string type = option.get_type_name();
  const size_t open = type.find('{');
  std::string name;
  if (open != std::string::npos) {
    name = type.substr(open + 1, type.find('}', open) - open - 1);
    for (char& c : name) c = c == ',' ? '|' : c;
  } else {
    name = type.substr(0, type.find(':'));
    if (name == "INT" || name == "UINT") name = "N";
    if (name == "FLOAT") name = "X";
  }
  return " " + name + (option.get_items_expected_max() > 1 ? "..." : "");
}

std::string Usage(const CLI::App& app, const std::string& name) {
  std::string usage = "Usage: " + name;
  if (!app.get_subcommands([](const CLI::App* verb) { return !verb->get_name().empty(); })
           .empty()) {
    usage += " VERB";
  }
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_positional()) continue;
    const std::string word = option->get_name(/*positional=*/true);
    usage += option->get_required() ? " " + word : " [" + word + "]";
  }
  return usage + " [FLAGS]\n";
}

}  // namespace

std::string HelpFormatter::make_help(const CLI::App* app, std::string name,
                                     CLI::AppFormatMode /*mode*/) const {
  if (name.empty()) name = app->get_name();
  std::string text = app->get_description() + "\n" + Usage(*app, name) + "\n";
  for (const CLI::Option* option : app->get_options()) {
    if (!option->get_positional()) continue;
    text += HelpRow(option->get_name(/*positional=*/true), option->get_description());
  }
  for (const CLI::Option* option : app->get_options()) {
    // Every verb has --help; it is listed once, by the program.
    const bool help = app->get_parent() != nullptr && option == app->get_help_ptr();
    if (!option->nonpositional() || help) continue;
    text += HelpRow(option->get_name(false, true) + ValueName(*option), option->get_description());
  }
  const auto verbs =
      app->get_subcommands([](const CLI::App* verb) { return !verb->get_name().empty(); });
  if (!verbs.empty()) {
    if (!text.ends_with("\n\n")) text += "\n";
    text += "Verbs (" + name + " VERB --help says more):\n";
  }
  for (const CLI::App* verb : verbs) text += HelpRow(verb->get_name(), verb->get_description());
  if (!app->get_footer().empty()) text += "\n" + app->get_footer() + "\n";
  return text;
}

}  // namespace moewe::cli
