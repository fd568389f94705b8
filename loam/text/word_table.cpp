#include "loam/text/piece_cache.h"

namespace loam {

WordTable::WordTable(std::vector<Word> words) {
  std::vector<uint64_t> hashes;
  hashes.reserve(words.size());
  for (const Word& word : words) hashes.push_back(word.key.hash());
  places_ = PerfectHash(hashes);
  for (const size_t i : places_.misfits()) words[i].id = -1;
  slots_.resize(places_.slots());
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i].id >= 0) slots_[places_.slot(hashes[i])] = words[i];
  }
}

}  // namespace loam
