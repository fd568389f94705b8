// Writing Hugging Face's tokenizer.json: the parts in the form in which the library `tokenizers` writes them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "loam/base/base64.h"
#include "loam/text/bpe_parts.h"
#include "loam/text/spm_vocab.h"
#include "loam/text/tokenizer_files.h"
#include "loam/text/tokenizer_json.h"

namespace loam {
namespace {

Json object(Json::Object members) { return Json(std::move(members)); }

Json sequence(const char* members, Json::Array steps) {
  if (steps.empty()) return nullptr;
  if (steps.size() == 1) return std::move(steps[0]);
  return Json::Object{{"type", "Sequence"}, {members, std::move(steps)}};
}

Json added_token(const SpecialToken& token) {
  return Json::Object{{"id", token.id},          {"content", token.text},  {"single_word", token.single_word},
                      {"lstrip", token.lstrip},  {"rstrip", token.rstrip}, {"normalized", token.normalized},
                      {"special", !token.always}};
}

Json added_tokens(const std::vector<SpecialToken>& specials) {
  Json::Array added;
  for (const SpecialToken& token : specials) added.push_back(added_token(token));
  return added;
}

const char* behavior_name(SplitBehavior behavior) {
  switch (behavior) {
    case SplitBehavior::kIsolated:
      return "Isolated";
    case SplitBehavior::kRemoved:
      return "Removed";
    case SplitBehavior::kMergedWithPrevious:
      return "MergedWithPrevious";
    case SplitBehavior::kMergedWithNext:
      return "MergedWithNext";
    case SplitBehavior::kContiguous:
      return "Contiguous";
  }
  return "";
}

// ---- normalizer

Json step_json(const normal::UnicodeForm& s) {
  return object({{"type", s.compatible ? (s.composed ? "NFKC" : "NFKD") : (s.composed ? "NFC" : "NFD")}});
}
Json step_json(const normal::Lowercase&) { return object({{"type", "Lowercase"}}); }
Json step_json(const normal::StripAccents&) { return object({{"type", "StripAccents"}}); }
Json step_json(const normal::Nmt&) { return object({{"type", "Nmt"}}); }
Json step_json(const normal::Strip& s) {
  return object({{"type", "Strip"}, {"strip_left", s.left}, {"strip_right", s.right}});
}
Json step_json(const normal::Replace& s) {
  return object(
      {{"type", "Replace"}, {"pattern", object({{s.regex ? "Regex" : "String", s.pattern}})}, {"content", s.content}});
}
Json step_json(const normal::Prepend& s) { return object({{"type", "Prepend"}, {"prepend", s.text}}); }
Json step_json(const normal::Bert& s) {
  return object({{"type", "BertNormalizer"},
                 {"clean_text", s.clean_text},
                 {"handle_chinese_chars", s.chinese_chars},
                 {"strip_accents", s.strip_accents},
                 {"lowercase", s.lowercase}});
}
Json step_json(const normal::Precompiled& s) {
  return object({{"type", "Precompiled"}, {"precompiled_charsmap", base64_encode(s.table)}});
}

// What becomes of spaces: a step of the normalizer, or a pre-tokenizer where the rules need that one.
bool needs_metaspace(const TokenizerRules& rules) {
  return rules.space.unless_space ||
         rules.pretokenizer.splits() == std::vector<Split>{{" ", SplitBehavior::kMergedWithNext}};
}

const normal::Replace kMarkToSpace{std::string(kSpaceMark), " "}, kSpaceToMark{" ", std::string(kSpaceMark)};

Json normalizer_json(const TokenizerRules& rules, bool space_marks) {
  Json::Array steps;
  const bool prepends = space_marks && !needs_metaspace(rules) && rules.space.prefix != SpaceRule::Prefix::kNever;
  if (prepends) steps.push_back(step_json(normal::Prepend{std::string(kSpaceMark)}));
  bool replaced = !space_marks || needs_metaspace(rules);
  for (const NormalizerStep& step : rules.normalizer.steps()) {
    const auto* replace = std::get_if<normal::Replace>(&step);
    if (space_marks && replace && *replace == kMarkToSpace) {
      if (!replaced) steps.push_back(step_json(kSpaceToMark));
      replaced = true;
    } else {
      steps.push_back(std::visit([](const auto& s) { return step_json(s); }, step));
    }
  }
  if (!replaced) steps.push_back(step_json(kSpaceToMark));
  return sequence("normalizers", std::move(steps));
}

// ---- pre-tokenizer

Json byte_level(bool add_prefix_space, bool use_regex) {
  return Json::Object{
      {"type", "ByteLevel"}, {"add_prefix_space", add_prefix_space}, {"trim_offsets", true}, {"use_regex", use_regex}};
}

Json split_json(const Split& split) {
  return Json::Object{{"type", "Split"},
                      {"pattern", object({{"Regex", split.regex}})},
                      {"behavior", behavior_name(split.behavior)},
                      {"invert", split.invert}};
}

Json byte_pretokenizer_json(const TokenizerRules& rules) {
  const bool prefix = rules.space.prefix != SpaceRule::Prefix::kNever;
  if (rules.pretokenizer.splits() == Pretokenizer::gpt2().splits()) return byte_level(prefix, true);
  Json::Array steps;
  for (const Split& split : rules.pretokenizer.splits()) steps.push_back(split_json(split));
  steps.push_back(byte_level(prefix, false));
  return sequence("pretokenizers", std::move(steps));
}

Json metaspace(const SpaceRule& space, bool split, bool decoder) {
  using Prefix = SpaceRule::Prefix;
  const char* scheme = space.prefix == Prefix::kNever ? "never" : space.prefix == Prefix::kFirst ? "first" : "always";
  Json::Object members{{"type", "Metaspace"}, {"replacement", kSpaceMark}, {"prepend_scheme", scheme}};
  if (!decoder || split) members.emplace_back("split", split);
  return members;
}

Json text_pretokenizer_json(const TokenizerRules& rules, bool space_marks) {
  Json::Array steps;
  const auto& splits = rules.pretokenizer.splits();
  if (space_marks && needs_metaspace(rules)) {
    if (rules.space.words) steps.push_back(object({{"type", "WhitespaceSplit"}}));
    steps.push_back(metaspace(rules.space, !splits.empty(), false));
    return sequence("pretokenizers", std::move(steps));
  }
  for (const Split& split : splits) {
    Split written = split;
    if (space_marks && written.regex == " ") written.regex = kSpaceMark;
    steps.push_back(split_json(written));
  }
  return sequence("pretokenizers", std::move(steps));
}

// ---- template

class TemplateWriter {
 public:
  explicit TemplateWriter(const std::vector<std::string>& tokens) : tokens_(tokens) {}

