// Reading Hugging Face's tokenizer.json. The format is defined by the serialisers of the library `tokenizers`; what is
// not understood and could change ids is refused.
#include <algorithm>
#include <bitset>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "loam/text/bpe_parts.h"
#include "loam/text/tokenizer_files.h"
#include "loam/text/tokenizer_json.h"

namespace loam {
namespace {

using Vocab = std::vector<std::pair<std::string, int32_t>>;

class ModelReader {
 public:
  explicit ModelReader(const TokenizerJson& file) : file_(file), model_(file.at(file.root(), "model")) {}
  TokenizerModel read();

 private:
  std::string model_type() const;
  std::vector<SpecialToken> read_added(size_t vocab_size) const;
  void check_bpe() const;
  BpeParts read_parts() const;
  void check_bytes(const BpeModel& model) const;
  BpeModel read_bpe() const;
  SpmModel read_characters() const;
  UnigramModel read_unigram() const;
  WordPieceModel read_word_piece() const;
  WordModel read_words() const;

  std::string plain(const std::string& token) const;
  std::vector<std::string> read_tokens(const Vocab& vocab, const std::vector<SpecialToken>& added) const;
  // The id of a token as the file writes it; -1 if there is none.
  int32_t find(const Vocab& vocab, std::string_view token) const;
  int32_t byte_tokens(const Vocab& vocab) const;

