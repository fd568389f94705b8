#include "loam/text/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>

#include "loam/base/error.h"
#include "loam/base/hash.h"
#include "loam/text/tokenizer_state.h"

namespace loam {
namespace {

// Text that carries its length, so that no two lists of parts give the same bytes.
void append_field(std::string& out, std::string_view field) {
  out += std::to_string(field.size());
  out += ':';
  out += field;
}

std::vector<SpecialToken> spm_specials(const SpmModel& model) {
  std::vector<SpecialToken> specials;
  for (const int32_t id : {model.unknown_id, model.bos_id, model.eos_id}) {
    const bool known = id >= 0 && id < static_cast<int64_t>(model.tokens.size()) && !model.tokens[id].empty();
    const auto same = [id](const SpecialToken& s) { return s.id == id; };
    if (known && std::none_of(specials.begin(), specials.end(), same)) specials.push_back({model.tokens[id], id});
  }
  return specials;
}

std::vector<SpecialToken> ordinary_only(const std::vector<SpecialToken>& specials) {
  std::vector<SpecialToken> kept;
  for (const SpecialToken& s : specials) {
    if (s.always) kept.push_back(s);
  }
  return kept;
}

size_t byte_pair(char left, char right) {
  return size_t{256} * static_cast<unsigned char>(left) + static_cast<unsigned char>(right);
}

std::vector<bool> control_flags(size_t size, const std::vector<SpecialToken>& specials) {
  std::vector<bool> flags(size, false);
  for (const SpecialToken& s : specials) flags[s.id] = !s.always;
  return flags;
}

}  // namespace

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

Tokenizer::State::State(BpeModel model)
    : bpe(std::move(model)),
      specials(bpe->specials),
      tables(*bpe),
      match_none(ordinary_only(specials)),
      match_all(specials) {
  const int64_t size = static_cast<int64_t>(bpe->tokens.size());
  if (bpe->bos_id < -1 || bpe->bos_id >= size) {
    fail(ErrorCode::kBadFormat, "tokenizer: first token {} of {} tokens", bpe->bos_id, size);
  }
  control = control_flags(bpe->tokens.size(), specials);
  for (const SpecialToken& s : specials) {
    for (size_t i = 1; s.always && i < s.text.size(); ++i) inside_added.set(byte_pair(s.text[i - 1], s.text[i]));
  }
}

Tokenizer::State::State(SpmModel model)
    : spm(std::move(model)),
      spm_bytes(spm->tokens),
      specials(spm_specials(*spm)),
      tables(*spm),
      match_none(ordinary_only(specials)),
      match_all(specials) {
  control = control_flags(spm->tokens.size(), specials);
  for (int byte = 0; byte < 256 && spm->first_byte_id >= 0; ++byte) {
    spm_bytes[spm->first_byte_id + byte] = std::string(1, static_cast<char>(byte));
  }
}

SpecialMatcher Tokenizer::State::matcher(const SpecialPolicy& policy) const {
  std::vector<SpecialToken> allowed;
  for (const SpecialToken& s : specials) {
    if (s.always || policy.allows(s.text)) allowed.push_back(s);
  }
  if (allowed.empty()) return match_none;
  return allowed.size() == specials.size() ? match_all : SpecialMatcher(std::move(allowed));
}

Tokenizer::Tokenizer(BpeModel model) : state_(std::make_unique<State>(std::move(model))) {}
Tokenizer::Tokenizer(SpmModel model) : state_(std::make_unique<State>(std::move(model))) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

int64_t Tokenizer::vocab_size() const { return static_cast<int64_t>(state_->bytes().size()); }
const BpeModel* Tokenizer::bpe() const { return state_->bpe ? &*state_->bpe : nullptr; }
const SpmModel* Tokenizer::spm() const { return state_->spm ? &*state_->spm : nullptr; }

std::vector<int32_t> Tokenizer::encode(std::string_view text, const SpecialPolicy& policy) const {
  std::vector<int32_t> out;
  encode(text, policy, out);
  return out;
}

void Tokenizer::encode(std::string_view text, const SpecialPolicy& policy, std::vector<int32_t>& out) const {
  std::optional<SpecialMatcher> own;
  if (!policy.allows_none()) own = state_->matcher(policy);
  const SpecialMatcher& matcher = own ? *own : state_->match_none;
  Encoder encoder(state_->tables, text.size());
  for (size_t from = 0; from < text.size();) {
    const SpecialMatcher::Found found = matcher.find(text, from);
    const std::string_view segment = text.substr(from, found.position - from);
    encoder.encode(segment, segment.size(), true, out);
    if (found.length > 0) out.push_back(found.id);
    from = found.position + found.length;
  }
}

int64_t Tokenizer::count(std::string_view text) const { return static_cast<int64_t>(encode(text).size()); }

bool Tokenizer::is_independent_cut(std::string_view text, size_t position) const {
  return state_->bpe && state_->bpe->pretokenizer.is_independent_cut(text, position) &&
         !state_->inside_added[byte_pair(text[position - 1], text[position])];
}

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  std::string out;
  for (const int32_t id : ids) out += token_bytes(id);
  return out;
}

const std::string& Tokenizer::token_bytes(int32_t id) const {
  LOAM_CHECK(id >= 0 && id < vocab_size(), "tokenizer: id {} is not in the vocabulary of {}", id, vocab_size());
  const std::string& bytes = state_->bytes()[id];
  LOAM_CHECK(!bytes.empty(), "tokenizer: no token has the id {}", id);
  return bytes;
}

int32_t Tokenizer::special_id(std::string_view text) const {
  for (const SpecialToken& s : state_->specials) {
    if (s.text == text && !s.always) return s.id;
  }
  return -1;
}

bool Tokenizer::is_special(int32_t id) const { return id >= 0 && id < vocab_size() && state_->control[id]; }

int32_t Tokenizer::bos_id() const { return state_->spm ? state_->spm->bos_id : state_->bpe->bos_id; }

int32_t Tokenizer::end_of_text_id() const {
  if (state_->spm) return state_->spm->eos_id;
  for (const std::string_view text : {"<|endoftext|>", "</s>", "<|end_of_text|>"}) {
    if (const int32_t id = special_id(text); id >= 0) return id;
  }
  return -1;
}

std::string Tokenizer::fingerprint() const {
  std::string all;
  for (const std::string& token : state_->bytes()) append_field(all, token);
  for (const SpecialToken& s : state_->specials)
    append_field(all, fmt::format("special {} {} {}", s.id, s.always, s.text));
  append_field(all, fmt::format("bos {}", bos_id()));
  if (const BpeModel* model = bpe()) {
    append_field(all, model->pretokenizer.description());
    for (size_t i = 0; i < model->merges.size(); ++i) {
      append_field(all, fmt::format("{} {} {}", model->merges[i].first, model->merges[i].second, model->merge_ids[i]));
    }
  } else {
    // The order of the scores counts, not their values.
    const SpmModel& model_spm = *spm();
    append_field(all, fmt::format("space {} bytes {} unknown {}", model_spm.add_space_prefix, model_spm.first_byte_id,
                                  model_spm.unknown_id));
    for (const SpmMerge& m : state_->tables.spm()->merges()) {
      append_field(all, fmt::format("{} {} {} {}", m.left, m.right, m.made, m.rank));
    }
  }
  return hash_hex(all);
}

}  // namespace loam
