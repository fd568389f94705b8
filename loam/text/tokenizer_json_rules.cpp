// Normalizer, pre-tokenizer, post-processor and decoder of a tokenizer.json.
#include <algorithm>
#include <optional>

#include "loam/base/base64.h"
#include "loam/text/matcher.h"
#include "loam/text/patterns.h"
#include "loam/text/tokenizer_json.h"

namespace loam {

int32_t TokenizerJson::id(const Json& part) const {
  const int64_t value = number(part);
  if (value < 0 || value > INT32_MAX) refuse("{}: {} is no id", root_.path_of(part), value);
  return static_cast<int32_t>(value);
}

const Json* TokenizerJson::given(const Json& object, std::string_view key) const {
  const Json* value = take(object, [key](const Json& o) { return o.find(key); });
  return value && !value->is_null() ? value : nullptr;
}

bool TokenizerJson::flag(const Json& object, std::string_view key, bool otherwise) const {
  const Json* value = given(object, key);
  return value ? take(*value, [](const Json& v) { return v.as_bool(); }) : otherwise;
}

std::vector<const Json*> TokenizerJson::steps(std::string_view part, std::string_view members) const {
  const Json* value = given(root_, part);
  if (!value) return {};
  std::vector<const Json*> found, open{value};
  // A Sequence may hold another.
  while (!open.empty()) {
    const Json* step = open.back();
    open.pop_back();
    if (type_of(*step) != "Sequence") {
      found.push_back(step);
      continue;
    }
    const Json::Array& inner = list(at(*step, members));
    for (auto it = inner.rbegin(); it != inner.rend(); ++it) open.push_back(&*it);
  }
  return found;
}

namespace {

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

class RulesReader {
 public:
  explicit RulesReader(const TokenizerJson& file) : file_(file) {}
  JsonRules read();

 private:
  void read_normalizer();
  NormalizerStep read_step(const Json& step) const;
  normal::Replace read_replace(const Json& step) const;
  void read_pretokenizer();
  void read_byte_level(const Json& step);
  void read_metaspace(const Json& step, bool words);
  Split read_split(const Json& step) const;
  void read_template();
  std::vector<SequenceTemplate::Item> read_items(const Json& step, std::string_view key) const;
  SequenceTemplate read_fixed_template(const Json& step, bool roberta) const;
  void read_decoder();
  [[noreturn]] void refuse_step(std::string_view part, const Json& step) const {
    const std::string all = step.dump();
    file_.refuse("{} {} is not supported{}", part, all.substr(0, 200),
                 out_.space_marks  ? " where spaces become U+2581"
                 : out_.byte_level ? " with a byte-level model"
                                   : "");
  }

  template <class Make>
  auto take_part(std::string_view part, const Make& make) const {
    const Json* given = file_.given(file_.root(), part);
    return file_.take(given ? *given : file_.root(), [&](const Json&) { return make(); });
  }

