#include "loam/text/tokenizer_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <unordered_set>

#include "loam/base/error.h"
#include "loam/base/json.h"
#include "loam/base/utf8.h"
#include "loam/text/bpe_parts.h"
#include "loam/text/byte_alphabet.h"

namespace loam {
namespace {

// A token that is neither a byte nor made by a merge can't come out of text, so it is a special token (<|endoftext|> of
// GPT-2).
std::vector<SpecialToken> unmade_tokens(const BpeParts& parts, std::string_view source) {
  std::unordered_set<int32_t> made;
  const BpeModel plain = assemble_bpe(parts, {}, source);
  made.insert(plain.merge_ids.begin(), plain.merge_ids.end());
  std::vector<SpecialToken> specials;
  for (const auto& [text, id] : parts.vocab) {
    if (plain.tokens[id].size() > 1 && !made.contains(id)) specials.push_back({text, id});
  }
  return specials;
}

Tokenizer load_gpt2_pair(const Path& vocab_path, const Path& merges_path) {
  const std::string source = vocab_path.string();
  BpeParts parts{read_vocab(Json::parse(read_file(vocab_path, kMaxTokenizerBytes), source), source), {}};
  const std::string merges = read_file(merges_path, kMaxTokenizerBytes);
  std::string_view rest = merges;
  for (int64_t number = 1; !rest.empty(); ++number) {
    const size_t end = rest.find('\n');
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || (number == 1 && line.starts_with("#version"))) continue;
    parts.merges.push_back(split_merge(line, fmt::format("{}:{}", merges_path.string(), number)));
  }
  return make_tokenizer(assemble_bpe(parts, unmade_tokens(parts, source), source), source);
}

// Bytes of a file, taken from the front with their lengths checked.
class ByteCursor {
 public:
  ByteCursor(std::string_view bytes, std::string source)
      : rest_(bytes), total_(bytes.size()), source_(std::move(source)) {}
  bool at_end() const { return rest_.empty(); }
  size_t offset() const { return total_ - rest_.size(); }

  std::string_view take(size_t count) {
    if (count > rest_.size()) {
      fail(ErrorCode::kBadFormat, "{}: {} bytes are missing at offset {}", source_, count - rest_.size(), offset());
    }
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }
  template <class T>
  T number() {
    static_assert(std::endian::native == std::endian::little);
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }

 private:
  std::string_view rest_;
  size_t total_;
  std::string source_;
};

// llama2.c writes the control tokens with a line end on both sides.
void trim_control_token(std::string& token) {
  if (token.size() > 2 && token.front() == '\n' && token.back() == '\n') token = token.substr(1, token.size() - 2);
}

// Llama 3 calls a file of ranks tokenizer.model, as SentencePiece does its own.
bool holds_ranks(const Path& path) {
  const std::string bytes = read_file(path, kMaxTokenizerBytes);
  const std::string_view line = std::string_view(bytes).substr(0, bytes.find('\n'));
  const auto printable = [](char c) { return c >= ' ' && c <= '~'; };
  return !line.empty() && line.find(' ') != std::string_view::npos && std::all_of(line.begin(), line.end(), printable);
}

}  // namespace

Tokenizer load_llama2c_tokenizer(const Path& path, int64_t vocab_size) {
  const std::string bytes = read_file(path, kMaxTokenizerBytes);
  const std::string source = path.string();
  ByteCursor cursor(bytes, source);
  const int32_t longest = cursor.number<int32_t>();
  SpmModel model;
  while (vocab_size < 0 ? !cursor.at_end() : static_cast<int64_t>(model.tokens.size()) < vocab_size) {
    model.scores.push_back(cursor.number<float>());
    const int32_t length = cursor.number<int32_t>();
    const size_t offset = cursor.offset();
    if (length < 0) fail(ErrorCode::kBadFormat, "{}: length {} of a token at offset {}", source, length, offset);
    model.tokens.emplace_back(cursor.take(static_cast<size_t>(length)));
  }
  if (!cursor.at_end()) {
    fail(ErrorCode::kBadFormat, "{}: more than {} tokens (longest said to be {} bytes)", source, vocab_size, longest);
  }
  if (model.tokens.size() < 259)
    fail(ErrorCode::kBadFormat, "{}: {} tokens, fewer than control and byte tokens need", source, model.tokens.size());
  trim_control_token(model.tokens[model.bos_id]);
  trim_control_token(model.tokens[model.eos_id]);
  return make_tokenizer(std::move(model), source);
}

