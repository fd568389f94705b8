#include "loam/data/token_shard.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>

#include "loam/base/error.h"
#include "loam/base/hash.h"
#include "loam/base/json.h"
#include "loam/base/map_guard.h"

namespace loam {
namespace {

static_assert(std::endian::native == std::endian::little, "shards are read as they lie in the file");

constexpr const char* kFormat = "loam tokens";
constexpr int64_t kVersion = 1;
constexpr int64_t kMaxVocab = std::numeric_limits<int32_t>::max();
constexpr int64_t kMaxIndex = 256 << 20;  // bytes of an index.json that is still read
constexpr size_t kBuffer = 1 << 20;       // bytes written at once

struct ShardHeader {
  char magic[8] = {'L', 'O', 'A', 'M', 'T', 'O', 'K', '1'};  // kTokenShardMagic
  uint32_t token_bytes = 0, zero = 0;
  uint64_t tokens = 0, documents = 0, hash = 0;
  char padding[24] = {};
};
static_assert(sizeof(ShardHeader) == 64);

int64_t token_bytes_for(int64_t vocab_size) { return vocab_size <= 65'536 ? 2 : 4; }
int64_t padded(int64_t bytes) { return (bytes + 7) / 8 * 8; }
std::string_view as_bytes(const void* data, size_t size) { return {static_cast<const char*>(data), size}; }

}  // namespace

// --- Writing

struct TokenSetWriter::State {
  State(Path path, TokenSetInfo set_info, int64_t most_tokens)
      : directory(std::move(path)), info(std::move(set_info)), shard_tokens(most_tokens) {}

  AtomicDirectory directory;
  TokenSetInfo info;
  int64_t shard_tokens;
  Json::Array shards;

  // The open shard.
  std::string name;
  std::optional<AtomicFile> file;
  std::optional<StreamHash64> hash;
  std::string buffer;
  std::vector<uint64_t> document_begins;
  int64_t tokens = 0;