  const TokenizerJson& file_;
  JsonRules out_;
  std::vector<NormalizerStep> normalizer_;
  std::vector<Split> splits_;
};

JsonRules RulesReader::read() {
  read_normalizer();
  read_pretokenizer();
  read_template();
  read_decoder();
  out_.rules.normalizer = take_part("normalizer", [&] { return Normalizer(std::move(normalizer_)); });
  out_.rules.pretokenizer = take_part("pre_tokenizer", [&] { return Pretokenizer(std::move(splits_)); });
  return std::move(out_);
}

normal::Replace RulesReader::read_replace(const Json& step) const {
  const Json& pattern = file_.at(step, "pattern");
  const Json* regex = file_.given(pattern, "Regex");
  return {regex ? file_.text(*regex) : file_.text(file_.at(pattern, "String")), file_.text(file_.at(step, "content")),
          regex != nullptr};
}

NormalizerStep RulesReader::read_step(const Json& step) const {
  const std::string& type = file_.type_of(step);
  if (type == "NFC") return normal::UnicodeForm{false, true};
  if (type == "NFD") return normal::UnicodeForm{false, false};
  if (type == "NFKC") return normal::UnicodeForm{true, true};
  if (type == "NFKD") return normal::UnicodeForm{true, false};
  if (type == "Lowercase") return normal::Lowercase{};
  if (type == "StripAccents") return normal::StripAccents{};
  if (type == "Nmt") return normal::Nmt{};
  if (type == "Strip")
    return normal::Strip{file_.flag(step, "strip_left", true), file_.flag(step, "strip_right", true)};
  if (type == "Prepend") return normal::Prepend{file_.text(file_.at(step, "prepend"))};
  if (type == "Replace") return read_replace(step);
  if (type == "BertNormalizer") {
    const bool lowercase = file_.flag(step, "lowercase", true);
    return normal::Bert{file_.flag(step, "clean_text", true), file_.flag(step, "handle_chinese_chars", true),
                        file_.flag(step, "strip_accents", lowercase), lowercase};
  }
  if (type == "Precompiled") {
    const Json* table = file_.given(step, "precompiled_charsmap");
    return normal::Precompiled{table ? file_.take(*table, [](const Json& t) { return base64_decode(t.as_string()); })
                                     : ""};
  }
  refuse_step("normalizer", step);
}

// Where spaces become U+2581, the step is left out and the mark becomes a space: all rules here see plain spaces.
void RulesReader::read_normalizer() {
  const Json* prepend = nullptr;
  for (const Json* step : file_.steps("normalizer", "normalizers")) {
    const std::string& type = file_.type_of(*step);
    if (type == "Replace") {
      normal::Replace replace = read_replace(*step);
      if (!replace.regex && replace.pattern == " " && replace.content == kSpaceMark) {
        out_.space_marks = true;
        normalizer_.push_back(normal::Replace{std::string(kSpaceMark), " "});
        continue;
      }
    }
    if (type == "Prepend" && file_.text(file_.at(*step, "prepend")) == kSpaceMark) {
      prepend = step;
      continue;
    }
    if (out_.space_marks) refuse_step("normalizer", *step);
    normalizer_.push_back(read_step(*step));
  }
  if (!prepend) return;
  if (!out_.space_marks) refuse_step("normalizer", *prepend);
  out_.rules.space.prefix = SpaceRule::Prefix::kEach;
}

Split RulesReader::read_split(const Json& step) const {
  const std::string& type = file_.type_of(step);
  const auto behavior = [&](const Json& of) {
    return file_.take(of, [](const Json& b) { return parse_behavior(b.as_string()); });
  };
  if (type == "Split") {
    const Json& pattern = file_.at(step, "pattern");
    const Json* regex = file_.given(pattern, "Regex");
    return {regex ? file_.text(*regex) : escape_regex(file_.text(file_.at(pattern, "String"))),
            behavior(file_.at(step, "behavior")), file_.flag(step, "invert", false)};
  }
  if (type == "Digits") return {file_.flag(step, "individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)"};
  if (type == "Punctuation") {
    const Json* given = file_.given(step, "behavior");
    return {std::string(patterns::kPunctuation), given ? behavior(*given) : SplitBehavior::kIsolated};
  }
  if (type == "Whitespace") {
#define LOAM_WORD R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control})"
    return {"[" LOAM_WORD "]+|[^" LOAM_WORD R"(\s]+)", SplitBehavior::kRemoved, true};
#undef LOAM_WORD
  }
  if (type == "WhitespaceSplit") return {R"(\s)", SplitBehavior::kRemoved};
  if (type == "CharDelimiterSplit")
    return {escape_regex(file_.text(file_.at(step, "delimiter"))), SplitBehavior::kRemoved};
  refuse_step("pre_tokenizer", step);
}

void RulesReader::read_byte_level(const Json& step) {
  if (out_.byte_level) file_.refuse("two pre_tokenizers ByteLevel are not supported");
  if (file_.flag(step, "add_prefix_space", true)) {
    if (!splits_.empty()) refuse_step("pre_tokenizer", step);
    out_.rules.space = {SpaceRule::Prefix::kEach, true};
  }
  if (file_.flag(step, "use_regex", true)) splits_.push_back(Pretokenizer::gpt2().splits()[0]);
  out_.byte_level = true;
}

// Behind WhitespaceSplit (`words`) each word gets its mark.
void RulesReader::read_metaspace(const Json& step, bool words) {
  if (file_.text(file_.at(step, "replacement")) != kSpaceMark) refuse_step("pre_tokenizer", step);
  const Json* scheme = file_.given(step, "prepend_scheme");
  const std::string prefix = scheme                                       ? file_.text(*scheme)
                             : file_.flag(step, "add_prefix_space", true) ? "always"
                                                                          : "never";
  SpaceRule& space = out_.rules.space;
  if (space.prefix != SpaceRule::Prefix::kNever) refuse_step("pre_tokenizer", step);
  if (prefix == "always") {
    space = {SpaceRule::Prefix::kEach, true};
  } else if (prefix == "first") {
    space = {SpaceRule::Prefix::kFirst, true};
  } else if (prefix != "never") {
    refuse_step("pre_tokenizer", step);
  }
  if (words) {
    if (prefix != "always" || out_.space_marks) refuse_step("pre_tokenizer", step);
    space = {SpaceRule::Prefix::kEach, true, true};
  } else if (!out_.space_marks) {
    normalizer_.push_back(normal::Replace{std::string(kSpaceMark), " "});
  }
  out_.space_marks = true;
  if (file_.flag(step, "split", true)) splits_.push_back({" ", SplitBehavior::kMergedWithNext});
}

// Splits, among them at most one ByteLevel: what follows it sees bytes in an alphabet of its own, in which only ASCII
// keeps its meaning.
void RulesReader::read_pretokenizer() {
  const std::vector<const Json*> steps = file_.steps("pre_tokenizer", "pretokenizers");
  for (size_t i = 0; i < steps.size(); ++i) {
    const Json& step = *steps[i];
    const std::string& type = file_.type_of(step);
    if (type == "ByteLevel") {
      read_byte_level(step);
    } else if (type == "Metaspace") {
      read_metaspace(step, i > 0 && file_.type_of(*steps[i - 1]) == "WhitespaceSplit");
    } else if (type == "WhitespaceSplit" && i + 1 < steps.size() && file_.type_of(*steps[i + 1]) == "Metaspace") {
      continue;
    } else if (type == "BertPreTokenizer") {
      splits_.push_back({R"(\s)", SplitBehavior::kRemoved});
      splits_.push_back({std::string(patterns::kPunctuation), SplitBehavior::kIsolated});
    } else {
      Split split = read_split(step);
      if (out_.space_marks) {
        // No space is left for it to match; a mark is a plain space here.
        if (split.regex == " ") continue;
        if (split.regex != kSpaceMark) refuse_step("pre_tokenizer", step);
        split.regex = " ";
      }
      splits_.push_back(std::move(split));
      if (!out_.byte_level) continue;
      const auto scanner = run_scanner(splits_.back().regex);
      if (!scanner || !scanner->is_ascii()) refuse_step("pre_tokenizer", step);
    }
  }
  if (out_.byte_level && out_.space_marks) file_.refuse("ByteLevel beside marks of spaces is not supported");
}

std::vector<SequenceTemplate::Item> RulesReader::read_items(const Json& step, std::string_view key) const {
  using Kind = SequenceTemplate::Item::Kind;
  std::vector<SequenceTemplate::Item> items;
  const Json* given = file_.given(step, key);
  if (!given) return items;
  for (const Json& part : file_.list(*given)) {
    if (const Json* sequence = file_.given(part, "Sequence")) {
      const std::string& name = file_.text(file_.at(*sequence, "id"));
      if (name != "A" && name != "B") file_.refuse("the template has a sequence \"{}\"", name);
      items.push_back({name == "A" ? Kind::kFirst : Kind::kSecond, -1, file_.id(file_.at(*sequence, "type_id"))});
      continue;
    }
    const Json& special = file_.at(part, "SpecialToken");
    const Json& entry = file_.at(file_.at(step, "special_tokens"), file_.text(file_.at(special, "id")));
    for (const Json& id : file_.list(file_.at(entry, "ids")))
      items.push_back({Kind::kToken, file_.id(id), file_.id(file_.at(special, "type_id"))});
  }
  return items;
}

// [CLS] A [SEP] B [SEP], or RoBERTa's <s> A </s> </s> B </s>.
SequenceTemplate RulesReader::read_fixed_template(const Json& step, bool roberta) const {
  using Item = SequenceTemplate::Item;
  using Kind = Item::Kind;
  const auto id_of = [&](std::string_view key) {
    const Json::Array& entry = file_.list(file_.at(step, key));
    if (entry.size() != 2) file_.refuse("post_processor: \"{}\" is not a token and its id", key);
    return file_.id(entry[1]);
  };
  const int32_t type = roberta ? 0 : 1;
  const Item cls{Kind::kToken, id_of("cls"), 0}, sep{Kind::kToken, id_of("sep"), 0};
  const Item last{Kind::kToken, sep.id, type};
  SequenceTemplate result{{cls, {Kind::kFirst}, sep}, {cls, {Kind::kFirst}, sep}};
  if (roberta) result.pair.push_back(sep);
  result.pair.push_back({Kind::kSecond, -1, type});
  result.pair.push_back(last);
  return result;
}

void RulesReader::read_template() {
  SequenceTemplate& frame = out_.rules.frame;
  for (const Json* step : file_.steps("post_processor", "processors")) {
    const std::string& type = file_.type_of(*step);
    if (type == "ByteLevel") continue;
    if (!frame.single.empty()) file_.refuse("two templates in post_processor are not supported");
    if (type == "TemplateProcessing") {
      file_.at(*step, "single");
      frame = {read_items(*step, "single"), read_items(*step, "pair")};
    } else if (type == "BertProcessing" || type == "RobertaProcessing") {
      frame = read_fixed_template(*step, type == "RobertaProcessing");
    } else {
      refuse_step("post_processor", *step);
    }
  }
}

// Decoding never changes ids. What matters here is the space in front, and WordPiece's cleaning up.
void RulesReader::read_decoder() {
  DecodeRule& rule = out_.rules.decode;
  for (const Json* step : file_.steps("decoder", "decoders")) {
    const std::string& type = file_.type_of(*step);
    if (type == "Strip") {
      rule.drop_first_space =
          file_.text(file_.at(*step, "content")) == " " && file_.number(file_.at(*step, "start")) > 0;
    } else if (type == "Metaspace") {
      const Json* scheme = file_.given(*step, "prepend_scheme");
      rule.drop_first_space = scheme ? file_.text(*scheme) != "never" : file_.flag(*step, "add_prefix_space", true);
    } else if (type == "WordPiece") {
      rule.clean_up = file_.flag(*step, "cleanup", true);
    } else if (type != "ByteLevel" && type != "Replace" && type != "ByteFallback" && type != "Fuse") {
      refuse_step("decoder", *step);
    }
  }
}

}  // namespace

JsonRules read_rules(const TokenizerJson& file) { return RulesReader(file).read(); }

}  // namespace loam