Path tokenizer_in(const Path& directory) {
  std::error_code error;
  for (const char* name : {"tokenizer.json", "tokenizer.model", "tekken.json", "vocab.json"}) {
    if (std::filesystem::exists(directory / name, error)) return directory / name;
  }
  return {};
}

Tokenizer load_tokenizer(const Path& path) {
  if (std::filesystem::is_directory(path)) {
    if (const Path file = tokenizer_in(path); !file.empty()) return load_tokenizer(file);
    fail(ErrorCode::kNotFound, "{}: none of tokenizer.json, tokenizer.model, tekken.json and vocab.json is in it",
         path.string());
  }
  if (path.filename() == "vocab.json") return load_gpt2_pair(path, path.parent_path() / "merges.txt");
  if (path.extension() == ".json" && path.stem().string().starts_with("tekken")) return load_tekken(path);
  if (path.extension() == ".bin") return load_llama2c_tokenizer(path);
  if (path.extension() == ".gguf") return load_gguf_tokenizer(path);
  if (path.extension() == ".tiktoken") return load_tiktoken(path);
  // Mistral's names go on: tokenizer.model.v3
  const bool versioned = path.extension().string().starts_with(".v") && path.stem().extension() == ".model";
  if (path.extension() == ".model" || versioned)
    return holds_ranks(path) ? load_tiktoken(path) : load_sentencepiece(path);
  return parse_tokenizer_json(read_file(path, kMaxTokenizerBytes), path.string());
}

namespace {

// The pair of files holds tokens and merges; of all else it means what GPT-2 has.
bool is_plain_gpt2(const BpeModel& model) {
  const auto looks_around = [](const SpecialToken& s) {
    return s.always || s.single_word || s.lstrip || s.rstrip || s.normalized;
  };
  return model.pretokenizer.name() == "gpt2" && model.normalizer.empty() && !model.ignore_merges &&
         model.space.prefix == SpaceRule::Prefix::kNever &&
         std::none_of(model.specials.begin(), model.specials.end(), looks_around);
}

}  // namespace

void save_tokenizer(const Tokenizer& tokenizer, const Path& directory) {
  write_file_atomic(directory / "tokenizer.json", tokenizer_json(tokenizer));
  if (!tokenizer.bpe() || !is_plain_gpt2(*tokenizer.bpe())) return;
  const BpeParts parts = disassemble_bpe(*tokenizer.bpe());
  Json::Object vocab;
  for (const auto& [text, id] : parts.vocab) vocab.emplace_back(text, id);
  std::string merges = "#version: 0.2\n";
  for (const auto& [left, right] : parts.merges) merges += left + " " + right + "\n";
  write_file_atomic(directory / "vocab.json", Json(std::move(vocab)).dump() + "\n");
  write_file_atomic(directory / "merges.txt", merges);
}

void check_special_token(std::string_view text) {
  LOAM_CHECK(!text.empty(), "the token is empty");
  LOAM_CHECK(text.size() <= kMaxSpecialBytes, "{} bytes, more than {}", text.size(), kMaxSpecialBytes);
  LOAM_CHECK(replace_invalid_utf8(text) == text, "is not valid UTF-8");
  const std::optional<std::string> bytes = from_byte_alphabet(text);
  const bool byte_name = text.size() == 6 && text.starts_with("<0x") && text.ends_with(">");
  const bool has_space = bytes && std::any_of(bytes->begin(), bytes->end(), [](char c) { return c >= 0 && c <= ' '; });
  LOAM_CHECK(!byte_name && !has_space && !(bytes && bytes->size() == 1),
             "the files of a tokenizer write ordinary bytes so");
}

}  // namespace loam
