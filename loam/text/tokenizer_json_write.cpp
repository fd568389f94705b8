#include <fmt/format.h>

#include "loam/base/error.h"
#include "loam/base/json.h"
#include "loam/text/bpe_parts.h"
#include "loam/text/spm_vocab.h"
#include "loam/text/tokenizer_files.h"

namespace loam {
namespace {

constexpr const char* kSpaceMark = "\xE2\x96\x81";  // U+2581

Json added_token(int32_t id, const std::string& text, bool special) {
  return Json::Object{{"id", id},        {"content", text},     {"single_word", false}, {"lstrip", false},
                      {"rstrip", false}, {"normalized", false}, {"special", special}};
}

Json byte_level(bool use_regex = true) {
  return Json::Object{
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", use_regex}};
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

Json pre_tokenizer_json(const Pretokenizer& pretokenizer) {
  if (pretokenizer.splits() == Pretokenizer::gpt2().splits()) return byte_level();
  Json::Array steps;
  for (const Split& split : pretokenizer.splits()) {
    steps.push_back(Json::Object{{"type", "Split"},
                                 {"pattern", Json::Object{{"Regex", split.regex}}},
                                 {"behavior", behavior_name(split.behavior)},
                                 {"invert", split.invert}});
  }
  steps.push_back(byte_level(false));
  return Json::Object{{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
}

// Puts `text` in front of a sequence, and in front of both of a pair.
Json template_with_bos(int32_t id, const std::string& text) {
  const auto special = [&](int type) {
    return Json(Json::Object{{"SpecialToken", Json::Object{{"id", text}, {"type_id", type}}}});
  };
  const auto sequence = [](const char* name, int type) {
    return Json(Json::Object{{"Sequence", Json::Object{{"id", name}, {"type_id", type}}}});
  };
  const Json entry = Json::Object{{"id", text}, {"ids", Json::Array{id}}, {"tokens", Json::Array{text}}};
  return Json::Object{{"type", "TemplateProcessing"},
                      {"single", Json::Array{special(0), sequence("A", 0)}},
                      {"pair", Json::Array{special(0), sequence("A", 0), special(1), sequence("B", 1)}},
                      {"special_tokens", Json::Object{{text, entry}}}};
}

Json model_json(Json unknown, bool byte_fallback, Json::Object vocab, Json::Array merges) {
  return Json::Object{{"type", "BPE"},
                      {"dropout", nullptr},
                      {"unk_token", std::move(unknown)},
                      {"continuing_subword_prefix", nullptr},
                      {"end_of_word_suffix", nullptr},
                      {"fuse_unk", byte_fallback},
                      {"byte_fallback", byte_fallback},
                      {"ignore_merges", false},
                      {"vocab", std::move(vocab)},
                      {"merges", std::move(merges)}};
}

Json file_json(Json::Array added, Json normalizer, Json pre_tokenizer, Json post_processor, Json decoder, Json model) {
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

Json bpe_json(const BpeModel& model) {
  const BpeParts parts = disassemble_bpe(model);
  Json::Object vocab;
  for (const auto& [text, id] : parts.vocab) vocab.emplace_back(text, id);
  Json::Array merges, added;
  for (const auto& [left, right] : parts.merges) merges.push_back(left + " " + right);
  for (const SpecialToken& s : model.specials) added.push_back(added_token(s.id, s.text, !s.always));
  Json post = model.bos_id >= 0 ? template_with_bos(model.bos_id, model.tokens[model.bos_id]) : byte_level();
  return file_json(std::move(added), nullptr, pre_tokenizer_json(model.pretokenizer), std::move(post), byte_level(),
                   model_json(nullptr, false, std::move(vocab), std::move(merges)));
}

std::string with_space_mark(const std::string& token) {
  std::string marked;
  for (const char c : token) {
    if (c == ' ') {
      marked += kSpaceMark;
    } else {
      marked += c;
    }
  }
  return marked;
}

Json spm_normalizer(bool add_space_prefix) {
  const Json replace =
      Json::Object{{"type", "Replace"}, {"pattern", Json::Object{{"String", " "}}}, {"content", kSpaceMark}};
  if (!add_space_prefix) return replace;
  const Json prepend = Json::Object{{"type", "Prepend"}, {"prepend", kSpaceMark}};
  return Json::Object{{"type", "Sequence"}, {"normalizers", Json::Array{prepend, replace}}};
}

Json spm_decoder(bool add_space_prefix) {
  Json::Array steps{
      Json::Object{{"type", "Replace"}, {"pattern", Json::Object{{"String", kSpaceMark}}}, {"content", " "}},
      Json::Object{{"type", "ByteFallback"}}, Json::Object{{"type", "Fuse"}}};
  if (add_space_prefix) steps.push_back(Json::Object{{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return Json::Object{{"type", "Sequence"}, {"decoders", std::move(steps)}};
}

Json spm_json(const SpmModel& model) {
  LOAM_CHECK(model.first_byte_id >= 0,
             "tokenizer.json: a SentencePiece vocabulary without byte tokens is not supported");
  const auto text_of = [&](int32_t id) { return id >= 0 ? Json(model.tokens[id]) : Json(nullptr); };
  Json::Object vocab;
  for (size_t id = 0; id < model.tokens.size(); ++id) {
    if (!model.tokens[id].empty()) vocab.emplace_back(with_space_mark(model.tokens[id]), static_cast<int64_t>(id));
  }
  Json::Array merges, added;
  const SpmVocab derived(model);
  for (const SpmMerge& m : derived.merges()) {
    merges.push_back(with_space_mark(model.tokens[m.left]) + " " + with_space_mark(model.tokens[m.right]));
  }
  for (const int32_t id : {model.unknown_id, model.bos_id, model.eos_id}) {
    if (id >= 0) added.push_back(added_token(id, model.tokens[id], true));
  }
  Json post = model.bos_id >= 0 ? template_with_bos(model.bos_id, model.tokens[model.bos_id]) : Json(nullptr);
  return file_json(std::move(added), spm_normalizer(model.add_space_prefix), nullptr, std::move(post),
                   spm_decoder(model.add_space_prefix),
                   model_json(text_of(model.unknown_id), true, std::move(vocab), std::move(merges)));
}

}  // namespace

std::string tokenizer_json(const Tokenizer& tokenizer) {
  return (tokenizer.bpe() ? bpe_json(*tokenizer.bpe()) : spm_json(*tokenizer.spm())).dump(1) + "\n";
}

}  // namespace loam
