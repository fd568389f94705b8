// Reading Hugging Face's tokenizer.json. The format is defined by the serialisers of the library `tokenizers`; what is
// not understood and could change ids is refused.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_set>

#include "loam/base/error.h"
#include "loam/base/json.h"
#include "loam/text/bpe_parts.h"
#include "loam/text/spm_vocab.h"
#include "loam/text/tokenizer_files.h"

namespace loam {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581

std::string without_space_mark(std::string_view token) {
  std::string plain;
  while (!token.empty()) {
    const bool mark = token.starts_with(kSpaceMark);
    plain += mark ? ' ' : token[0];
    token.remove_prefix(mark ? kSpaceMark.size() : 1);
  }
  return plain;
}

class Reader {
 public:
  Reader(std::string_view file, std::string_view source) : source_(source), root_(Json::parse(file, source)) {}
  Tokenizer read();

 private:
  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorCode::kBadFormat, "{}: {}", source_, fmt::format(format, std::forward<Args>(args)...));
  }
  // What `get` takes from a part of the file; its errors name the place.
  template <class Get>
  decltype(auto) take(const Json& part, const Get& get) const {
    try {
      return get(part);
    } catch (const Error& error) {
      const std::string place = root_.path_of(part);
      refuse("{}{}{}", place, place.empty() ? "" : ": ", error.what());
    }
  }
  const std::string& text(const Json& part) const {
    return take(part, [](const Json& p) -> const std::string& { return p.as_string(); });
  }
  int64_t number(const Json& part) const {
    return take(part, [](const Json& p) { return p.as_int(); });
  }
  const Json::Array& list(const Json& part) const {
    return take(part, [](const Json& p) -> const Json::Array& { return p.as_array(); });
  }
  const Json& at(const Json& object, std::string_view key) const {
    return take(object, [key](const Json& o) -> const Json& { return o.at(key); });
  }
  // A member that is absent or null counts as not given.
  const Json* given(const Json& object, std::string_view key) const {
    const Json* value = take(object, [key](const Json& o) { return o.find(key); });
    return value && !value->is_null() ? value : nullptr;
  }
  bool flag(const Json& object, std::string_view key, bool otherwise) const {
    const Json* value = given(object, key);
    return value ? take(*value, [](const Json& v) { return v.as_bool(); }) : otherwise;
  }
  const std::string& type_of(const Json& object) const { return text(at(object, "type")); }
  std::vector<const Json*> flatten(std::string_view part, std::string_view members) const;

  void check_model() const;
  Split read_split(const Json& step) const;
  Pretokenizer read_pretokenizer() const;
  void check_spm_decoder() const;
  bool read_spm_normalizer() const;
  int32_t read_bos() const;
  std::vector<SpecialToken> read_added() const;
  BpeParts read_parts() const;
  BpeModel read_bpe() const;
  SpmModel read_spm() const;
  void check_spm_merges(const SpmModel& model, const std::vector<Merge>& listed) const;

  std::string source_;
  Json root_;
};

// The steps of a part of the file ("normalizer", ...): none, one, or the members of a Sequence.
std::vector<const Json*> Reader::flatten(std::string_view part, std::string_view members) const {
  const Json* value = given(root_, part);
  if (!value) return {};
  if (type_of(*value) != "Sequence") return {value};
  std::vector<const Json*> steps;
  for (const Json& step : list(at(*value, members))) steps.push_back(&step);
  return steps;
}

// "truncation" and "padding" are requests of a batch, not part of what a text's ids are: transformers forgets both
// unless a call asks for them, and so do we.
Tokenizer Reader::read() {
  check_model();
  const bool byte_level = given(root_, "pre_tokenizer") != nullptr;
  if (byte_level) return make_tokenizer(read_bpe(), source_);
  if (!flag(at(root_, "model"), "byte_fallback", false))
    refuse("a BPE without byte-level pre_tokenizer and without byte_fallback is not supported");
  return make_tokenizer(read_spm(), source_);
}