  void open_shard();
  void close_shard();
  void flush();
  template <class T>
  void append(std::span<const int32_t> document);
};

void TokenSetWriter::State::open_shard() {
  name = fmt::format("shard-{:05}.tok", shards.size());
  file.emplace(directory.path() / name);
  hash.emplace();
  tokens = 0;
  const ShardHeader blank;  // the counts are known at the end
  file->write(&blank, sizeof(blank));
}

void TokenSetWriter::State::flush() {
  hash->update(buffer);
  file->write(buffer);
  buffer.clear();
}

template <class T>
void TokenSetWriter::State::append(std::span<const int32_t> document) {
  for (const int32_t id : document) {
    const T narrow = static_cast<T>(id);
    buffer.append(as_bytes(&narrow, sizeof(T)));
    if (buffer.size() >= kBuffer) flush();
  }
}

void TokenSetWriter::State::close_shard() {
  const int64_t bytes = tokens * token_bytes_for(info.vocab_size);
  buffer.append(static_cast<size_t>(padded(bytes) - bytes), '\0');
  flush();
  const std::string_view begins = as_bytes(document_begins.data(), document_begins.size() * sizeof(uint64_t));
  hash->update(begins);
  file->write(begins);

  ShardHeader header;
  header.token_bytes = static_cast<uint32_t>(token_bytes_for(info.vocab_size));
  header.tokens = static_cast<uint64_t>(tokens);
  header.documents = document_begins.size();
  header.hash = hash->digest();
  file->write_at(0, &header, sizeof(header));
  file->commit();
  file.reset();
  shards.push_back(
      Json::Object{{"file", name}, {"tokens", tokens}, {"documents", static_cast<int64_t>(document_begins.size())}});
  document_begins.clear();
}

TokenSetWriter::TokenSetWriter(Path directory, TokenSetInfo info, int64_t shard_tokens) {
  LOAM_CHECK(info.vocab_size > 0 && info.vocab_size <= kMaxVocab, "token set: vocabulary of {} ids", info.vocab_size);
  LOAM_CHECK(shard_tokens > 0, "token set: {} tokens a shard", shard_tokens);
  info.tokens = info.documents = info.text_bytes = 0;
  state_ = std::make_unique<State>(std::move(directory), std::move(info), shard_tokens);
}

TokenSetWriter::~TokenSetWriter() = default;

void TokenSetWriter::add(std::span<const int32_t> document, int64_t text_bytes) {
  State& s = *state_;
  LOAM_CHECK(!document.empty(), "token set: a document without tokens");
  for (const int32_t id : document) {
    LOAM_CHECK(id >= 0 && id < s.info.vocab_size, "token set: id {} is outside the vocabulary of {}", id,
               s.info.vocab_size);
  }
  const auto count = static_cast<int64_t>(document.size());
  if (s.file && s.tokens + count > s.shard_tokens) s.close_shard();
  if (!s.file) s.open_shard();
  s.document_begins.push_back(static_cast<uint64_t>(s.tokens));
  if (token_bytes_for(s.info.vocab_size) == 2) {
    s.append<uint16_t>(document);
  } else {
    s.append<uint32_t>(document);
  }
  s.tokens += count;
  s.info.tokens += count;
  s.info.documents += 1;
  s.info.text_bytes += text_bytes;
}

TokenSetInfo TokenSetWriter::finish() {
  State& s = *state_;
  LOAM_CHECK(s.file.has_value(), "token set: no documents");
  s.close_shard();
  const Json index = Json::Object{{"format", kFormat},
                                  {"version", kVersion},
                                  {"tokenizer", s.info.tokenizer_fingerprint},
                                  {"vocab_size", s.info.vocab_size},
                                  {"end_of_text", int64_t{s.info.end_of_text}},
                                  {"tokens", s.info.tokens},
                                  {"documents", s.info.documents},
                                  {"text_bytes", s.info.text_bytes},
                                  {"shards", std::move(s.shards)}};
  write_file_atomic(s.directory.path() / "index.json", index.dump(2) + "\n");
  s.directory.commit();
  return s.info;
}

// --- Reading

namespace {

struct Shard {
  std::string name;
  MappedFile map;
  ShardHeader header;
  int64_t token_begin = 0, document_begin = 0;  // in the set, of this shard's first

  int64_t tokens() const { return static_cast<int64_t>(header.tokens); }
  int64_t documents() const { return static_cast<int64_t>(header.documents); }
  const std::byte* data() const { return map.bytes().data() + sizeof(ShardHeader); }
  std::span<const uint64_t> document_begins() const {
    const int64_t offset = padded(tokens() * header.token_bytes);
    return {reinterpret_cast<const uint64_t*>(data() + offset), static_cast<size_t>(documents())};
  }
  template <class T>
  std::span<const T> ids() const {
    return {reinterpret_cast<const T*>(data()), static_cast<size_t>(tokens())};
  }
};

// A member of index.json that must be a whole number of at least `least`.
int64_t count_of(const Json& object, std::string_view key, int64_t least, const std::string& source) {
  const Json* value = object.is_object() ? object.find(key) : nullptr;
  if (value == nullptr || !value->is_int() || value->as_int() < least) {
    fail(ErrorCode::kBadFormat, "{}: '{}' is not a whole number of at least {}", source, key, least);
  }
  return value->as_int();
}

std::string string_of(const Json& object, std::string_view key, const std::string& source) {
  const Json* value = object.is_object() ? object.find(key) : nullptr;
  if (value == nullptr || !value->is_string()) fail(ErrorCode::kBadFormat, "{}: '{}' is not a string", source, key);
  return value->as_string();
}

// Sizes first, so that nothing outside the file is touched; then the documents' order.
Shard open_shard(const Path& path) {
  Shard shard;
  shard.map = MappedFile(path);
  const auto check = [&](bool ok, const std::string& what) {
    if (!ok) fail(ErrorCode::kBadFormat, "{}: not a token shard: {}", path.string(), what);
  };
  const int64_t size = shard.map.size();
  check(size >= static_cast<int64_t>(sizeof(ShardHeader)), fmt::format("{} bytes, too short for a header", size));
  std::memcpy(&shard.header, shard.map.bytes().data(), sizeof(ShardHeader));
  const ShardHeader& h = shard.header;
  check(shard.map.text().starts_with(kTokenShardMagic), "it does not begin with LOAMTOK1");
  check(h.token_bytes == 2 || h.token_bytes == 4, fmt::format("{} bytes a token", h.token_bytes));
  const auto most = static_cast<uint64_t>(size);  // bounds both counts, so that the sum cannot overflow
  check(h.tokens > 0 && h.tokens <= most && h.documents > 0 && h.documents <= h.tokens,
        fmt::format("{} tokens and {} documents in {} bytes", h.tokens, h.documents, size));
  const int64_t expected = static_cast<int64_t>(sizeof(ShardHeader)) + padded(shard.tokens() * h.token_bytes) +
                           shard.documents() * static_cast<int64_t>(sizeof(uint64_t));
  check(size == expected, fmt::format("{} bytes, but its header makes {}", size, expected));

  const auto begins = shard.document_begins();
  check(begins[0] == 0, "the first document does not begin at 0");
  for (size_t i = 1; i < begins.size(); ++i) {
    check(begins[i] > begins[i - 1] && begins[i] < h.tokens,
          fmt::format("document {} begins at token {}", i, begins[i]));
  }
  return shard;
}

}  // namespace

struct TokenSet::State {
  Path directory;
  TokenSetInfo info;
  std::vector<Shard> shards;

