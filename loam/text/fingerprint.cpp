#include <fmt/format.h>

#include "loam/base/hash.h"
#include "loam/text/spm_vocab.h"
#include "loam/text/tokenizer_state.h"

namespace loam {
namespace {

// Text that carries its length, so that no two lists of parts give the same bytes.
class Fields {
 public:
  void add(std::string_view field) {
    all_ += std::to_string(field.size());
    all_ += ':';
    all_ += field;
  }
  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    add(std::string_view(fmt::format(format, std::forward<Args>(args)...)));
  }
  std::string hash() const { return hash_hex(all_); }

 private:
  std::string all_;
};

void add_model(Fields& fields, const BpeModel& model) {
  fields.add("bpe {}", model.ignore_merges);
  for (size_t i = 0; i < model.merges.size(); ++i)
    fields.add("{} {} {}", model.merges[i].first, model.merges[i].second, model.merge_ids[i]);
}

// The order of the merges counts, not the scores.
void add_model(Fields& fields, const SpmModel& model) {
  fields.add("spm bytes {} unknown {} {}", model.first_byte_id, model.unknown_id, model.fuse_unknown);
  for (const int32_t id : model.user_defined) fields.add("user-defined {}", id);
  const SpmVocab vocab(model);
  for (const RankedMerge& m : vocab.merges()) fields.add("{} {} {}", m.left, m.right, m.id);
}

void add_model(Fields& fields, const UnigramModel& model) {
  fields.add("unigram bytes {} unknown {} {}", model.first_byte_id, model.unknown_id, model.float_sums);
  for (const double score : model.scores) fields.add("{}", score);
}

void add_model(Fields& fields, const WordPieceModel& model) {
  fields.add("wordpiece {} {} {}", model.prefix, model.unknown_id, model.max_characters);
}

void add_model(Fields& fields, const WordModel& model) { fields.add("words {} {}", model.unknown_id, model.spaces); }

}  // namespace

std::string Tokenizer::fingerprint() const {
  Fields fields;
  for (const std::string& token : state_->bytes) fields.add(std::string_view(token));
  for (const SpecialToken& s : state_->specials) {
    fields.add("special {} {} {} {} {} {} {}", s.id, s.always, s.single_word, s.lstrip, s.rstrip, s.normalized, s.text);
  }
  fields.add("bos {}", bos_id());
  const TokenizerRules& rules = *state_->rules;
  fields.add("normalizer {}", rules.normalizer.description());
  fields.add("pieces {}", rules.pretokenizer.description());
  fields.add("space {} {} {}", static_cast<int>(rules.space.prefix), rules.space.unless_space, rules.space.words);
  std::visit([&](const auto& model) { add_model(fields, model); }, state_->model);
  return fields.hash();
}

}  // namespace loam
