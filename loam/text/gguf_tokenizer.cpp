// Tokenizers in the metadata of GGUF files, as llama.cpp reads them (its llama-vocab.cpp): the defaults of keys that
// are missing are its own.
#include <algorithm>
#include <limits>

#include "loam/base/gguf.h"
#include "loam/base/utf8.h"
#include "loam/text/bpe_parts.h"
#include "loam/text/gguf_vocab.h"
#include "loam/text/patterns.h"
#include "loam/text/sentencepiece_rules.h"
#include "loam/text/tokenizer_files.h"

namespace loam {

namespace {

using namespace gguf_vocab;
using Texts = std::vector<std::string>;

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The names of Llama 3's kind: merges are ignored, and texts begin with a token.
bool is_llama3(std::string_view pre) {
  return is_one_of(pre, {"llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2",
                         "jina-v5-nano", "tekken"});
}

// The keys "tokenizer.ggml. ..." of one file.
class GgufVocab {
 public:
  explicit GgufVocab(const Gguf& file) : file_(file), tokens(file.at<Texts>(key("tokens"))) {
    if (tokens.empty()) refuse("no tokens");
    types_ = file.at_or<std::vector<int64_t>>(key("token_type"), std::vector<int64_t>(tokens.size(), kNormal));
    if (types_.size() != tokens.size()) refuse(fmt::format("{} tokens but {} types", tokens.size(), types_.size()));
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (types_[i] == kUnused && tokens[i] == filler(static_cast<int64_t>(i))) tokens[i].clear();
    }
    while (tokens.size() > 1 && types_[tokens.size() - 1] == kUnused && tokens.back().empty()) tokens.pop_back();
  }

  [[noreturn]] void refuse(std::string_view what) const { fail(ErrorCode::kBadFormat, "{}: {}", file_.source(), what); }
  const std::string& source() const { return file_.source(); }
  std::string text(std::string_view name, std::string otherwise = "") const {
    return file_.at_or<std::string>(key(name), std::move(otherwise));
  }
  bool flag(std::string_view name, bool otherwise) const { return file_.at_or<bool>(key(name), otherwise); }
  const Texts& texts(std::string_view name) const { return file_.at<Texts>(key(name)); }
  // -1 for none; the largest 32-bit number, as some files have it, is none too.
  int32_t id(std::string_view name, int32_t otherwise) const {
    const auto value = file_.at_or<int64_t>(key(name), otherwise);
    if (value == -1 || value == std::numeric_limits<uint32_t>::max()) return -1;
    if (value < 0 || value >= static_cast<int64_t>(types_.size())) {
      if (!file_.contains(key(name))) return -1;
      refuse(fmt::format("{} is {} of {} tokens", key(name), value, types_.size()));
    }
    return value < static_cast<int64_t>(tokens.size()) ? static_cast<int32_t>(value) : -1;
  }
  std::vector<double> scores() const {
    const auto& all = file_.at<std::vector<double>>(key("scores"));
    if (all.size() != types_.size()) refuse(fmt::format("{} tokens but {} scores", types_.size(), all.size()));
    return {all.begin(), all.begin() + static_cast<ptrdiff_t>(tokens.size())};
  }
  std::string charsmap() const {
    std::string bytes;
    for (const int64_t byte : file_.at_or<std::vector<int64_t>>(key("precompiled_charsmap"), {}))
      bytes += static_cast<char>(byte);
    return bytes;
  }
  int64_t type(size_t id) const { return types_[id]; }

 private:
  const Gguf& file_;

 public:
  Texts tokens;  // "" for an id that no token has; such ones at the end are left out

