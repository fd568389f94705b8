// tiktoken joins the adjacent pair whose bytes together are the token of the lowest rank, the leftmost of equals, and
// takes a piece that is a token as a whole. What the bytes of a token become depends on nothing outside of them until
// the token is made, so exactly one pair ever makes it: the last one where its own bytes are encoded like that. These
// pairs, in the order of ranks, are the merges. A token that its bytes do not become has none, and comes only out of a
// piece that is this token.
#include "loam/text/rank_merges.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <unordered_map>

#include "loam/base/error.h"

namespace loam {
namespace {

using Ranks = std::unordered_map<std::string_view, int32_t>;

// Of the bytes of one token: the pair that makes it, if it is made.
class PairFinder {
 public:
  explicit PairFinder(const Ranks& ranks) : ranks_(ranks), byte_pairs_(65536, kNone) {
    for (const auto& [token, rank] : ranks) {
      if (token.size() == 2) byte_pairs_[index(token[0], token[1])] = rank;
    }
  }

  std::optional<Merge> find(std::string_view token) {
    ends_.clear();
    for (uint32_t i = 1; i <= token.size(); ++i) ends_.push_back(i);
    joined_.assign(token.size(), kNone);
    for (size_t i = 0; i + 1 < token.size(); ++i) joined_[i] = byte_pairs_[index(token[i], token[i + 1])];
    while (ends_.size() > 2) {
      const size_t best = static_cast<size_t>(std::min_element(joined_.begin(), joined_.end()) - joined_.begin());
      if (joined_[best] == kNone) return std::nullopt;
      ends_.erase(ends_.begin() + static_cast<int64_t>(best));
      joined_.erase(joined_.begin() + static_cast<int64_t>(best));
      joined_[best] = rank_at(token, best);
      if (best > 0) joined_[best - 1] = rank_at(token, best - 1);
    }
    if (ends_.size() < 2) return std::nullopt;
    const auto left = ranks_.find(token.substr(0, ends_[0])), right = ranks_.find(token.substr(ends_[0]));
    if (left == ranks_.end() || right == ranks_.end()) return std::nullopt;
    return Merge{left->second, right->second};
  }

 private:
  static constexpr int32_t kNone = std::numeric_limits<int32_t>::max();

  // Of the part `i` joined with the one behind it.
  int32_t rank_at(std::string_view token, size_t i) const {
    if (i + 1 >= ends_.size()) return kNone;
    const size_t begin = i == 0 ? 0 : ends_[i - 1];
    const auto found = ranks_.find(token.substr(begin, ends_[i + 1] - begin));
    return found == ranks_.end() ? kNone : found->second;
  }

  static size_t index(char first, char second) {
    return size_t{256} * static_cast<unsigned char>(first) + static_cast<unsigned char>(second);
  }

  const Ranks& ranks_;
  std::vector<int32_t> byte_pairs_;  // the rank of each two bytes
  std::vector<uint32_t> ends_;       // of the parts
  std::vector<int32_t> joined_;      // the rank of each part with the next one
};

}  // namespace

void derive_merges(const std::vector<std::string>& tokens, BpeModel& model) {
  Ranks ranks;
  ranks.reserve(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (!tokens[i].empty() && !ranks.emplace(tokens[i], static_cast<int32_t>(i)).second)
      fail(ErrorCode::kBadFormat, "the token of rank {} is there twice", i);
  }
  PairFinder finder(ranks);
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::optional<Merge> merge = finder.find(tokens[i]);
    if (!merge) continue;
    model.merges.push_back(*merge);
    model.merge_ids.push_back(static_cast<int32_t>(i));
  }
}

}  // namespace loam