  const TokenizerJson& file_;
  const Json& model_;
  JsonRules rules_;
};

std::string ModelReader::model_type() const {
  if (const Json* type = file_.given(model_, "type")) return file_.text(*type);
  // Old files do not say it.
  if (file_.given(model_, "merges")) return "BPE";
  return file_.given(model_, "unk_id")                      ? "Unigram"
         : file_.given(model_, "continuing_subword_prefix") ? "WordPiece"
                                                            : "WordLevel";
}

// "truncation" and "padding" are requests of a batch, not part of what a text's ids are: transformers forgets both
// unless a call asks for them, and so do we.
TokenizerModel ModelReader::read() {
  file_.at(model_, "vocab");
  const std::string type = model_type();
  rules_ = read_rules(file_);
  if (rules_.byte_level && type != "BPE")
    file_.refuse("pre_tokenizer ByteLevel with a model {} is not supported", type);
  if (type == "BPE") {
    check_bpe();
    if (rules_.byte_level) return read_bpe();
    return read_characters();
  }
  if (type == "Unigram") return read_unigram();
  if (type == "WordPiece") return read_word_piece();
  if (type == "WordLevel") return read_words();
  file_.refuse("model type \"{}\" is not supported (there are BPE, Unigram, WordPiece and WordLevel)", type);
}

void ModelReader::check_bpe() const {
  const Json* dropout = file_.given(model_, "dropout");
  if (dropout && file_.take(*dropout, [](const Json& d) { return d.as_double(); }) != 0)
    file_.refuse("BPE dropout is not supported");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const Json* value = file_.given(model_, key);
    if (value && !file_.text(*value).empty()) file_.refuse("{} \"{}\" is not supported", key, file_.text(*value));
  }
  if (!rules_.byte_level && file_.flag(model_, "ignore_merges", false))
    file_.refuse("ignore_merges without ByteLevel is not supported");
}

std::vector<SpecialToken> ModelReader::read_added(size_t vocab_size) const {
  std::vector<SpecialToken> added;
  const Json* entries = file_.given(file_.root(), "added_tokens");
  if (!entries) return added;
  const auto limit = static_cast<int64_t>(2 * (vocab_size + file_.list(*entries).size()) + 65536);
  std::unordered_set<std::string_view> texts;
  std::unordered_set<int32_t> ids;
  for (const Json& token : file_.list(*entries)) {
    const std::string& content = file_.text(file_.at(token, "content"));
    const int32_t id = file_.id(file_.at(token, "id"));
    if (content.empty()) file_.refuse("the added token {} is empty", id);
    if (id >= limit) file_.refuse("added token \"{}\" has the id {}, out of proportion to the vocabulary", content, id);
    if (!texts.insert(content).second || !ids.insert(id).second)
      file_.refuse("added token \"{}\" ({}) is there twice", content, id);
    const auto flag = [&](std::string_view key) { return file_.flag(token, key, false); };
    const bool special = flag("special");
    added.push_back({content, id, !special, flag("single_word"), flag("lstrip"), flag("rstrip"),
                     file_.flag(token, "normalized", !special)});
  }
  return added;
}

BpeParts ModelReader::read_parts() const {
  BpeParts parts{read_vocab(file_.at(model_, "vocab"), file_.source() + ": model.vocab"), {}};
  const std::string place = file_.source() + ": model.merges";
  for (const Json& merge : file_.list(file_.at(model_, "merges"))) {
    if (merge.is_string()) {
      parts.merges.push_back(split_merge(merge.as_string(), place));
      continue;
    }
    if (file_.list(merge).size() != 2) file_.refuse("{} is not a merge of two tokens", merge.dump());
    parts.merges.emplace_back(file_.text(file_.list(merge)[0]), file_.text(file_.list(merge)[1]));
  }
  return parts;
}

// An added token that is in the vocabulary too must have the same id there.
void check_added(const TokenizerJson& file, const Vocab& vocab, const std::vector<SpecialToken>& added) {
  std::unordered_map<std::string_view, int32_t> ids(vocab.begin(), vocab.end());
  std::unordered_map<int32_t, std::string_view> names;
  for (const auto& [token, id] : vocab) names.emplace(id, token);
  for (const SpecialToken& token : added) {
    const auto by_text = ids.find(token.text);
    if (by_text != ids.end() && by_text->second != token.id) {
      file.refuse("added token \"{}\" has the id {}, but {} in the vocabulary", token.text, token.id, by_text->second);
    }
    const auto by_id = names.find(token.id);
    if (by_id != names.end() && by_id->second != token.text) {
      file.refuse("added token \"{}\" has the id {} of \"{}\"", token.text, token.id, by_id->second);
    }
  }
}

// A byte without a token is left out; but not where another token would stand for it.
void ModelReader::check_bytes(const BpeModel& model) const {
  std::bitset<256> known;
  for (const std::string& token : model.tokens) {
    if (token.size() == 1) known.set(static_cast<unsigned char>(token[0]));
  }
  if (known.all()) return;
  for (const char* key : {"unk_token", "byte_fallback"}) {
    const Json* given = file_.given(model_, key);
    if (given && !(given->is_bool() && !given->as_bool())) file_.refuse("{} with bytes that have no token", key);
  }
}

BpeModel ModelReader::read_bpe() const {
  const BpeParts parts = read_parts();
  std::vector<SpecialToken> added = read_added(parts.vocab.size());
  check_added(file_, parts.vocab, added);
  BpeModel model = assemble_bpe(parts, std::move(added), file_.source());
  model.ignore_merges = file_.flag(model_, "ignore_merges", false);
  check_bytes(model);
  std::vector<SpecialToken> specials = std::move(model.specials);
  static_cast<TokenizerRules&>(model) = rules_.rules;
  model.specials = std::move(specials);
  return model;
}

std::string ModelReader::plain(const std::string& token) const {
  return rules_.space_marks ? with_plain_spaces(token) : token;
}

int32_t ModelReader::find(const Vocab& vocab, std::string_view token) const {
  const auto found = std::find_if(vocab.begin(), vocab.end(), [&](const auto& entry) { return entry.first == token; });
  return found == vocab.end() ? -1 : found->second;
}

int64_t size_of(const Vocab& vocab) {
  int64_t size = 0;
  for (const auto& [token, id] : vocab) size = std::max<int64_t>(size, id + 1);
  return size;
}

// By id; "" for an id that no token has.
std::vector<std::string> ModelReader::read_tokens(const Vocab& vocab, const std::vector<SpecialToken>& added) const {
  check_added(file_, vocab, added);
  int64_t size = size_of(vocab);
  for (const SpecialToken& token : added) size = std::max<int64_t>(size, token.id + 1);
  std::vector<std::string> tokens(static_cast<size_t>(size));
  for (const SpecialToken& token : added) tokens[static_cast<size_t>(token.id)] = plain(token.text);
  for (const auto& [token, id] : vocab) {
    if (!tokens[static_cast<size_t>(id)].empty()) continue;
    if (rules_.space_marks && token.find(' ') != std::string::npos)
      file_.refuse("token {} holds a space, where spaces become U+2581", id);
    tokens[static_cast<size_t>(id)] = plain(token);
  }
  return tokens;
}

// The first of the 256 byte tokens.
int32_t ModelReader::byte_tokens(const Vocab& vocab) const {
  if (!file_.flag(model_, "byte_fallback", false)) return -1;
  const int32_t first = find(vocab, "<0x00>");
  if (first < 0) file_.refuse("byte_fallback without the token <0x00>");
  return first;
}

int32_t control_token(const std::vector<SpecialToken>& added, std::string_view text) {
  const auto found = std::find_if(added.begin(), added.end(),
                                  [&](const SpecialToken& token) { return token.text == text && !token.always; });
  return found == added.end() ? -1 : found->id;
}

SpmModel ModelReader::read_characters() const {
  SpmModel model;
  const BpeParts parts = read_parts();
  static_cast<TokenizerRules&>(model) = rules_.rules;
  model.specials = read_added(parts.vocab.size());
  model.tokens = read_tokens(parts.vocab, model.specials);
  model.scores.resize(model.tokens.size());
  model.space_marks = rules_.space_marks;
  const Json* unknown = file_.given(model_, "unk_token");
  model.unknown_id = unknown ? find(parts.vocab, file_.text(*unknown)) : -1;
  model.bos_id = control_token(model.specials, "<s>");
  model.eos_id = control_token(model.specials, "</s>");
  model.first_byte_id = byte_tokens(parts.vocab);
  model.fuse_unknown = file_.flag(model_, "fuse_unk", false);
  take_merges(parts, file_.source(), model);
  return model;
}

UnigramModel ModelReader::read_unigram() const {
  UnigramModel model;
  static_cast<TokenizerRules&>(model) = rules_.rules;
  Vocab vocab;
  std::unordered_set<std::string_view> seen;
  for (const Json& entry : file_.list(file_.at(model_, "vocab"))) {
    if (file_.list(entry).size() != 2) file_.refuse("{} is not a token and its score", entry.dump());
    const auto& [token, score] = std::tie(file_.list(entry)[0], file_.list(entry)[1]);
    if (!seen.insert(file_.text(token)).second) file_.refuse("token \"{}\" is there twice", file_.text(token));
    vocab.emplace_back(file_.text(token), static_cast<int32_t>(vocab.size()));
    model.scores.push_back(file_.take(score, [](const Json& s) { return s.as_double(); }));
  }
  model.specials = read_added(vocab.size());
  model.tokens = read_tokens(vocab, model.specials);
  model.space_marks = rules_.space_marks;
  const Json* unknown = file_.given(model_, "unk_id");
  model.unknown_id = unknown ? file_.id(*unknown) : -1;
  model.first_byte_id = byte_tokens(vocab);
  return model;
}

WordPieceModel ModelReader::read_word_piece() const {
  WordPieceModel model;
  const Vocab vocab = read_vocab(file_.at(model_, "vocab"), file_.source() + ": model.vocab");
  static_cast<TokenizerRules&>(model) = rules_.rules;
  model.decode.drop_first_space = true;
  model.specials = read_added(vocab.size());
  model.tokens = read_tokens(vocab, model.specials);
  model.own_tokens = size_of(vocab);
  if (const Json* prefix = file_.given(model_, "continuing_subword_prefix")) model.prefix = file_.text(*prefix);
  if (const Json* most = file_.given(model_, "max_input_chars_per_word")) model.max_characters = file_.number(*most);
  model.unknown_id = find(vocab, file_.text(file_.at(model_, "unk_token")));
  return model;
}

WordModel ModelReader::read_words() const {
  WordModel model;
  const Vocab vocab = read_vocab(file_.at(model_, "vocab"), file_.source() + ": model.vocab");
  static_cast<TokenizerRules&>(model) = rules_.rules;
  // Without a decoder tokens are joined by spaces; Fuse joins them as they are.
  model.spaces = model.decode.drop_first_space = !file_.given(file_.root(), "decoder");
  model.specials = read_added(vocab.size());
  model.tokens = read_tokens(vocab, model.specials);
  model.own_tokens = size_of(vocab);
  model.unknown_id = find(vocab, file_.text(file_.at(model_, "unk_token")));
  return model;
}

}  // namespace

Tokenizer parse_tokenizer_json(std::string_view text, std::string_view source) {
  const TokenizerJson file(text, source);
  try {
    return make_tokenizer(ModelReader(file).read(), source);
  } catch (const Error& error) {  // a member that is missing or of another kind
    if (std::string_view(error.what()).starts_with(source)) throw;
    fail(ErrorCode::kBadFormat, "{}: {}", source, error.what());
  }
}

}  // namespace loam
