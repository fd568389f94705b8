#include "loam/text/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>

#include "loam/base/error.h"
#include "loam/base/hash.h"
#include "loam/base/parallel_for.h"
#include "loam/base/utf8.h"
#include "loam/text/sentencepiece_rules.h"
#include "loam/text/tokenizer_state.h"

namespace loam {
namespace {

bool has_id(const std::vector<SpecialToken>& specials, int32_t id) {
  return std::any_of(specials.begin(), specials.end(), [id](const SpecialToken& s) { return s.id == id; });
}

std::vector<SpecialToken> implied_specials(const TokenizerModel& model, const TokenizerRules& rules) {
  std::vector<SpecialToken> specials = rules.specials;
  const auto* spm = std::get_if<SpmModel>(&model);
  if (!spm) return specials;
  for (const int32_t id : {spm->unknown_id, spm->bos_id, spm->eos_id}) {
    const bool known = id >= 0 && id < static_cast<int64_t>(spm->tokens.size()) && !spm->tokens[id].empty();
    if (known && !has_id(specials, id)) specials.push_back({spm->tokens[id], id});
  }
  return specials;
}

void put_bytes(std::vector<std::string>& bytes, int32_t first_byte_id) {
  for (int byte = 0; byte < 256 && first_byte_id >= 0; ++byte)
    bytes[static_cast<size_t>(first_byte_id + byte)] = std::string(1, static_cast<char>(byte));
}

std::vector<std::string> bytes_of(const BpeModel& model) { return model.tokens; }
std::vector<std::string> bytes_of(const SpmModel& model) {
  std::vector<std::string> bytes = model.tokens;
  put_bytes(bytes, model.first_byte_id);
  return bytes;
}
std::vector<std::string> bytes_of(const UnigramModel& model) {
  std::vector<std::string> bytes = model.tokens;
  put_bytes(bytes, model.first_byte_id);
  return bytes;
}
std::vector<std::string> bytes_of(const WordPieceModel& model) {
  std::vector<std::string> bytes;
  for (const std::string& token : model.tokens) {
    const bool continues = !model.prefix.empty() && token.starts_with(model.prefix);
    bytes.push_back(continues ? token.substr(model.prefix.size()) : token.empty() ? "" : " " + token);
  }
  return bytes;
}
std::vector<std::string> bytes_of(const WordModel& model) {
  std::vector<std::string> bytes;
  for (const std::string& token : model.tokens) bytes.push_back(token.empty() || !model.spaces ? token : " " + token);
  return bytes;
}

const std::vector<std::string>& tokens_of(const TokenizerModel& model) {
  return std::visit([](const auto& m) -> const std::vector<std::string>& { return m.tokens; }, model);
}

const TokenizerRules& rules_of(const TokenizerModel& model) {
  return std::visit([](const auto& m) -> const TokenizerRules& { return m; }, model);
}

void check_specials(const TokenizerModel& model, const std::vector<SpecialToken>& specials) {
  const std::vector<std::string>& tokens = tokens_of(model);
  const auto size = static_cast<int64_t>(tokens.size());
  for (const SpecialToken& special : specials) {
    if (special.id < 0 || special.id >= size)
      fail(ErrorCode::kBadFormat, "tokenizer: special token id {} of {} tokens", special.id, size);
    if (special.text.size() > kMaxSpecialBytes)
      fail(ErrorCode::kBadFormat, "tokenizer: special token {} has {} bytes, more than {}", special.id,
           special.text.size(), kMaxSpecialBytes);
    if (special.text.empty() ||
        (tokens[special.id] != special.text && tokens[special.id] != with_plain_spaces(special.text)))
      fail(ErrorCode::kBadFormat, "tokenizer: special token \"{}\" is not token {}", special.text, special.id);
  }
  for (const auto* items : {&rules_of(model).frame.single, &rules_of(model).frame.pair}) {
    for (const SequenceTemplate::Item& item : *items) {
      if (item.kind == SequenceTemplate::Item::Kind::kToken && (item.id < 0 || item.id >= size))
        fail(ErrorCode::kBadFormat, "tokenizer: token {} of the template, of {} tokens", item.id, size);
    }
  }
}

std::vector<SpecialToken> ordinary_only(const std::vector<SpecialToken>& specials) {
  std::vector<SpecialToken> kept;
  for (const SpecialToken& s : specials) {
    if (s.always) kept.push_back(s);
  }
  return kept;
}

std::vector<bool> control_flags(size_t size, const std::vector<SpecialToken>& specials) {
  std::vector<bool> flags(size, false);
  for (const SpecialToken& s : specials) flags[s.id] = !s.always;
  return flags;
}

// One token, as WordPiece's decoder in Hugging Face's library cleans it.
std::string cleaned_up(std::string token) {
  for (const std::string_view part : {".", "?", "!", ",", "n't", "'m", "'s", "'ve", "'re"}) {
    const std::string spaced = " " + std::string(part);
    for (size_t at = token.find(spaced); at != std::string::npos; at = token.find(spaced, at)) token.erase(at, 1);
  }
  return token;
}

std::vector<int32_t> framed(const std::vector<SequenceTemplate::Item>& items, std::span<const int32_t> first,
                            std::span<const int32_t> second, std::vector<int32_t>* types) {
  std::vector<int32_t> ids;
  if (types) types->clear();
  for (const SequenceTemplate::Item& item : items) {
    using Kind = SequenceTemplate::Item::Kind;
    if (item.kind == Kind::kToken) {
      ids.push_back(item.id);
    } else {
      const std::span<const int32_t> part = item.kind == Kind::kFirst ? first : second;
      ids.insert(ids.end(), part.begin(), part.end());
    }
    if (types) types->resize(ids.size(), item.type_id);
  }
  return ids;
}

}  // namespace

TokenizerRules sentencepiece_rules() {
  TokenizerRules rules;
  rules.normalizer = Normalizer({normal::Replace{"\xE2\x96\x81", " "}});
  rules.pretokenizer = Pretokenizer(std::vector<Split>());
  rules.space.prefix = SpaceRule::Prefix::kEach;
  rules.decode.drop_first_space = true;
  return rules;
}
SpmModel::SpmModel() : TokenizerRules(sentencepiece_rules()) {}
UnigramModel::UnigramModel() : TokenizerRules(sentencepiece_rules()) {}

SequenceTemplate begins_with(int32_t id) {
  using Item = SequenceTemplate::Item;
  using Kind = Item::Kind;
  const Item first{Kind::kFirst}, second{Kind::kSecond, -1, 1};
  return {{{Kind::kToken, id, 0}, first}, {{Kind::kToken, id, 0}, first, {Kind::kToken, id, 1}, second}};
}

bool SpecialPolicy::allows(std::string_view token) const {
  return all_ || std::find(allowed_.begin(), allowed_.end(), token) != allowed_.end();
}

BpeModel make_bpe_model(std::vector<Merge> merges, const std::vector<std::string>& special_tokens,
                        Pretokenizer pretokenizer) {
  BpeModel model;
  model.pretokenizer = std::move(pretokenizer);
  for (int byte = 0; byte < 256; ++byte) model.tokens.emplace_back(1, static_cast<char>(byte));
  for (const auto& [left, right] : merges) {
    const int32_t made = static_cast<int32_t>(model.tokens.size());
    LOAM_CHECK(left >= 0 && left < made && right >= 0 && right < made,
               "tokenizer: merge of {} and {} before they are made: only {} tokens are there", left, right, made);
    model.tokens.push_back(model.tokens[left] + model.tokens[right]);
    model.merge_ids.push_back(made);
  }
  for (const std::string& text : special_tokens) {
    model.specials.push_back({text, static_cast<int32_t>(model.tokens.size())});
    model.tokens.push_back(text);
  }
  model.merges = std::move(merges);
  return model;
}

Tokenizer::State::State(TokenizerModel given)
    : model(std::move(given)), rules(&rules_of(model)), specials(implied_specials(model, *rules)) {
  check_specials(model, specials);
  pieces = std::visit([](const auto& m) { return make_piece_model(m); }, model);
  bytes = std::visit([](const auto& m) { return bytes_of(m); }, model);
  control = control_flags(bytes.size(), specials);
  if (const auto* spm = std::get_if<SpmModel>(&model)) bos_id = spm->bos_id;
  const auto& single = rules->frame.single;
  if (!single.empty() && single[0].kind == SequenceTemplate::Item::Kind::kToken) bos_id = single[0].id;
  std::vector<SpecialToken> controls;
  for (const SpecialToken& s : specials) {
    if (!s.always) controls.push_back(s);
  }
  control_only = SpecialMatcher(std::move(controls));
  added_none.emplace(ordinary_only(specials), *rules);
  added_all.emplace(specials, *rules);
  plain = !pieces->neighbours() && rules->normalizer.empty() && rules->space == SpaceRule() &&
          added_all->normalized.empty() && !added_all->given.looks_around();
  for (const SpecialToken& s : specials) {
    if (s.always) inside_added.add_token(s.text);
  }
}

AddedTokens Tokenizer::State::added(const SpecialPolicy& policy) const {
  std::vector<SpecialToken> allowed;
  for (const SpecialToken& s : specials) {
    if (s.always || policy.allows(s.text)) allowed.push_back(s);
  }
  return AddedTokens(allowed, *rules);
}

Tokenizer::Tokenizer(TokenizerModel model) : state_(std::make_unique<State>(std::move(model))) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

int64_t Tokenizer::vocab_size() const { return static_cast<int64_t>(state_->bytes.size()); }
bool Tokenizer::has_token(int32_t id) const {
  return id >= 0 && id < vocab_size() && !tokens_of(state_->model)[id].empty();
}
const TokenizerModel& Tokenizer::model() const { return state_->model; }
const TokenizerRules& Tokenizer::rules() const { return *state_->rules; }
const BpeModel* Tokenizer::bpe() const { return std::get_if<BpeModel>(&state_->model); }
const SpmModel* Tokenizer::spm() const { return std::get_if<SpmModel>(&state_->model); }

bool Tokenizer::lossless() const {
  const TokenizerRules& rules = *state_->rules;
  const auto drops = [](const Split& split) { return split.behavior == SplitBehavior::kRemoved; };
  const auto& splits = rules.pretokenizer.splits();
  const bool prefixed = rules.space.prefix != SpaceRule::Prefix::kNever;
  const auto takes_spaces = [](const SpecialToken& s) { return s.always && (s.lstrip || s.rstrip); };
  if (std::any_of(state_->specials.begin(), state_->specials.end(), takes_spaces)) return false;
  if (!rules.normalizer.empty() || std::any_of(splits.begin(), splits.end(), drops)) return false;
  if (rules.space.words) return false;
  if (prefixed && (rules.space.unless_space || !rules.decode.drop_first_space)) return false;
  return (bpe() && !state_->pieces->lacks_bytes()) || (spm() && spm()->first_byte_id >= 0);
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, const SpecialPolicy& policy) const {
  std::vector<int32_t> out;
  encode(text, policy, out);
  return out;
}

void Tokenizer::encode(std::string_view text, const SpecialPolicy& policy, std::vector<int32_t>& out) const {
  std::optional<AddedTokens> own;
  if (!policy.allows_none() && !policy.allows_all()) own.emplace(state_->added(policy));
  const AddedTokens& added = own ? *own : policy.allows_all() ? *state_->added_all : *state_->added_none;
  TextEncoder encoder(*state_->rules, *state_->pieces, added, text.size());
  encoder.encode(text, Before::kStart, out, nullptr);
}

Encoding Tokenizer::encode_with_ranges(std::string_view text, const SpecialPolicy& policy) const {
  const AddedTokens added = state_->added(policy);
  Encoding encoding;
  TextEncoder encoder(*state_->rules, *state_->pieces, added, text.size());
  encoder.encode(text, Before::kStart, encoding.ids, &encoding.ranges);
  return encoding;
}

// Control tokens are looked for in the trusted ranges alone, as they are written; what lies between them is one text
// after the other.
std::vector<int32_t> Tokenizer::encode(std::string_view text, std::span<const TextRange> trusted) const {
  std::vector<int32_t> ids;
  TextEncoder encoder(*state_->rules, *state_->pieces, *state_->added_none, text.size());
  size_t from = 0, before_end = 0;
  Before before = Before::kStart;
  const auto encode_until = [&](size_t end) {
    if (end > from) encoder.encode(text.substr(from, end - from), before, ids, nullptr);
  };
  for (const auto& [begin, end] : trusted) {
    LOAM_CHECK(before_end <= begin && begin <= end && end <= text.size(),
               "tokenizer: the trusted range {} to {} of a text of {} bytes does not follow {}", begin, end,
               text.size(), before_end);
    before_end = end;
    const std::string_view range = text.substr(0, end);
    for (size_t search = begin; search < end;) {
      const SpecialMatcher::Found found = state_->control_only.find(range, search, std::max(begin, from));
      if (found.length == 0) break;
      encode_until(found.position);
      ids.push_back(found.id);
      from = found.position + found.length;
      search = found.behind;
      before = Before::kAddedToken;
    }
  }
  encode_until(text.size());
  return ids;
}

std::vector<std::vector<int32_t>> Tokenizer::encode_batch(std::span<const std::string_view> texts,
                                                          const SpecialPolicy& policy, int threads) const {
  std::vector<std::vector<int32_t>> all(texts.size());
  const AddedTokens added = state_->added(policy);
  size_t bytes = 0;
  for (const std::string_view text : texts) bytes += text.size();
  std::vector<std::optional<TextEncoder>> encoders(static_cast<size_t>(threads));
  parallel_tasks(threads, static_cast<int64_t>(texts.size()), [&](int64_t i, int thread) {
    auto& encoder = encoders[static_cast<size_t>(thread)];
    if (!encoder) encoder.emplace(*state_->rules, *state_->pieces, added, bytes);
    encoder->encode(texts[static_cast<size_t>(i)], Before::kStart, all[static_cast<size_t>(i)], nullptr);
  });
  return all;
}

int64_t Tokenizer::count(std::string_view text) const { return static_cast<int64_t>(encode(text).size()); }

bool Tokenizer::is_independent_cut(std::string_view text, size_t position) const {
  return state_->plain && state_->rules->pretokenizer.is_independent_cut(text, position) &&
         !state_->inside_added.contains(text[position - 1], text[position]);
}

std::vector<int32_t> Tokenizer::frame(std::span<const int32_t> ids, std::vector<int32_t>* types) const {
  using Kind = SequenceTemplate::Item::Kind;
  const auto& single = state_->rules->frame.single;
  return single.empty() ? framed({{Kind::kFirst}}, ids, {}, types) : framed(single, ids, {}, types);
}

std::vector<int32_t> Tokenizer::frame(std::span<const int32_t> first, std::span<const int32_t> second,
                                      std::vector<int32_t>* types) const {
  using Kind = SequenceTemplate::Item::Kind;
  const auto& pair = state_->rules->frame.pair;
  return pair.empty() ? framed({{Kind::kFirst}, {Kind::kSecond, -1, 1}}, first, second, types)
                      : framed(pair, first, second, types);
}

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  std::string out;
  const DecodeRule& rule = state_->rules->decode;
  for (const int32_t id : ids) out += rule.clean_up ? cleaned_up(token_bytes(id)) : token_bytes(id);
  if (rule.drop_first_space && out.starts_with(' ')) out.erase(0, 1);
  return out;
}

