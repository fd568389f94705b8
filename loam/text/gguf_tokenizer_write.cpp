// Tokenizers as keys of GGUF files, for llama.cpp (its llama-vocab.cpp): what it cannot do is refused.
#include <algorithm>
#include <tuple>

#include "loam/base/log.h"
#include "loam/text/bpe_parts.h"
#include "loam/text/gguf_vocab.h"
#include "loam/text/sentencepiece_rules.h"
#include "loam/text/spm_vocab.h"
#include "loam/text/tokenizer_files.h"

namespace loam {
namespace {

using namespace gguf_vocab;
using Ids = std::vector<int32_t>;

[[noreturn]] void refuse(std::string_view what) {
  fail(ErrorCode::kInvalidArgument, "GGUF: the tokenizer {}; llama.cpp would give other ids", what);
}

// A name for tokenizer.ggml.pre with these splits; the first of several that mean the same.
std::string pre_of(const BpeModel& model) {
  for (const std::string_view name : {"gpt-2",
                                      "llama-bpe",
                                      "dbrx",
                                      "qwen2",
                                      "qwen35",
                                      "gpt-4o",
                                      "granite-embed-multi-97m",
                                      "tekken",
                                      "starcoder",
                                      "falcon",
                                      "default",
                                      "minicpm5",
                                      "kimi-k2",
                                      "seed-coder",
                                      "bailingmoe",
                                      "deepseek-llm",
                                      "deepseek-coder",
                                      "deepseek-v3",
                                      "exaone-moe",
                                      "tiny_aya",
                                      "superbpe",
                                      "afmoe",
                                      "youtu",
                                      "bloom",
                                      "viking",
                                      "chameleon",
                                      "jais-2"}) {
    if (ignores_merges(name) != model.ignore_merges) continue;
    if (parse_pretokenizer(name).splits() != model.pretokenizer.splits()) continue;
    if (name == "gpt-4o" || name == "granite-embed-multi-97m" || name == "tekken")
      log_warn("llama.cpp runs the pattern {} in a form of its own, which cuts letters with marks otherwise", name);
    return std::string(name);
  }
  refuse(fmt::format("cuts text by {}{}", model.pretokenizer.description(),
                     model.ignore_merges ? " and ignores merges" : ""));
}

// Every id of the embedding has a token; those that the tokenizer lacks are unused.
struct Tokens {
  explicit Tokens(int64_t vocab_size) : types(static_cast<size_t>(vocab_size), kUnused) {
    for (int64_t id = 0; id < vocab_size; ++id) texts.push_back(filler(id));
  }
  void set(int32_t id, std::string text, TokenType type) {
    texts[static_cast<size_t>(id)] = std::move(text);
    types[static_cast<size_t>(id)] = type;
  }
  std::vector<std::string> texts;
  std::vector<int32_t> types;
};

void check_specials(const std::vector<SpecialToken>& specials) {
  bool strips = false;
  for (const SpecialToken& s : specials) {
    const bool looks_around = s.single_word || s.lstrip || s.rstrip;
    if (looks_around && s.always)
      refuse(fmt::format("has the added token {}, which looks at what is beside it", s.text));
    strips |= looks_around;
  }
  if (strips) log_warn("llama.cpp does not take the white space beside control tokens with them, this tokenizer does");
}

void check_normalizer(const Normalizer& normalizer, const std::vector<NormalizerStep>& known) {
  std::vector<NormalizerStep> steps = normalizer.steps();
  const NormalizerStep nfc = normal::UnicodeForm{};
  if (!steps.empty() && steps.front() == nfc) {
    log_warn("llama.cpp does not put text into NFC, this tokenizer does: ids differ for text in another form");
    steps.erase(steps.begin());
  }
  if (steps != known && !steps.empty()) refuse("changes text by " + normalizer.description());
}

TokenType type_of(const SpecialToken& special) { return special.always ? kUserDefined : kControl; }

std::vector<GgufField> byte_level(const BpeModel& model, Tokens tokens) {
  check_normalizer(model.normalizer, {});
  check_specials(model.specials);
  if (model.space.prefix != SpaceRule::Prefix::kNever) refuse("is byte-level and puts a space in front");
  const BpeParts parts = disassemble_bpe(model);
  for (const auto& [text, id] : parts.vocab) tokens.set(id, text, kNormal);
  for (const SpecialToken& special : model.specials) tokens.set(special.id, special.text, type_of(special));
  std::vector<std::string> merges;
  for (const auto& [left, right] : parts.merges) merges.push_back(left + " " + right);
  return {{key("model"), std::string("gpt2")},
          {key("pre"), pre_of(model)},
          {key("tokens"), std::move(tokens.texts)},
          {key("token_type"), std::move(tokens.types)},
          {key("merges"), std::move(merges)}};
}

// Scores under which the same pairs merge in the same order: the merges that make one token must follow each other, and
// be all that make it.
std::vector<float> scores_of(const SpmModel& model) {
  if (!model.lists_merges) return model.scores;
  SpmModel by_scores = model;
  by_scores.lists_merges = false;
  by_scores.scores.assign(model.tokens.size(), 0);
  float next = 0;
  for (size_t i = 0; i < model.merge_ids.size(); ++i) {
    if (i == 0 || model.merge_ids[i] != model.merge_ids[i - 1]) --next;
    by_scores.scores[static_cast<size_t>(model.merge_ids[i])] = next;
  }
  const auto key = [&](const RankedMerge& m) {
    return std::tuple(-by_scores.scores[static_cast<size_t>(m.id)], m.left, m.right);
  };
  const auto sorted = [&](std::vector<RankedMerge> merges) {
    std::stable_sort(merges.begin(), merges.end(), [&](const auto& a, const auto& b) { return key(a) < key(b); });
    return merges;
  };
  const auto same = [](const RankedMerge& a, const RankedMerge& b) { return a.left == b.left && a.right == b.right; };
  const std::vector<RankedMerge> listed = SpmVocab(model).merges(), ordered = sorted(listed);
  const std::vector<RankedMerge> derived = sorted(SpmVocab(by_scores).merges());
  const bool in_order = std::equal(listed.begin(), listed.end(), ordered.begin(),
                                   [](const auto& a, const auto& b) { return a.id == b.id; });
  if (!in_order || !std::equal(derived.begin(), derived.end(), ordered.begin(), ordered.end(), same)) {
    refuse("has merges in an order that no scores give (a tokenizer.model beside it would have scores)");
  }
  return std::move(by_scores.scores);
}

void check_sentencepiece(const SpmModel& model) {
  check_normalizer(model.normalizer, sentencepiece_rules().normalizer.steps());
  check_specials(model.specials);
  if (!model.pretokenizer.splits().empty()) refuse("cuts text by " + model.pretokenizer.description());
  if (!model.space_marks) refuse("has characters merged without marks for spaces");
  if (model.first_byte_id < 0) refuse("has no tokens for bytes");
  if (model.space.words) refuse("takes words apart");
  if (model.space.prefix == SpaceRule::Prefix::kFirst || model.space.unless_space) {
    log_warn("llama.cpp puts a space in front of each part between control tokens, this tokenizer not of all");
  }
}

std::vector<GgufField> sentencepiece(const SpmModel& model, Tokens tokens) {
  check_sentencepiece(model);
  std::vector<float> scores = scores_of(model);
  scores.resize(tokens.texts.size(), -1e6f);
  for (size_t i = 0; i < model.tokens.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    const bool byte = id >= model.first_byte_id && id < model.first_byte_id + 256;
    if (!model.tokens[i].empty()) {
      tokens.set(id, byte ? model.tokens[i] : with_space_marks(model.tokens[i]), byte ? kByte : kNormal);
    }
  }
  for (const int32_t id : {model.bos_id, model.eos_id, model.unknown_id}) {
    if (id >= 0) tokens.set(id, model.tokens[static_cast<size_t>(id)], id == model.unknown_id ? kUnknown : kControl);
  }
  // These are looked for in the text as it is given, with its spaces.
  for (const int32_t id : model.user_defined) tokens.set(id, model.tokens[static_cast<size_t>(id)], kUserDefined);
  for (const SpecialToken& special : model.specials) {
    if (special.id != model.unknown_id) tokens.set(special.id, special.text, type_of(special));
  }
  std::vector<GgufField> fields{{key("model"), std::string("llama")},
                                {key("pre"), std::string("default")},
                                {key("tokens"), std::move(tokens.texts)},
                                {key("scores"), std::move(scores)},
                                {key("token_type"), std::move(tokens.types)},
                                {key("add_space_prefix"), model.space.prefix != SpaceRule::Prefix::kNever}};
  if (model.unknown_id >= 0) fields.push_back({key("unknown_token_id"), static_cast<uint32_t>(model.unknown_id)});
  return fields;
}

// What begins and ends a text.
void add_control_ids(const Tokenizer& tokenizer, int32_t bos_id, Ids eos_ids, std::vector<GgufField>& fields) {
  using Kind = SequenceTemplate::Item::Kind;
  const bool begins = tokenizer.bos_id() >= 0;
  if (begins) bos_id = tokenizer.bos_id();
  const auto& frame = tokenizer.rules().frame.single;
  const auto first =
      std::find_if(frame.begin(), frame.end(), [](const auto& item) { return item.kind != Kind::kToken; });
  const bool ends = !frame.empty() && frame.back().kind == Kind::kToken;
  if (!frame.empty() && (first - frame.begin() > 1 || frame.end() - first > (ends ? 2 : 1))) {
    refuse("puts several control tokens round a text");
  }
  if (ends) {
    std::erase(eos_ids, frame.back().id);
    eos_ids.insert(eos_ids.begin(), frame.back().id);
  }
  if (eos_ids.empty() && tokenizer.end_of_text_id() >= 0) eos_ids = {tokenizer.end_of_text_id()};
  if (eos_ids.empty()) {
    fail(ErrorCode::kInvalidArgument, "GGUF: neither the tokenizer nor the model states a token that ends a text");
  }
  if (bos_id < 0) bos_id = eos_ids[0];  // without the key, llama.cpp takes the token 11 (BPE) or 1 (SentencePiece)
  const auto add = [&](const char* name, auto value) { fields.push_back({key(name), value}); };
  add("bos_token_id", static_cast<uint32_t>(bos_id));
  const char* const kEnds[] = {"eos_token_id", "eot_token_id", "eom_token_id"};  // each ends a reply
  for (size_t i = 0; i < std::min(eos_ids.size(), std::size(kEnds)); ++i)
    add(kEnds[i], static_cast<uint32_t>(eos_ids[i]));
  if (eos_ids.size() > std::size(kEnds))
    log_warn("GGUF has room for three tokens that end a reply, of {}", eos_ids.size());
  add("add_bos_token", begins);
  add("add_eos_token", ends);
}

}  // namespace

std::vector<GgufField> gguf_tokenizer(const Tokenizer& tokenizer, int64_t vocab_size, int32_t bos_id,
                                      const Ids& eos_ids) {
  LOAM_CHECK(tokenizer.vocab_size() <= vocab_size, "GGUF: the tokenizer has ids up to {}, the embedding only {} rows",
             tokenizer.vocab_size() - 1, vocab_size);
  std::vector<GgufField> fields;
  if (tokenizer.bpe()) {
    fields = byte_level(*tokenizer.bpe(), Tokens(vocab_size));
  } else if (tokenizer.spm()) {
    fields = sentencepiece(*tokenizer.spm(), Tokens(vocab_size));
  } else {
    fail(ErrorCode::kInvalidArgument, "GGUF: the tokenizer is no BPE, the only kind that loam writes there");
  }
  add_control_ids(tokenizer, bos_id, eos_ids, fields);
  return fields;
}

}  // namespace loam
