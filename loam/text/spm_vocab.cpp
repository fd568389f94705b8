#include "loam/text/spm_vocab.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "loam/base/error.h"
#include "loam/base/utf8.h"

namespace loam {
namespace {

constexpr size_t kMaxTokenBytes = 1024;

size_t neighbours(std::string_view text, size_t position) {
  return size_t{static_cast<unsigned char>(text[position - 1])} << 8 | static_cast<unsigned char>(text[position]);
}

void check_model(const SpmModel& model) {
  const int64_t size = static_cast<int64_t>(model.tokens.size());
  const auto require = [](bool condition, const std::string& message) {
    if (!condition) fail(ErrorCode::kBadFormat, "SentencePiece vocabulary: {}", message);
  };
  require(size > 0 && size <= int64_t{1} << 24, fmt::format("{} tokens", size));
  require(model.tokens.size() == model.scores.size(),
          fmt::format("{} tokens but {} scores", size, model.scores.size()));
  for (const int32_t id : {model.unknown_id, model.bos_id, model.eos_id}) {
    require(id >= -1 && id < size, fmt::format("control id {} of {} tokens", id, size));
  }
  for (int64_t i = 0; i < size; ++i) {
    require(!std::isnan(model.scores[i]), fmt::format("the score of token {} is not a number", i));
    require(model.tokens[i].size() <= kMaxTokenBytes,
            fmt::format("token {} has {} bytes, more than {}", i, model.tokens[i].size(), kMaxTokenBytes));
  }
  if (model.first_byte_id < 0) {
    require(model.unknown_id >= 0, "neither byte tokens nor an unknown token");
    return;
  }
  require(model.first_byte_id + int64_t{256} <= size,
          fmt::format("byte tokens from {} of {}", model.first_byte_id, size));
  for (int byte = 0; byte < 256; ++byte) {
    const std::string& token = model.tokens[model.first_byte_id + byte];
    const std::string wanted = fmt::format("<0x{:02X}>", byte);
    require(token == wanted, fmt::format("token {} is \"{}\", not {}", model.first_byte_id + byte, token, wanted));
  }
}

}  // namespace

SpmVocab::SpmVocab(const SpmModel& model)
    : unknown_id_(model.unknown_id), bos_id_(model.bos_id), eos_id_(model.eos_id), first_byte_id_(model.first_byte_id) {
  check_model(model);
  for (size_t id = 0; id < model.tokens.size(); ++id) {
    const std::string& token = model.tokens[id];
    if (token.empty() || !is_text(static_cast<int32_t>(id))) continue;
    const Utf8Char first = decode_utf8(token, 0);
    if (first.valid && static_cast<size_t>(first.length) == token.size()) {
      characters_.try_emplace(first.code_point, static_cast<int32_t>(id));
    }
    for (size_t i = first.length; i < token.size(); i += decode_utf8(token, i).length)
      joined_.set(neighbours(token, i));
  }
  derive_merges(model);
}

void SpmVocab::derive_merges(const SpmModel& model) {
  std::unordered_map<std::string_view, int32_t> ids;
  for (size_t id = 0; id < model.tokens.size(); ++id) {
    if (is_text(static_cast<int32_t>(id))) ids.try_emplace(model.tokens[id], static_cast<int32_t>(id));
  }
  for (const auto& [token, id] : ids) {
    for (size_t cut = 1; cut < token.size(); ++cut) {
      const auto left = ids.find(token.substr(0, cut)), right = ids.find(token.substr(cut));
      if (left != ids.end() && right != ids.end()) merges_.push_back({left->second, right->second, id, 0});
    }
  }
  const auto key = [&](const SpmMerge& m) { return std::tuple(-model.scores[m.made], m.made, m.left, m.right); };
  std::sort(merges_.begin(), merges_.end(), [&](const SpmMerge& a, const SpmMerge& b) { return key(a) < key(b); });
  for (size_t i = 1; i < merges_.size(); ++i) {
    const bool same = model.scores[merges_[i].made] == model.scores[merges_[i - 1].made];
    merges_[i].rank = merges_[i - 1].rank + (same ? 0 : 1);
  }
}

bool SpmVocab::is_text(int32_t id) const {
  const bool byte = first_byte_id_ >= 0 && id >= first_byte_id_ && id < first_byte_id_ + 256;
  return !byte && id != unknown_id_ && id != bos_id_ && id != eos_id_;
}

int32_t SpmVocab::character(uint32_t code_point) const {
  const auto found = characters_.find(code_point);
  return found == characters_.end() ? -1 : found->second;
}

size_t SpmVocab::next_piece(std::string_view text, size_t position) const {
  size_t end = position + decode_utf8(text, position).length;
  while (end < text.size() && joined_[neighbours(text, end)]) end += decode_utf8(text, end).length;
  return end - position;
}

size_t SpmVocab::stable_prefix(std::string_view text) const {
  const std::string_view whole = text.substr(0, text.size() - incomplete_utf8_suffix(text));
  for (size_t cut = whole.size(); cut-- > 1;) {
    // Before an ASCII character there is always a character boundary.
    if (static_cast<unsigned char>(whole[cut]) < 128 && !joined_[neighbours(whole, cut)]) return cut;
  }
  size_t position = 0;
  while (position < whole.size()) {
    const size_t end = position + next_piece(whole, position);
    if (end == whole.size()) break;
    position = end;
  }
  return position;
}

}  // namespace loam