const std::string& Tokenizer::token_bytes(int32_t id) const {
  LOAM_CHECK(id >= 0 && id < vocab_size(), "tokenizer: id {} is not in the vocabulary of {}", id, vocab_size());
  LOAM_CHECK(has_token(id), "tokenizer: no token has the id {}", id);
  return state_->bytes[id];
}

int32_t Tokenizer::special_id(std::string_view text) const {
  for (const SpecialToken& s : state_->specials) {
    if (s.text == text && !s.always) return s.id;
  }
  return -1;
}

bool Tokenizer::is_special(int32_t id) const { return id >= 0 && id < vocab_size() && state_->control[id]; }

int32_t Tokenizer::bos_id() const { return state_->bos_id; }

int32_t Tokenizer::end_of_text_id() const {
  if (spm() && spm()->eos_id >= 0) return spm()->eos_id;
  for (const std::string_view text : {"<|endoftext|>", "</s>", "<|end_of_text|>", "<eos>",
                                      "<\xEF\xBD\x9C"
                                      "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>",
                                      "[SEP]"}) {
    if (const int32_t id = special_id(text); id >= 0) return id;
  }
  return -1;
}

std::vector<TextRange> character_ranges(std::string_view text, std::span<const TextRange> byte_ranges) {
  std::vector<size_t> index(text.size() + 1, 0);  // of the character that holds each byte
  size_t characters = 0;
  for (size_t i = 0; i < text.size(); ++characters) {
    const size_t next = i + static_cast<size_t>(decode_utf8(text, i).length);
    std::fill(index.begin() + static_cast<int64_t>(i), index.begin() + static_cast<int64_t>(next), characters);
    i = next;
  }
  index[text.size()] = characters;
  std::vector<TextRange> ranges;
  for (const auto& [begin, end] : byte_ranges) {
    LOAM_CHECK(begin <= end && end <= text.size(), "tokenizer: range {} to {} of a text of {} bytes", begin, end,
               text.size());
    ranges.push_back({index[begin], begin == end ? index[begin] : index[end - 1] + 1});
  }
  return ranges;
}

}  // namespace loam