void Reader::check_model() const {
  const Json& model = at(root_, "model");
  const Json* type = given(model, "type");
  if (type && text(*type) != "BPE") refuse("model type \"{}\" is not supported (only BPE)", text(*type));
  const Json* dropout = given(model, "dropout");
  if (dropout && take(*dropout, [](const Json& d) { return d.as_double(); }) != 0)
    refuse("BPE dropout is not supported");
  if (flag(model, "ignore_merges", false)) refuse("ignore_merges is not supported");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const Json* value = given(model, key);
    if (value && !text(*value).empty()) refuse("{} \"{}\" is not supported", key, text(*value));
  }
}

SplitBehavior parse_behavior(const std::string& name) {
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  fail(ErrorCode::kBadFormat, "\"{}\" is not a behavior", name);
}

// The regex for the text itself.
std::string escape_regex(const std::string& text) {
  std::string regex;
  for (const char c : text) {
    if (std::string_view(R"(\.^$*+?()[]{}|)").find(c) != std::string_view::npos) regex += '\\';
    regex += c;
  }
  return regex;
}

Split Reader::read_split(const Json& step) const {
  const std::string& type = type_of(step);
  if (type == "Split") {
    const Json& pattern = at(step, "pattern");
    const Json* regex = given(pattern, "Regex");
    return {regex ? text(*regex) : escape_regex(text(at(pattern, "String"))),
            take(at(step, "behavior"), [](const Json& b) { return parse_behavior(b.as_string()); }),
            flag(step, "invert", false)};
  }
  if (type == "Digits") return {flag(step, "individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)"};
  if (type == "Punctuation") {
    const Json* behavior = given(step, "behavior");
    return {R"([\p{P}$+<=>^`|~])", behavior
                                       ? take(*behavior, [](const Json& b) { return parse_behavior(b.as_string()); })
                                       : SplitBehavior::kIsolated};
  }
  if (type == "Whitespace") {
#define LOAM_WORD R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control})"
    return {"[" LOAM_WORD "]+|[^" LOAM_WORD R"(\s]+)", SplitBehavior::kRemoved, true};
#undef LOAM_WORD
  }
  if (type == "WhitespaceSplit") return {R"(\s)", SplitBehavior::kRemoved};
  refuse("pre_tokenizer \"{}\" is not supported", type);
}

// Splits, among them at most one ByteLevel, which must be there: what follows it sees bytes in an alphabet of its own,
// in which only ASCII keeps its meaning.
Pretokenizer Reader::read_pretokenizer() const {
  if (!flatten("normalizer", "normalizers").empty()) {
    refuse("normalizer \"{}\" is not supported with a byte-level model",
           type_of(*flatten("normalizer", "normalizers")[0]));
  }
  std::vector<Split> splits;
  bool byte_level = false;
  for (const Json* step : flatten("pre_tokenizer", "pretokenizers")) {
    if (type_of(*step) == "ByteLevel") {
      if (byte_level) refuse("two pre_tokenizers ByteLevel are not supported");
      if (flag(*step, "add_prefix_space", true)) refuse("ByteLevel with add_prefix_space is not supported");
      if (flag(*step, "use_regex", true)) splits.push_back(Pretokenizer::gpt2().splits()[0]);
      byte_level = true;
      continue;
    }
    splits.push_back(read_split(*step));
    if (!byte_level) continue;
    const auto scanner = run_scanner(splits.back().regex);
    if (!scanner || !scanner->is_ascii()) {
      refuse("pre_tokenizer \"{}\" after ByteLevel is not supported", type_of(*step));
    }
  }
  if (!byte_level) refuse("a BPE with pre_tokenizers but without ByteLevel is not supported");
  return take(at(root_, "pre_tokenizer"), [&](const Json&) { return Pretokenizer(std::move(splits)); });
}

std::vector<SpecialToken> Reader::read_added() const {
  std::vector<SpecialToken> added;
  const Json* entries = given(root_, "added_tokens");
  if (!entries) return added;
  const Json& vocab = at(at(root_, "model"), "vocab");
  const int64_t limit = 2 * static_cast<int64_t>(vocab.as_object().size() + list(*entries).size()) + 65536;
  std::unordered_set<std::string_view> texts;
  std::unordered_set<int64_t> ids;
  for (const Json& token : list(*entries)) {
    const std::string& content = text(at(token, "content"));
    const int64_t id = number(at(token, "id"));
    for (const char* key : {"single_word", "lstrip", "rstrip"}) {
      if (flag(token, key, false)) refuse("added token \"{}\": {} is not supported", content, key);
    }
    if (content.empty()) refuse("the added token {} is empty", id);
    if (id < 0 || id >= limit)
      refuse("added token \"{}\" has the id {}, out of proportion to the vocabulary", content, id);
    if (!texts.insert(content).second || !ids.insert(id).second)
      refuse("added token \"{}\" ({}) is there twice", content, id);
    added.push_back({content, static_cast<int32_t>(id), !flag(token, "special", false)});
  }
  return added;
}

BpeParts Reader::read_parts() const {
  const Json& model = at(root_, "model");
  BpeParts parts{read_vocab(at(model, "vocab"), source_ + ": model.vocab"), {}};
  const std::string place = source_ + ": model.merges";
  for (const Json& merge : list(at(model, "merges"))) {
    if (merge.is_string()) {
      parts.merges.push_back(split_merge(merge.as_string(), place));
      continue;
    }
    if (list(merge).size() != 2) refuse("{} is not a merge of two tokens", merge.dump());
    parts.merges.emplace_back(text(list(merge)[0]), text(list(merge)[1]));
  }
  return parts;
}

// Post-processors add tokens round a sequence, which encode() leaves to its caller; what matters is the token in front.
int32_t Reader::read_bos() const {
  int32_t bos = -1;
  for (const Json* step : flatten("post_processor", "processors")) {
    if (type_of(*step) == "ByteLevel") continue;
    if (type_of(*step) != "TemplateProcessing") refuse("post_processor \"{}\" is not supported", type_of(*step));
    const Json::Array& single = list(at(*step, "single"));
    const Json* first = single.empty() ? nullptr : given(single[0], "SpecialToken");
    if (!first) continue;
    const Json::Array& ids = list(at(at(at(*step, "special_tokens"), text(at(*first, "id"))), "ids"));
    if (ids.size() != 1) refuse("a template token of {} ids is not supported", ids.size());
    const int64_t id = number(ids[0]);
    if (id < 0 || id > INT32_MAX) refuse("template token id {}", id);
    bos = static_cast<int32_t>(id);
  }
  return bos;
}

BpeModel Reader::read_bpe() const {
  Pretokenizer pretokenizer = read_pretokenizer();
  for (const Json* step : flatten("decoder", "decoders")) {
    if (type_of(*step) != "ByteLevel")
      refuse("decoder \"{}\" is not supported with a byte-level model", type_of(*step));
  }
  const BpeParts parts = read_parts();
  const std::vector<SpecialToken> added = read_added();
  std::map<std::string_view, int32_t> vocab(parts.vocab.begin(), parts.vocab.end());
  std::map<int32_t, std::string_view> names;
  for (const auto& [token, id] : parts.vocab) names.emplace(id, token);
  for (const SpecialToken& token : added) {
    const auto by_text = vocab.find(token.text);
    if (by_text != vocab.end() && by_text->second != token.id) {
      refuse("added token \"{}\" has the id {}, but {} in the vocabulary", token.text, token.id, by_text->second);
    }
    const auto by_id = names.find(token.id);
    if (by_id != names.end() && by_id->second != token.text) {
      refuse("added token \"{}\" has the id {} of \"{}\"", token.text, token.id, by_id->second);
    }
  }
  BpeModel model = assemble_bpe(parts, added, source_);
  model.pretokenizer = std::move(pretokenizer);
  model.bos_id = read_bos();
  return model;
}

// True with a space in front: the normalizers are Prepend "▁" and Replace " " by "▁"; the first may be missing.
bool Reader::read_spm_normalizer() const {
  bool prepend = false, replace = false;
  for (const Json* step : flatten("normalizer", "normalizers")) {
    const std::string type = type_of(*step);
    if (type == "Prepend" && !prepend && !replace && text(at(*step, "prepend")) == kSpaceMark) {
      prepend = true;
    } else if (type == "Replace" && !replace && text(at(*step, "content")) == kSpaceMark &&
               given(at(*step, "pattern"), "String") && text(at(at(*step, "pattern"), "String")) == " ") {
      replace = true;
    } else {
      refuse("normalizer {} is not supported with a SentencePiece model", step->dump());
    }
  }
  if (!replace) refuse("a SentencePiece model whose spaces are not replaced is not supported");
  return prepend;
}

void Reader::check_spm_decoder() const {
  for (const Json* step : flatten("decoder", "decoders")) {
    const std::string type = type_of(*step);
    const bool known = type == "Replace" || type == "ByteFallback" || type == "Fuse" || type == "Strip";
    if (!known) refuse("decoder \"{}\" is not supported with a SentencePiece model", type);
  }
}

SpmModel Reader::read_spm() const {
  SpmModel model;
  model.add_space_prefix = read_spm_normalizer();
  check_spm_decoder();
  const BpeParts parts = read_parts();
  std::map<std::string_view, int32_t> ids(parts.vocab.begin(), parts.vocab.end());
  const auto id_or_none = [&](std::string_view token) { return ids.contains(token) ? ids.at(token) : -1; };
  int32_t size = 0;
  for (const auto& [token, id] : parts.vocab) size = std::max(size, id + 1);
  model.tokens.resize(size);
  model.scores.resize(size);
  for (const auto& [token, id] : parts.vocab) {
    if (token.find(' ') != std::string::npos) refuse("token {} of a SentencePiece model holds a space", id);
    model.tokens[id] = without_space_mark(token);
  }
  const Json* unknown = given(at(root_, "model"), "unk_token");
  model.unknown_id = unknown ? id_or_none(text(*unknown)) : -1;
  model.bos_id = id_or_none("<s>");
  model.eos_id = id_or_none("</s>");
  model.first_byte_id = id_or_none("<0x00>");
  if (model.first_byte_id < 0) refuse("byte_fallback without the token <0x00>");
  read_bos();
  for (const SpecialToken& token : read_added()) {
    const bool known = token.id == model.unknown_id || token.id == model.bos_id || token.id == model.eos_id;
    if (!known || model.tokens[token.id] != token.text)
      refuse("added token \"{}\" is not supported with a SentencePiece model", token.text);
  }
  // A score for each token: minus the place of the first merge that makes it.
  std::vector<Merge> listed;
  std::vector<bool> made(size, false);
  for (const auto& [left, right] : parts.merges) {
    const int32_t result = id_or_none(left + right);
    if (result < 0 || !ids.contains(left) || !ids.contains(right))
      refuse("the merge of \"{}\" and \"{}\" is not one of tokens", left, right);
    if (!made[result]) model.scores[result] = -static_cast<float>(listed.size());
    made[result] = true;
    listed.emplace_back(ids.at(left), ids.at(right));
  }
  check_spm_merges(model, listed);
  return model;
}

// The merges must be those that the scores imply; any others would give other ids.
void Reader::check_spm_merges(const SpmModel& model, const std::vector<Merge>& listed) const {
  const SpmVocab vocab(model);
  std::map<Merge, uint32_t> ranks;
  for (const SpmMerge& merge : vocab.merges()) ranks.emplace(Merge(merge.left, merge.right), merge.rank);
  bool same = ranks.size() == listed.size();
  uint32_t before = 0;
  for (size_t i = 0; same && i < listed.size(); ++i) {
    const auto found = ranks.find(listed[i]);
    same = found != ranks.end() && found->second >= before;
    if (same) before = found->second;
  }
  if (!same) refuse("the merges do not follow from one score for each token");
}

}  // namespace

Tokenizer parse_tokenizer_json(std::string_view text, std::string_view source) {
  Reader reader(text, source);
  try {
    return reader.read();
  } catch (const Error& error) {  // a member that is missing or of another kind
    if (std::string_view(error.what()).starts_with(source)) throw;
    fail(ErrorCode::kBadFormat, "{}: {}", source, error.what());
  }
}

}  // namespace loam
