// Sequences that ended, kept so that a prompt that begins like one of them need not be computed
// again.
//
// Exact: the keys and values of a position depend only on the tokens before it, so taking them from
// another sequence changes no result. Reuse is by token: whole blocks are shared by reference
// count, the last partial one is copied. In a model with recurrent layers a beginning counts as far
// as the sequence kept a state (model::Sequence::ReusableLength).
#ifndef MOEWE_ENGINE_PREFIX_CACHE_H_
#define MOEWE_ENGINE_PREFIX_CACHE_H_

#include <cstddef>
#include <list>
#include <span>
#include <vector>

#include "model/kv_cache.h"
#include "model/model.h"

namespace moewe::engine {

using model::TokenId;

// Tokens that both begin with.
size_t CommonPrefix(std::span<const TokenId> a, std::span<const TokenId> b);

// Not thread-safe. The pool of the sequences must outlive it.
class PrefixCache {
 public:
  explicit PrefixCache(size_t max_entries) : max_entries_(max_entries) {}

  // Keeps a sequence; `tokens` are those that it holds. An entry that is the beginning of another
  // is dropped.
  void Insert(std::vector<TokenId> tokens, model::Sequence sequence);

  // Length of the longest beginning of `tokens` that an entry has and can go back to.
  size_t Find(std::span<const TokenId> tokens) const;

  // A sequence with that beginning. The entry stays, unless it holds nothing more than this or
  // there is no memory for a copy of its last block.
  model::Sequence Take(std::span<const TokenId> tokens);

  // Gives the entry back that was not used for longest; false if there is none.
  bool EvictOldest();

  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    std::vector<TokenId> tokens;
    model::Sequence sequence;
  };
  using Entries = std::list<Entry>;

  Entries::iterator Best(std::span<const TokenId> tokens, size_t* length);

  size_t max_entries_;
  Entries entries_;  // the last used first
};

}  // namespace moewe::engine

#endif  // MOEWE_ENGINE_PREFIX_CACHE_H_
