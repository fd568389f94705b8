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

bool is_byte(const SpmModel& model, int64_t id) {
  return model.first_byte_id >= 0 && id >= model.first_byte_id && id < model.first_byte_id + int64_t{256};
}

void check_model(const SpmModel& model) {
  const int64_t size = static_cast<int64_t>(model.tokens.size());
  const auto require = [](bool condition, const std::string& message) {
    if (!condition) fail(ErrorCode::kBadFormat, "SentencePiece vocabulary: {}", message);
  };
  require(size > 0 && size <= kMaxTokens, fmt::format("{} tokens", size));
  require(model.tokens.size() == model.scores.size(),
          fmt::format("{} tokens but {} scores", size, model.scores.size()));
  for (const int32_t id : {model.unknown_id, model.bos_id, model.eos_id}) {
    require(id >= -1 && id < size, fmt::format("control id {} of {} tokens", id, size));
    require(!is_byte(model, id), fmt::format("the control token {} is a byte token", id));
  }
  for (int64_t i = 0; i < size; ++i) {
    require(!std::isnan(model.scores[i]), fmt::format("the score of token {} is not a number", i));
    require(model.tokens[i].size() <= kMaxTokenBytes,
            fmt::format("token {} has {} bytes, more than {}", i, model.tokens[i].size(), kMaxTokenBytes));
  }
  for (const int32_t id : model.user_defined) {
    require(id >= 0 && id < size, fmt::format("user-defined id {} of {} tokens", id, size));
  }
  if (model.first_byte_id < 0) require(model.unknown_id >= 0, "neither byte tokens nor an unknown token");
  check_byte_tokens(model.tokens, model.first_byte_id);
}

}  // namespace

void check_byte_tokens(const std::vector<std::string>& tokens, int32_t first) {
  const auto size = static_cast<int64_t>(tokens.size());
  if (first < 0) return;
  if (first + int64_t{256} > size)
    fail(ErrorCode::kBadFormat, "tokenizer: 256 byte tokens from {} on, of {} tokens", first, size);
  for (int byte = 0; byte < 256; ++byte) {
    const std::string& token = tokens[static_cast<size_t>(first + byte)];
    const std::string wanted = fmt::format("<0x{:02X}>", byte);
    if (token != wanted)
      fail(ErrorCode::kBadFormat, "tokenizer: token {} is \"{}\", not {}", first + byte, token, wanted);
  }
}

SpmVocab::SpmVocab(const SpmModel& model) : text_(model.tokens.size(), true) {
  check_model(model);
  const auto no_text = [&](int64_t id) {
    if (id >= 0 && id < static_cast<int64_t>(text_.size())) text_[static_cast<size_t>(id)] = false;
  };
  for (const int32_t id : {model.unknown_id, model.bos_id, model.eos_id}) no_text(id);
  for (const SpecialToken& special : model.specials) no_text(special.id);
  for (const int32_t id : model.user_defined) no_text(id);
  for (int byte = 0; byte < 256 && model.first_byte_id >= 0; ++byte) no_text(model.first_byte_id + byte);
  for (size_t id = 0; id < model.tokens.size(); ++id) {
    const std::string& token = model.tokens[id];
    if (token.empty() || !text_[id]) continue;
    const Utf8Char first = decode_utf8(token, 0);
    if (first.valid && static_cast<size_t>(first.length) == token.size()) {
      characters_.try_emplace(first.code_point, static_cast<int32_t>(id));
    }
  }
  model.lists_merges ? take_merges(model) : derive_merges(model);
}

void SpmVocab::take_merges(const SpmModel& model) {
  const auto require = [](bool condition, const std::string& message) {
    if (!condition) fail(ErrorCode::kBadFormat, "SentencePiece vocabulary: {}", message);
  };
  require(model.merges.size() == model.merge_ids.size(),
          fmt::format("{} merges but {} results", model.merges.size(), model.merge_ids.size()));
  const auto size = static_cast<int64_t>(model.tokens.size());
  for (size_t i = 0; i < model.merges.size(); ++i) {
    const auto [left, right] = model.merges[i];
    const int32_t made = model.merge_ids[i];
    for (const int32_t id : {left, right, made}) {
      require(id >= 0 && id < size, fmt::format("merge {} names the id {} of {} tokens", i, id, size));
      require(id != model.unknown_id && !is_byte(model, id),
              fmt::format("merge {} names the token {}, which is no text", i, id));
    }
    require(model.tokens[made] == model.tokens[left] + model.tokens[right],
            fmt::format("merge {} of {} and {} does not make {}", i, left, right, made));
    merges_.push_back({left, right, static_cast<uint32_t>(i), made});
  }
}

void SpmVocab::derive_merges(const SpmModel& model) {
  std::unordered_map<std::string_view, int32_t> ids;
  for (size_t id = 0; id < model.tokens.size(); ++id) {
    if (text_[id]) ids.try_emplace(model.tokens[id], static_cast<int32_t>(id));
  }
  for (const auto& [token, id] : ids) {
    for (size_t cut = 1; cut < token.size(); ++cut) {
      const auto left = ids.find(token.substr(0, cut)), right = ids.find(token.substr(cut));
      if (left != ids.end() && right != ids.end()) merges_.push_back({left->second, right->second, 0, id});
    }
  }
  const auto key = [&](const RankedMerge& m) { return std::tuple(-model.scores[m.id], m.id, m.left, m.right); };
  std::sort(merges_.begin(), merges_.end(),
            [&](const RankedMerge& a, const RankedMerge& b) { return key(a) < key(b); });
  for (size_t i = 1; i < merges_.size(); ++i) {
    const bool same = model.scores[merges_[i].id] == model.scores[merges_[i - 1].id];
    merges_[i].rank = merges_[i - 1].rank + (same ? 0 : 1);
  }
}

int32_t SpmVocab::character(uint32_t code_point) const {
  const auto found = characters_.find(code_point);
  return found == characters_.end() ? -1 : found->second;
}

}  // namespace loam
