#include "loam/text/bpe_parts.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "loam/base/error.h"
#include "loam/text/byte_alphabet.h"

namespace loam {

std::vector<std::pair<std::string, int32_t>> read_vocab(const Json& vocab, std::string_view source) {
  std::vector<std::pair<std::string, int32_t>> entries;
  std::unordered_set<std::string_view> names;
  std::unordered_set<int64_t> ids;
  if (!vocab.is_object()) fail(ErrorCode::kBadFormat, "{}: the vocabulary is not an object of tokens and ids", source);
  const int64_t limit = 2 * static_cast<int64_t>(vocab.as_object().size()) + 65536;
  for (const auto& [token, value] : vocab.as_object()) {
    if (!value.is_int()) fail(ErrorCode::kBadFormat, "{}: the id of token \"{}\" is {}", source, token, value.dump());
    const int64_t id = value.as_int();
    if (id < 0 || id >= limit) {
      fail(ErrorCode::kBadFormat, "{}: token \"{}\" has the id {}, out of proportion to {} tokens", source, token, id,
           vocab.as_object().size());
    }
    if (!names.insert(token).second) fail(ErrorCode::kBadFormat, "{}: token \"{}\" is there twice", source, token);
    if (!ids.insert(id).second) fail(ErrorCode::kBadFormat, "{}: two tokens have the id {}", source, id);
    entries.emplace_back(token, static_cast<int32_t>(id));
  }
  return entries;
}

std::pair<std::string, std::string> split_merge(std::string_view text, std::string_view source) {
  const size_t space = text.find(' ');
  const bool good = space != std::string_view::npos && space > 0 && space + 1 < text.size() &&
                    text.find(' ', space + 1) == std::string_view::npos;
  if (!good) fail(ErrorCode::kBadFormat, "{}: \"{}\" is not a merge of two tokens", source, text);
  return {std::string(text.substr(0, space)), std::string(text.substr(space + 1))};
}

void take_merges(const BpeParts& parts, std::string_view source, SpmModel& model) {
  std::unordered_map<std::string_view, int32_t> ids(parts.vocab.begin(), parts.vocab.end());
  for (const auto& [left, right] : parts.merges) {
    if (!ids.contains(left) || !ids.contains(right) || !ids.contains(left + right))
      fail(ErrorCode::kBadFormat, "{}: the merge of \"{}\" and \"{}\" is not one of tokens", source, left, right);
    model.merges.emplace_back(ids.at(left), ids.at(right));
    model.merge_ids.push_back(ids.at(left + right));
  }
  model.lists_merges = true;
}

BpeModel assemble_bpe(const BpeParts& parts, std::vector<SpecialToken> specials, std::string_view source) {
  BpeModel model;
  int64_t size = 0;
  for (const auto& [text, id] : parts.vocab) size = std::max<int64_t>(size, id + 1);
  for (const SpecialToken& special : specials) size = std::max<int64_t>(size, special.id + 1);
  model.tokens.resize(size);
  std::unordered_map<std::string_view, int32_t> ids;
  for (const auto& [text, id] : parts.vocab) {
    model.tokens[id] = from_byte_alphabet(text).value_or(text);
    ids.emplace(text, id);
  }
  for (const SpecialToken& special : specials) model.tokens[special.id] = special.text;
  const auto id_of = [&](std::string_view text) {
    const auto found = ids.find(text);
    if (found == ids.end()) fail(ErrorCode::kBadFormat, "{}: a merge names \"{}\", which is no token", source, text);
    return found->second;
  };
  for (const auto& [left, right] : parts.merges) {
    model.merges.emplace_back(id_of(left), id_of(right));
    model.merge_ids.push_back(id_of(left + right));
  }
  model.specials = std::move(specials);
  return model;
}

BpeParts disassemble_bpe(const BpeModel& model) {
  std::vector<std::string> written(model.tokens.size());
  for (size_t id = 0; id < model.tokens.size(); ++id) written[id] = to_byte_alphabet(model.tokens[id]);
  for (const SpecialToken& special : model.specials) written[special.id] = special.text;
  BpeParts parts;
  std::unordered_set<std::string_view> seen;
  for (size_t id = 0; id < written.size(); ++id) {
    if (written[id].empty()) continue;
    LOAM_CHECK(seen.insert(written[id]).second, "tokenizer: two tokens would be written as \"{}\"", written[id]);
    parts.vocab.emplace_back(written[id], static_cast<int32_t>(id));
  }
  for (const auto& [left, right] : model.merges) parts.merges.emplace_back(written[left], written[right]);
  return parts;
}

}  // namespace loam
