#include "text/jinja/json.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "text/jinja/budget.h"
#include "text/jinja/filter_tools.h"
#include "text/jinja/printer.h"
#include "text/jinja/unicode.h"

namespace moewe::text::jinja {

Value FromJson(const nlohmann::ordered_json& json, bool message) {
  using Type = nlohmann::ordered_json::value_t;
  const DepthGuard depth;
  const auto string = [&](const std::string& text) {
    return Value::String(message ? Str::FromMessage(text) : Str(text));
  };
  switch (json.type()) {
    case Type::boolean:
      return Value::Bool(json.get<bool>());
    case Type::number_integer:
      return Value::Int(json.get<int64_t>());
    case Type::number_unsigned: {
      const auto value = json.get<uint64_t>();
      if (value <= static_cast<uint64_t>(INT64_MAX)) return Value::Int(static_cast<int64_t>(value));
      return Value::Int(BigInt::FromDigits(std::to_string(value), 10));
    }
    case Type::number_float:
      return Value::Float(json.get<double>());
    case Type::string:
      return string(json.get_ref<const std::string&>());
    case Type::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const auto& item : json) items.push_back(FromJson(item, message));
      return Value::List(std::move(items));
    }
    case Type::object: {
      Dict dict;
      for (const auto& [key, value] : json.items()) dict.Set(string(key), FromJson(value, message));
      return Value::Map(std::move(dict));
    }
    default:
      return Value();
  }
}

namespace {

class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style) : style_(style) {}

  void Write(const Value& value, int level) {
    const DepthGuard depth;
    Budget::Spend(1);
    switch (value.kind()) {
      case Kind::kNone:
        out.Append("null");
        return;
      case Kind::kBool:
        out.Append(value.boolean() ? "true" : "false");
        return;
      case Kind::kInt:
      case Kind::kBigInt:
        out.Append(Repr(value));
        return;
      case Kind::kFloat:
        out.Append(Number(value.real()));
        return;
      case Kind::kString:
        String(value.str());
        return;
      case Kind::kList:
      case Kind::kTuple:
        List(value.items(), level);
        return;
      case Kind::kDict:
        Object(value.dict(), level);
        return;
      default:
        RaiseTypeError("Object of type " + TypeName(value) + " is not JSON serializable");
    }
  }

  Str out;

 private:
  static std::string Number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return FloatRepr(value);
  }

  static void AppendEscape(std::string& text, unsigned unit) {
    static constexpr char kHex[] = "0123456789abcdef";
    text += "\\u";
    for (int shift = 12; shift >= 0; shift -= 4) text += kHex[(unit >> shift) & 15];
  }

  void String(const Str& str) {
    Budget::SpendBytes(str.text.size());
    out.Append("\"");
    size_t copied = 0;
    for (size_t pos = 0; pos < str.text.size();) {
      const size_t begin = pos;
      const char32_t c = NextCodePoint(str.text, pos);
      std::string escaped;
      switch (c) {
        case '"':
          escaped = "\\\"";
          break;
        case '\\':
          escaped = "\\\\";
          break;
        case '\n':
          escaped = "\\n";
          break;
        case '\r':
          escaped = "\\r";
          break;
        case '\t':
          escaped = "\\t";
          break;
        case '\b':
          escaped = "\\b";
          break;
        case '\f':
          escaped = "\\f";
          break;
        default:
          if (c < 0x20 || (style_.ensure_ascii && c >= 0x7F && c < 0x10000 && c != 0x7F)) {
            AppendEscape(escaped, static_cast<unsigned>(c));
          } else if (style_.ensure_ascii && c >= 0x10000) {
            AppendEscape(escaped, static_cast<unsigned>(0xD800 + ((c - 0x10000) >> 10)));
            AppendEscape(escaped, static_cast<unsigned>(0xDC00 + ((c - 0x10000) & 0x3FF)));
          } else {
            continue;
          }
      }
      out.Append(str, copied, begin);
      out.Append(escaped, str.from_message());
      copied = pos;
    }
    out.Append(str, copied, str.text.size());
    out.Append("\"");
  }

  void Newline(int level) {
    if (!style_.indent) return;
    out.Append("\n");
    for (int i = 0; i < level; ++i) out.Append(*style_.indent);
  }

  void List(const std::vector<Value>& items, int level) {
    if (items.empty()) return out.Append("[]");
    out.Append("[");
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out.Append(style_.item_separator);
      Newline(level + 1);
      Write(items[i], level + 1);
    }
    Newline(level);
    out.Append("]");
  }

  void Object(const Dict& dict, int level) {
    if (dict.size() == 0) return out.Append("{}");
    std::vector<Value> order;
    std::vector<Value> keys;
    for (const Dict::Entry& entry : dict.entries()) {
      keys.push_back(entry.key);
      order.push_back(Value::Tuple({entry.key, entry.value}));
    }
    if (style_.sort_keys) SortByKey(order, keys, false);
    out.Append("{");
    bool first = true;
    for (const Value& entry : order) {
      if (!first) out.Append(style_.item_separator);
      first = false;
      Newline(level + 1);
      Key(entry.items()[0]);
      out.Append(style_.key_separator);
      Write(entry.items()[1], level + 1);
    }
    Newline(level);
    out.Append("}");
  }

  void Key(const Value& key) {
    switch (key.kind()) {
      case Kind::kString:
        return String(key.str());
      case Kind::kNone:
        return out.Append("\"null\"");
      case Kind::kBool:
        return out.Append(key.boolean() ? "\"true\"" : "\"false\"");
      case Kind::kInt:
      case Kind::kBigInt:
        return out.Append("\"" + Repr(key).text + "\"");
      case Kind::kFloat:
        return out.Append("\"" + Number(key.real()) + "\"");
      default:
        RaiseTypeError("keys must be str, int, float, bool or None, not " + TypeName(key));
    }
  }

  const JsonStyle& style_;
};

}  // namespace

Str ToJson(const Value& value, const JsonStyle& style) {
  JsonWriter writer(style);
  writer.Write(value, 0);
  return std::move(writer.out);
}

}  // namespace moewe::text::jinja