 private:
  std::vector<int64_t> types_;
};

std::vector<SpecialToken> read_specials(const GgufVocab& vocab) {
  std::vector<SpecialToken> specials;
  for (size_t i = 0; i < vocab.tokens.size(); ++i) {
    const int64_t type = vocab.type(i);
    if (vocab.tokens[i].empty() || (type != kControl && type != kUserDefined && type != kUnknown)) continue;
    specials.push_back({vocab.tokens[i], static_cast<int32_t>(i), type == kUserDefined});
  }
  return specials;
}

// `first` in front and `last` behind each text; -1 for none. A pair shares what stands between, unless `repeats`.
SequenceTemplate frame_of(int32_t first, int32_t last, int32_t second_type, bool repeats_first) {
  using Item = SequenceTemplate::Item;
  using Kind = Item::Kind;
  SequenceTemplate frame;
  if (first < 0 && last < 0) return frame;
  const auto add = [](std::vector<Item>& items, int32_t id, int32_t type) {
    if (id >= 0) items.push_back({Kind::kToken, id, type});
  };
  add(frame.single, first, 0);
  frame.single.push_back({Kind::kFirst});
  add(frame.single, last, 0);
  frame.pair = frame.single;
  if (repeats_first) add(frame.pair, first, second_type);
  frame.pair.push_back({Kind::kSecond, -1, second_type});
  add(frame.pair, last, second_type);
  return frame;
}

SequenceTemplate frame_of(const GgufVocab& vocab, bool add_bos, bool add_eos, int32_t bos, int32_t eos) {
  return frame_of(vocab.flag("add_bos_token", add_bos) ? vocab.id("bos_token_id", bos) : -1,
                  vocab.flag("add_eos_token", add_eos) ? vocab.id("eos_token_id", eos) : -1, 1, true);
}

Tokenizer read_byte_level(const GgufVocab& vocab) {
  const std::string pre = vocab.text("pre");
  if (pre.empty()) vocab.refuse("the key tokenizer.ggml.pre is missing: how text is cut into pieces is not known");
  if (is_one_of(pre, {"gemma4", "granite-embed-multi-311m", "sarvam-moe"}))
    vocab.refuse("BPE that is not byte-level (tokenizer.ggml.pre is \"" + pre + "\") is not supported");
  BpeParts parts;
  for (size_t i = 0; i < vocab.tokens.size(); ++i) {
    if (!vocab.tokens[i].empty()) parts.vocab.emplace_back(vocab.tokens[i], static_cast<int32_t>(i));
  }
  for (const std::string& merge : vocab.texts("merges")) parts.merges.push_back(split_merge(merge, vocab.source()));
  BpeModel model = assemble_bpe(parts, read_specials(vocab), vocab.source());
  try {
    model.pretokenizer = parse_pretokenizer(pre);
  } catch (const Error& error) {
    vocab.refuse(error.what());
  }
  model.ignore_merges = ignores_merges(pre);
  model.frame = frame_of(vocab, is_llama3(pre) || pre == "chameleon", false, -1, -1);
  return make_tokenizer(std::move(model), vocab.source());
}

// The tokens of both kinds of SentencePiece. `prefix`: a space is put in front unless the file says otherwise.
template <class Model>
void take_tokens(const GgufVocab& vocab, bool prefix, Model& model) {
  model.first_byte_id = -1;
  model.specials = read_specials(vocab);
  for (SpecialToken& special : model.specials) {
    if (special.always) special.text = with_plain_spaces(special.text);
  }
  for (size_t i = 0; i < vocab.tokens.size(); ++i) {
    const bool control = vocab.type(i) == kControl || vocab.type(i) == kUnknown;
    model.tokens.push_back(control ? vocab.tokens[i] : with_plain_spaces(vocab.tokens[i]));
    if (vocab.type(i) == kByte && model.first_byte_id < 0) model.first_byte_id = static_cast<int32_t>(i);
  }
  if (vocab.flag("add_space_prefix", prefix)) return;
  model.space = {};
  model.decode.drop_first_space = false;
}

Tokenizer read_sentencepiece_bpe(const GgufVocab& vocab) {
  SpmModel model;
  take_tokens(vocab, true, model);
  for (const double score : vocab.scores()) model.scores.push_back(static_cast<float>(score));
  model.unknown_id = vocab.id("unknown_token_id", 0);
  model.bos_id = vocab.id("bos_token_id", 1);
  model.eos_id = vocab.id("eos_token_id", 2);
  model.frame = frame_of(vocab, true, false, 1, 2);
  return make_tokenizer(std::move(model), vocab.source());
}

// BPE of characters by a list of merges, bytes for what is no token (Gemma 4).
Tokenizer read_character_bpe(const GgufVocab& vocab) {
  SpmModel model;
  take_tokens(vocab, false, model);
  model.scores.resize(model.tokens.size());
  model.unknown_id = vocab.id("unknown_token_id", -1);
  model.bos_id = vocab.id("bos_token_id", -1);
  model.eos_id = vocab.id("eos_token_id", -1);
  BpeParts parts;
  for (size_t i = 0; i < vocab.tokens.size(); ++i) parts.vocab.emplace_back(vocab.tokens[i], static_cast<int32_t>(i));
  for (const std::string& merge : vocab.texts("merges")) parts.merges.push_back(split_merge(merge, vocab.source()));
  take_merges(parts, vocab.source(), model);
  model.frame = frame_of(vocab, true, false, model.bos_id, model.eos_id);
  return make_tokenizer(std::move(model), vocab.source());
}

Tokenizer read_unigram(const GgufVocab& vocab) {
  UnigramModel model;
  take_tokens(vocab, false, model);
  model.scores = vocab.scores();
  for (size_t i = 0; i < vocab.tokens.size(); ++i) {
    if (vocab.type(i) == kUnused) model.scores[i] = -std::numeric_limits<double>::infinity();
  }
  model.unknown_id = vocab.id("unknown_token_id", 2);
  if (model.unknown_id < 0 && model.first_byte_id < 0) vocab.refuse("neither byte tokens nor an unknown token");
  try {
    model.normalizer =
        sentencepiece_normalizer(vocab.charsmap(), {}, vocab.flag("remove_extra_whitespaces", false), true);
  } catch (const Error& error) {
    vocab.refuse(error.what());
  }
  model.frame = frame_of(vocab, false, true, -1, 1);
  return make_tokenizer(std::move(model), vocab.source());
}

// There, words begin with U+2581 and what continues one has no mark; control tokens stand in brackets.
std::string with_word_piece_marks(std::string_view token) {
  if (token.starts_with(kSpaceMark)) return std::string(token.substr(kSpaceMark.size()));
  return std::string(token.starts_with('[') && token.ends_with(']') ? "" : "##") + std::string(token);
}

Tokenizer read_word_piece(const GgufVocab& vocab) {
  WordPieceModel model;
  model.specials = read_specials(vocab);
  for (size_t i = 0; i < vocab.tokens.size(); ++i) {
    const bool ordinary = vocab.type(i) != kControl && vocab.type(i) != kUnknown && vocab.type(i) != kUserDefined;
    model.tokens.push_back(ordinary && !vocab.tokens[i].empty() ? with_word_piece_marks(vocab.tokens[i])
                                                                : vocab.tokens[i]);
  }
  model.unknown_id = vocab.id("unknown_token_id", 100);
  normal::Bert bert;
  bert.lowercase = vocab.flag("normalizer.lowercase", true);
  bert.strip_accents = vocab.flag("normalizer.strip_accents", bert.lowercase);
  model.normalizer = Normalizer({bert});
  model.pretokenizer = Pretokenizer({{"\\s", SplitBehavior::kRemoved}, {std::string(patterns::kPunctuation)}});
  model.decode.drop_first_space = model.decode.clean_up = true;
  const int32_t cls = vocab.id("cls_token_id", vocab.id("bos_token_id", 101));
  const int32_t sep = vocab.id("seperator_token_id", vocab.id("separator_token_id", 102));  // the first is the format's
  model.frame = frame_of(cls, sep, 1, false);
  return make_tokenizer(std::move(model), vocab.source());
}

struct Kind {
  std::string_view name;
  Tokenizer (*read)(const GgufVocab&);
};
constexpr Kind kKinds[] = {{"gpt2", read_byte_level},
                           {"gemma4", read_character_bpe},
                           {"llama", read_sentencepiece_bpe},
                           {"t5", read_unigram},
                           {"bert", read_word_piece}};

const Kind* find_kind(std::string_view name) {
  const auto found = std::find_if(std::begin(kKinds), std::end(kKinds), [&](const Kind& k) { return k.name == name; });
  return found == std::end(kKinds) ? nullptr : found;
}

}  // namespace

bool gguf_vocab::ignores_merges(std::string_view pre) {
  return is_llama3(pre) || is_one_of(pre, {"minicpm5", "youtu", "granite-embed-multi-97m"});
}

Tokenizer load_gguf_tokenizer(const Path& path) { return load_gguf_tokenizer(Gguf::open(path)); }

Tokenizer load_gguf_tokenizer(const Gguf& file) {
  const std::string& kind = file.at<std::string>("tokenizer.ggml.model");
  const GgufVocab vocab(file);
  if (const Kind* known = find_kind(kind)) return known->read(vocab);
  vocab.refuse(fmt::format("the tokenizer model \"{}\" is not supported, only gpt2, gemma4, llama, t5 and bert",
                           printable(kind, false, 64)));
}

}  // namespace loam