  Json write(const SequenceTemplate& frame) {
    if (frame.single.empty()) return nullptr;
    Json single = items(frame.single), pair = items(frame.pair);
    return Json::Object{{"type", "TemplateProcessing"},
                        {"single", std::move(single)},
                        {"pair", std::move(pair)},
                        {"special_tokens", std::move(special_)}};
  }

 private:
  Json items(const std::vector<SequenceTemplate::Item>& list) {
    using Kind = SequenceTemplate::Item::Kind;
    Json::Array written;
    for (const SequenceTemplate::Item& item : list) {
      if (item.kind == Kind::kToken) {
        const std::string& text = tokens_[static_cast<size_t>(item.id)];
        written.push_back(object({{"SpecialToken", object({{"id", text}, {"type_id", item.type_id}})}}));
        const bool known =
            std::any_of(special_.begin(), special_.end(), [&](const auto& m) { return m.first == text; });
        if (!known)
          special_.emplace_back(text,
                                object({{"id", text}, {"ids", Json::Array{item.id}}, {"tokens", Json::Array{text}}}));
      } else {
        const char* name = item.kind == Kind::kFirst ? "A" : "B";
        written.push_back(object({{"Sequence", object({{"id", name}, {"type_id", item.type_id}})}}));
      }
    }
    return written;
  }

