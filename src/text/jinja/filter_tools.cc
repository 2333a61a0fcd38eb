#include "text/jinja/filter_tools.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "text/jinja/attributes.h"
#include "text/jinja/objects.h"
#include "text/jinja/ops.h"
#include "text/jinja/unicode.h"

namespace moewe::text::jinja {

AttributeGetter::AttributeGetter(const Value& attribute, const Value* fallback)
    : fallback_(fallback) {
  if (attribute.is_none()) return;
  if (!attribute.is_string()) {
    parts_.push_back(attribute);
    return;
  }
  const std::string& text = attribute.text();
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('.', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    const bool digits =
        !part.empty() && part.size() < 18 &&
        std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    parts_.push_back(digits ? Value::Int(std::stoll(part)) : Value::String(part));
    begin = end + 1;
  }
}

Value AttributeGetter::Get(const Value& item) const {
  Value value = item;
  for (const Value& part : parts_) {
    value = GetItem(value, part);
    if (fallback_ != nullptr && value.is_undefined()) value = *fallback_;
  }
  return value;
}

Value Generator(std::vector<Value> items) {
  return Value::Host(std::make_shared<Iterator>(std::move(items)));
}

Value IgnoreCase(const Value& value) {
  return value.is_string() ? Value::String(value.str().Derived(Lower(value.text()))) : value;
}

namespace {

void MergeSort(std::vector<size_t>& order, std::vector<size_t>& scratch, size_t begin, size_t end,
               const std::vector<Value>& keys, bool reverse) {
  if (end - begin < 2) return;
  const size_t middle = begin + (end - begin) / 2;
  MergeSort(order, scratch, begin, middle, keys, reverse);
  MergeSort(order, scratch, middle, end, keys, reverse);
  size_t left = begin;
  size_t right = middle;
  for (size_t i = begin; i < end; ++i) {
    bool take_right = left == middle;
    if (left < middle && right < end) {
      const Value& a = keys[order[left]];
      const Value& b = keys[order[right]];
      take_right = reverse ? Less(a, b) : Less(b, a);
    }
    scratch[i] = order[take_right ? right++ : left++];
  }
  std::copy(scratch.begin() + static_cast<std::ptrdiff_t>(begin),
            scratch.begin() + static_cast<std::ptrdiff_t>(end),
            order.begin() + static_cast<std::ptrdiff_t>(begin));
}

}  // namespace

void SortByKey(std::vector<Value>& items, const std::vector<Value>& keys, bool reverse) {
  std::vector<size_t> order(items.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::vector<size_t> scratch(items.size());
  MergeSort(order, scratch, 0, items.size(), keys, reverse);
  std::vector<Value> sorted;
  sorted.reserve(items.size());
  for (const size_t i : order) sorted.push_back(items[i]);
  items = std::move(sorted);
}

void RaiseFilterArgument(std::string message) { Raise("FilterArgumentError", std::move(message)); }

}  // namespace moewe::text::jinja
