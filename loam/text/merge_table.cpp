#include "loam/text/merge_table.h"

#include <algorithm>

#include "loam/base/error.h"

namespace loam {

MergeTable::MergeTable(std::span<const RankedMerge> merges) {
  if (static_cast<int64_t>(merges.size()) >= kMaxPairs)
    fail(ErrorCode::kBadFormat, "tokenizer: {} merges, {} or more", merges.size(), kMaxPairs);
  std::vector<uint64_t> hashes;
  hashes.reserve(merges.size());
  for (const RankedMerge& merge : merges) hashes.push_back(hash(pair_of(merge.left, merge.right)));
  places_ = PerfectHash(hashes);
  slots_.resize(places_.slots(), kEmpty);
  results_.reserve(merges.size());
  std::vector<bool> used;  // as a part, by id
  std::vector<bool> misfit(merges.size(), false);
  for (const size_t i : places_.misfits()) misfit[i] = true;
  for (size_t i = 0; i < merges.size(); ++i) {
    const auto [left, right, rank, id] = merges[i];
    results_.push_back({rank, id});
    const size_t ids = static_cast<size_t>(std::max({left, right, id})) + 1;
    if (used.size() < ids) used.resize(ids, false);
    if (used[id]) rising_ = false;
    used[left] = used[right] = true;
    const Place place = place_of(left, right);
    const auto index = static_cast<int32_t>(i);
    if (misfit[i]) {
      rest_.emplace(place.pair, index);
    } else {
      slots_[place.slot] = place.pair << kIndexBits | i;
    }
  }
  for (size_t i = 0; i < merges.size(); ++i) {
    if (find_index(place_of(merges[i].left, merges[i].right)) != static_cast<int32_t>(i))
      fail(ErrorCode::kBadFormat, "tokenizer: merge {} of {} and {} is there twice", i, merges[i].left,
           merges[i].right);
  }
}

int32_t MergeTable::find_in_rest(uint64_t pair) const {
  const auto found = rest_.find(pair);
  return found == rest_.end() ? kNoMerge : found->second;
}

}  // namespace loam