  const std::vector<std::string>& tokens_;
  Json::Object special_;
};

// ---- models

Json file_json(Json added, Json normalizer, Json pre_tokenizer, Json post_processor, Json decoder, Json model) {
  return Json::Object{{"version", "1.0"},
                      {"truncation", nullptr},
                      {"padding", nullptr},
                      {"added_tokens", std::move(added)},
                      {"normalizer", std::move(normalizer)},
                      {"pre_tokenizer", std::move(pre_tokenizer)},
                      {"post_processor", std::move(post_processor)},
                      {"decoder", std::move(decoder)},
                      {"model", std::move(model)}};
}

struct BpeFlags {
  bool fuse_unknown = false, byte_fallback = false, ignore_merges = false;
};

Json bpe_model_json(Json unknown, const BpeFlags& flags, Json::Object vocab, Json::Array merges) {
  return Json::Object{{"type", "BPE"},
                      {"dropout", nullptr},
                      {"unk_token", std::move(unknown)},
                      {"continuing_subword_prefix", nullptr},
                      {"end_of_word_suffix", nullptr},
                      {"fuse_unk", flags.fuse_unknown},
                      {"byte_fallback", flags.byte_fallback},
                      {"ignore_merges", flags.ignore_merges},
                      {"vocab", std::move(vocab)},
                      {"merges", std::move(merges)}};
}

// "a b", or where a part holds a space ["a", "b"].
Json merge_json(const std::string& left, const std::string& right) {
  if ((left + right).find(' ') != std::string::npos) return Json::Array{left, right};
  return left + " " + right;
}

Json to_json(const BpeModel& model) {
  const BpeParts parts = disassemble_bpe(model);
  Json::Object vocab;
  for (const auto& [text, id] : parts.vocab) vocab.emplace_back(text, id);
  Json::Array merges;
  for (const auto& [left, right] : parts.merges) merges.push_back(merge_json(left, right));
  Json post = TemplateWriter(model.tokens).write(model.frame);
  if (post.is_null()) post = byte_level(false, true);
  return file_json(added_tokens(model.specials), normalizer_json(model, false), byte_pretokenizer_json(model),
                   std::move(post), byte_level(false, true),
                   bpe_model_json(nullptr, {false, false, model.ignore_merges}, std::move(vocab), std::move(merges)));
}

template <class Model>
std::string written_token(const Model& model, size_t id) {
  for (const SpecialToken& special : model.specials) {
    if (special.id == static_cast<int32_t>(id)) return special.text;
  }
  return model.space_marks ? with_space_marks(model.tokens[id]) : model.tokens[id];
}

template <class Model>
Json sentencepiece_decoder(const Model& model) {
  if (!model.space_marks) {
    if (model.first_byte_id < 0) return nullptr;
    return sequence("decoders", {object({{"type", "ByteFallback"}}), object({{"type", "Fuse"}})});
  }
  if (needs_metaspace(model)) return metaspace(model.space, !model.pretokenizer.splits().empty(), true);
  Json::Array steps{step_json(kMarkToSpace), object({{"type", "ByteFallback"}}), object({{"type", "Fuse"}})};
  if (model.decode.drop_first_space)
    steps.push_back(object({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}));
  return sequence("decoders", std::move(steps));
}

Json to_json(const SpmModel& model) {
  std::vector<std::string> tokens;
  Json::Object vocab;
  for (size_t id = 0; id < model.tokens.size(); ++id) {
    tokens.push_back(written_token(model, id));
    if (!tokens[id].empty()) vocab.emplace_back(tokens[id], static_cast<int64_t>(id));
  }
  Json::Array merges;
  const SpmVocab derived(model);
  for (const RankedMerge& m : derived.merges()) merges.push_back(merge_json(tokens[m.left], tokens[m.right]));
  std::vector<SpecialToken> specials = model.specials;
  for (const int32_t id : model.user_defined) specials.push_back({tokens[static_cast<size_t>(id)], id, true});
  for (const int32_t id : {model.unknown_id, model.bos_id, model.eos_id}) {
    const auto same = [id](const SpecialToken& s) { return s.id == id; };
    if (id >= 0 && std::none_of(specials.begin(), specials.end(), same)) specials.push_back({tokens[id], id});
  }
  const SequenceTemplate bos = model.bos_id >= 0 ? begins_with(model.bos_id) : SequenceTemplate();
  Json post = TemplateWriter(tokens).write(model.frame.single.empty() ? bos : model.frame);
  return file_json(
      added_tokens(specials), normalizer_json(model, model.space_marks),
      text_pretokenizer_json(model, model.space_marks), std::move(post), sentencepiece_decoder(model),
      bpe_model_json(model.unknown_id >= 0 ? Json(tokens[model.unknown_id]) : Json(nullptr),
                     {model.fuse_unknown, model.first_byte_id >= 0, false}, std::move(vocab), std::move(merges)));
}

Json to_json(const UnigramModel& model) {
  Json::Array vocab;
  for (size_t id = 0; id < model.scores.size(); ++id) {
    LOAM_CHECK(std::isfinite(model.scores[id]), "tokenizer.json cannot hold the unused piece {}", id);
    vocab.push_back(Json::Array{written_token(model, id), model.scores[id]});
  }
  Json unigram = object({{"type", "Unigram"},
                         {"unk_id", model.unknown_id >= 0 ? Json(model.unknown_id) : Json(nullptr)},
                         {"vocab", std::move(vocab)},
                         {"byte_fallback", model.first_byte_id >= 0}});
  return file_json(added_tokens(model.specials), normalizer_json(model, model.space_marks),
                   text_pretokenizer_json(model, model.space_marks), TemplateWriter(model.tokens).write(model.frame),
                   sentencepiece_decoder(model), std::move(unigram));
}

template <class Model>
Json vocab_object(const Model& model) {
  const std::vector<std::string>& tokens = model.tokens;
  Json::Object vocab;
  for (size_t id = 0; id < tokens.size(); ++id) {
    const bool own = model.own_tokens < 0 || id < static_cast<size_t>(model.own_tokens);
    if (own && !tokens[id].empty()) vocab.emplace_back(tokens[id], static_cast<int64_t>(id));
  }
  return vocab;
}

Json to_json(const WordPieceModel& model) {
  Json word_piece = object({{"type", "WordPiece"},
                            {"unk_token", model.tokens[model.unknown_id]},
                            {"continuing_subword_prefix", model.prefix},
                            {"max_input_chars_per_word", model.max_characters},
                            {"vocab", vocab_object(model)}});
  Json decoder = object({{"type", "WordPiece"}, {"prefix", model.prefix}, {"cleanup", model.decode.clean_up}});
  return file_json(added_tokens(model.specials), normalizer_json(model, false), text_pretokenizer_json(model, false),
                   TemplateWriter(model.tokens).write(model.frame), std::move(decoder), std::move(word_piece));
}

Json to_json(const WordModel& model) {
  Json words =
      object({{"type", "WordLevel"}, {"vocab", vocab_object(model)}, {"unk_token", model.tokens[model.unknown_id]}});
  return file_json(added_tokens(model.specials), normalizer_json(model, false), text_pretokenizer_json(model, false),
                   TemplateWriter(model.tokens).write(model.frame),
                   model.spaces ? Json(nullptr) : object({{"type", "Fuse"}}), std::move(words));
}

}  // namespace

std::string tokenizer_json(const Tokenizer& tokenizer) {
  return std::visit([](const auto& model) { return to_json(model); }, tokenizer.model()).dump(1) + "\n";
}

}  // namespace loam