  // The last shard whose first token (or document) is at or before `value`.
  const Shard& shard_of(int64_t value, int64_t Shard::*begin) const {
    const auto after = std::upper_bound(shards.begin(), shards.end(), value,
                                        [&](int64_t v, const Shard& shard) { return v < shard.*begin; });
    return *(after - 1);
  }
};

TokenSet::TokenSet(const Path& directory) : state_(std::make_unique<State>()) {
  const Path index_path = directory / "index.json";
  const std::string source = index_path.string();
  const Json index = Json::parse(read_file(index_path, kMaxIndex), source);
  if (string_of(index, "format", source) != kFormat) fail(ErrorCode::kBadFormat, "{}: not a token set", source);
  if (const int64_t version = count_of(index, "version", 0, source); version != kVersion) {
    fail(ErrorCode::kBadFormat, "{}: version {}, but this program reads version {}", source, version, kVersion);
  }
  state_->directory = directory;
  TokenSetInfo& info = state_->info;
  info.tokenizer_fingerprint = string_of(index, "tokenizer", source);
  info.vocab_size = count_of(index, "vocab_size", 1, source);
  const int64_t end_of_text = count_of(index, "end_of_text", -1, source);
  if (info.vocab_size > kMaxVocab || end_of_text >= info.vocab_size) {
    fail(ErrorCode::kBadFormat, "{}: vocab_size {} and end_of_text {} do not fit", source, info.vocab_size,
         end_of_text);
  }
  info.end_of_text = static_cast<int32_t>(end_of_text);
  info.text_bytes = count_of(index, "text_bytes", 0, source);

  const Json* shards = index.find("shards");
  if (shards == nullptr || !shards->is_array() || shards->as_array().empty()) {
    fail(ErrorCode::kBadFormat, "{}: 'shards' is not a list of files", source);
  }
  for (const Json& entry : shards->as_array()) {
    const std::string name = string_of(entry, "file", source);
    if (name.empty() || name == ".." || name.find('/') != name.npos || name.find('\0') != name.npos) {
      fail(ErrorCode::kBadFormat, "{}: '{}' is not the name of a file beside it", source, name);
    }
    Shard shard = open_shard(directory / name);
    if (shard.tokens() != count_of(entry, "tokens", 1, source) ||
        shard.documents() != count_of(entry, "documents", 1, source) ||
        int64_t{shard.header.token_bytes} != token_bytes_for(info.vocab_size)) {
      fail(ErrorCode::kBadFormat,
           "{}: {} holds {} tokens of {} bytes in {} documents, which is not what the index says", source, name,
           shard.tokens(), shard.header.token_bytes, shard.documents());
    }
    shard.name = name;
    shard.token_begin = info.tokens;
    shard.document_begin = info.documents;
    info.tokens += shard.tokens();
    info.documents += shard.documents();
    state_->shards.push_back(std::move(shard));
  }
  if (info.tokens != count_of(index, "tokens", 1, source) ||
      info.documents != count_of(index, "documents", 1, source)) {
    fail(ErrorCode::kBadFormat, "{}: its counts are not the sums of its shards: {} tokens, {} documents", source,
         info.tokens, info.documents);
  }
}

TokenSet::~TokenSet() = default;
TokenSet::TokenSet(TokenSet&&) noexcept = default;

const TokenSetInfo& TokenSet::info() const { return state_->info; }

void TokenSet::read(int64_t begin, std::span<int32_t> out) const {
  const auto count = static_cast<int64_t>(out.size());
  LOAM_CHECK(begin >= 0 && count <= tokens() && begin <= tokens() - count, "token set: [{}, {} + {}) of {} tokens",
             begin, begin, count, tokens());
  int32_t* to = out.data();
  int64_t left = count;
  while (left > 0) {
    const Shard& shard = state_->shard_of(begin, &Shard::token_begin);
    const auto local = static_cast<size_t>(begin - shard.token_begin);
    const int64_t part = std::min(left, shard.token_begin + shard.tokens() - begin);
    const auto copy = [&](const auto ids) { to = std::copy_n(ids.data() + local, part, to); };
    guarded([&] { shard.header.token_bytes == 2 ? copy(shard.ids<uint16_t>()) : copy(shard.ids<uint32_t>()); });
    begin += part;
    left -= part;
  }
}

int64_t TokenSet::document_of(int64_t position) const {
  LOAM_CHECK(position >= 0 && position < tokens(), "token set: token {} of {}", position, tokens());
  const Shard& shard = state_->shard_of(position, &Shard::token_begin);
  const auto begins = shard.document_begins();
  int64_t after = 0;  // the first document of the shard that begins behind the position
  guarded([&] {
    after = std::upper_bound(begins.begin(), begins.end(), static_cast<uint64_t>(position - shard.token_begin)) -
            begins.begin();
  });
  return shard.document_begin + after - 1;
}

int64_t TokenSet::document_begin(int64_t document) const {
  LOAM_CHECK(document >= 0 && document <= info().documents, "token set: document {} of {}", document, info().documents);
  if (document == info().documents) return tokens();
  const Shard& shard = state_->shard_of(document, &Shard::document_begin);
  const auto local = static_cast<size_t>(document - shard.document_begin);
  int64_t begin = 0;
  guarded([&] { begin = static_cast<int64_t>(shard.document_begins()[local]); });
  return shard.token_begin + begin;
}

void TokenSet::verify() const {
  for (const Shard& shard : state_->shards) {
    const std::string path = (state_->directory / shard.name).string();
    const std::string_view body = shard.map.text().substr(sizeof(ShardHeader));
    if (hash64(body) != shard.header.hash) fail(ErrorCode::kBadFormat, "{}: damaged: the hash differs", path);
    const auto check_ids = [&](const auto ids) {
      const auto most = *std::max_element(ids.begin(), ids.end());
      if (int64_t{most} >= info().vocab_size) {
        fail(ErrorCode::kBadFormat, "{}: id {} is outside the vocabulary of {}", path, most, info().vocab_size);
      }
    };
    shard.header.token_bytes == 2 ? check_ids(shard.ids<uint16_t>()) : check_ids(shard.ids<uint32_t>());
  }
}

std::string TokenSet::fingerprint() const {
  std::string all;
  for (const Shard& shard : state_->shards) {
    all += shard.name;
    all += '\0';
    all += as_bytes(&shard.header, sizeof(ShardHeader));
  }
  return hash_hex(all);
}

}  // namespace loam
