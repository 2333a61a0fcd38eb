#include "engine/prefix_cache.h"

#include <algorithm>
#include <utility>

namespace moewe::engine {

size_t CommonPrefix(std::span<const TokenId> a, std::span<const TokenId> b) {
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

namespace {

bool Has(const model::Sequence& sequence, size_t beginning) {
  return sequence.ReusableLength(beginning) == beginning;
}

}  // namespace

void PrefixCache::Insert(std::vector<TokenId> tokens, model::Sequence sequence) {
  if (tokens.empty()) return;
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const size_t common = CommonPrefix(entry->tokens, tokens);
    if (common == tokens.size() && Has(entry->sequence, common)) {  // nothing new
      entries_.splice(entries_.begin(), entries_, entry);
      return;
    }
    const bool within = common == entry->tokens.size() && Has(sequence, common);
    entry = within ? entries_.erase(entry) : std::next(entry);
  }
  entries_.push_front({std::move(tokens), std::move(sequence)});
  if (entries_.size() > max_entries_) EvictOldest();
}

PrefixCache::Entries::iterator PrefixCache::Best(std::span<const TokenId> tokens, size_t* length) {
  auto best = entries_.end();
  *length = 0;
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    const size_t common = entry->sequence.ReusableLength(CommonPrefix(entry->tokens, tokens));
    if (common > *length) {
      *length = common;
      best = entry;
    }
  }
  return best;
}

size_t PrefixCache::Find(std::span<const TokenId> tokens) const {
  size_t longest = 0;
  for (const Entry& entry : entries_) {
    longest = std::max(longest, entry.sequence.ReusableLength(CommonPrefix(entry.tokens, tokens)));
  }
  return longest;
}

model::Sequence PrefixCache::Take(std::span<const TokenId> tokens) {
  size_t length = 0;
  const auto entry = Best(tokens, &length);
  model::KvPool& pool = entry->sequence.pool();
  const bool copies = length % model::kBlockTokens != 0;
  while (length < entry->tokens.size() && copies && pool.free_blocks() == 0) {
    const auto oldest = std::prev(entries_.end());
    if (oldest == entry) break;
    entries_.erase(oldest);
  }
  if (length == entry->tokens.size() || (copies && pool.free_blocks() == 0)) {
    model::Sequence sequence = std::move(entry->sequence);
    sequence.Truncate(length);
    entries_.erase(entry);
    return sequence;
  }
  entries_.splice(entries_.begin(), entries_, entry);
  return entry->sequence.Fork(length);
}

bool PrefixCache::EvictOldest() {
  if (entries_.empty()) return false;
  entries_.pop_back();
  return true;
}

}  // namespace moewe::engine
