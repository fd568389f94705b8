#include "loam/data/token_shard.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <numeric>

#include "loam/base/hash.h"
#include "loam/base/json.h"
#include "tests/harness/expect_error.h"
#include "tests/harness/temp_dir.h"

namespace loam {
namespace {

using testing::TempDir;
using Ids = std::vector<int32_t>;

TokenSetInfo info_for(int64_t vocab_size) { return {"print", vocab_size, 0, 0, 0, 0}; }

TokenSetInfo write_set(const Path& path, const std::vector<Ids>& documents, int64_t vocab_size = 100,
                       int64_t shard_tokens = 1 << 20) {
  TokenSetWriter writer(path, info_for(vocab_size), shard_tokens);
  for (const Ids& document : documents) writer.add(document, 10);
  return writer.finish();
}

Ids read_all(const TokenSet& set) {
  Ids ids(static_cast<size_t>(set.tokens()));
  set.read(0, ids);
  return ids;
}

template <class T>
void put(std::string& bytes, size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof(value));
}

TEST(TokenShard, WritesTheBytesOfTheFormat) {
  const TempDir directory;
  write_set(directory / "s", {{1, 0x1234, 3}, {4, 5}}, 65'536);
  std::string body("\x01\x00\x34\x12\x03\x00\x04\x00\x05\x00\x00\x00\x00\x00\x00\x00", 16);     // five tokens, padding
  body += std::string("\x00\x00\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x00\x00\x00\x00", 16);  // documents at 0, 3
  std::string expected("LOAMTOK1\x02\x00\x00\x00\x00\x00\x00\x00", 16);
  expected += std::string("\x05\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00", 16);
  const uint64_t hash = hash64(body);
  expected.append(reinterpret_cast<const char*>(&hash), 8);
  expected.append(24, '\0');
  EXPECT_EQ(read_file(directory / "s" / "shard-00000.tok"), expected + body);
}

TEST(TokenShard, FourBytesATokenForALargerVocabulary) {
  const TempDir directory;
  write_set(directory / "s", {{1, 65'536}, {7}}, 65'537);
  const std::string bytes = read_file(directory / "s" / "shard-00000.tok");
  EXPECT_EQ(bytes[8], 4);
  EXPECT_EQ(bytes.substr(64, 16), std::string("\x01\0\0\0\0\0\x01\0\x07\0\0\0\0\0\0\0", 16));
  EXPECT_EQ(read_all(TokenSet(directory / "s")), (Ids{1, 65'536, 7}));
}

TEST(TokenShard, IndexSaysWhatIsThere) {
  const TempDir directory;
  const TokenSetInfo written = write_set(directory / "s", {{1, 2}, {3}, {4, 5, 6}});
  for (const TokenSetInfo& info : {written, TokenSet(directory / "s").info()}) {
    EXPECT_EQ(info.tokens, 6);
    EXPECT_EQ(info.documents, 3);
    EXPECT_EQ(info.text_bytes, 30);
    EXPECT_EQ(info.vocab_size, 100);
    EXPECT_EQ(info.end_of_text, 0);
    EXPECT_EQ(info.tokenizer_fingerprint, "print");
  }
}

// The same documents in one shard and in many are the same stream.
TEST(TokenShard, ManyShardsAreOneStream) {
  const TempDir directory;
  std::vector<Ids> documents;
  Ids stream;
  std::vector<int64_t> begins = {0};
  for (int32_t i = 0; i < 200; ++i) {
    Ids document(static_cast<size_t>(1 + i * 7 % 13));
    std::iota(document.begin(), document.end(), i);
    stream.insert(stream.end(), document.begin(), document.end());
    begins.push_back(static_cast<int64_t>(stream.size()));
    documents.push_back(document);
  }
  for (const int64_t shard_tokens : {1, 5, 64, 1 << 20}) {
    const Path path = directory / std::to_string(shard_tokens);
    write_set(path, documents, 1000, shard_tokens);
    const TokenSet set(path);
    EXPECT_NO_THROW(set.verify());
    ASSERT_EQ(read_all(set), stream);
    for (int64_t d = 0; d <= 200; ++d) ASSERT_EQ(set.document_begin(d), begins[static_cast<size_t>(d)]);
    for (int64_t p = 0; p < set.tokens(); ++p) {
      const int64_t d = set.document_of(p);
      ASSERT_TRUE(begins[static_cast<size_t>(d)] <= p && p < begins[static_cast<size_t>(d) + 1]) << p;
    }
    for (const int64_t begin : {int64_t{0}, int64_t{3}, set.tokens() - 150}) {
      Ids part(150);
      set.read(begin, part);
      ASSERT_TRUE(std::equal(part.begin(), part.end(), stream.begin() + begin));
    }
    set.read(set.tokens(), {});
    Ids two(2);
    EXPECT_LOAM_ERROR(set.read(set.tokens() - 1, two), ErrorCode::kInvalidArgument, "token set");
    EXPECT_LOAM_ERROR(set.read(-1, two), ErrorCode::kInvalidArgument, "token set");
    EXPECT_LOAM_ERROR(set.document_of(set.tokens()), ErrorCode::kInvalidArgument, "token set");
    EXPECT_LOAM_ERROR(set.document_begin(201), ErrorCode::kInvalidArgument, "token set");
  }
}

TEST(TokenShard, NothingIsThereBeforeFinish) {
  const TempDir directory;
  {
    TokenSetWriter writer(directory / "s", info_for(10), 2);
    for (int i = 0; i < 10; ++i) writer.add(Ids{1, 2}, 1);
    EXPECT_FALSE(std::filesystem::exists(directory / "s"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(TokenShard, RefusesWhatASetCannotHold) {
  const TempDir directory;
  TokenSetWriter writer(directory / "s", info_for(10));
  EXPECT_LOAM_ERROR(writer.add({}, 0), ErrorCode::kInvalidArgument, "without tokens");
  EXPECT_LOAM_ERROR(writer.add(Ids{10}, 0), ErrorCode::kInvalidArgument, "id 10 is outside the vocabulary of 10");
  EXPECT_LOAM_ERROR(writer.add(Ids{-1}, 0), ErrorCode::kInvalidArgument, "id -1");
  EXPECT_LOAM_ERROR(writer.finish(), ErrorCode::kInvalidArgument, "no documents");
  write_set(directory / "there", {{1}});
  EXPECT_LOAM_ERROR(write_set(directory / "there", {{1}}), ErrorCode::kAlreadyExists, "there");
}

TEST(TokenShard, FingerprintFollowsContents) {
  const TempDir directory;
  write_set(directory / "a", {{1, 2}, {3}});
  write_set(directory / "b", {{1, 2}, {3}});
  write_set(directory / "c", {{1, 2}, {4}});
  EXPECT_EQ(TokenSet(directory / "a").fingerprint(), TokenSet(directory / "b").fingerprint());
  EXPECT_NE(TokenSet(directory / "a").fingerprint(), TokenSet(directory / "c").fingerprint());
}

TEST(TokenShard, AShardThatIsCutWhileInUseIsNamed) {
  const TempDir directory;
  write_set(directory / "s", std::vector<Ids>(4000, Ids(10, 7)));
  const TokenSet set(directory / "s");
  std::filesystem::resize_file(directory / "s" / "shard-00000.tok", 4096);
  EXPECT_LOAM_ERROR(read_all(set), ErrorCode::kIo, "shard-00000.tok: it was cut");
  EXPECT_LOAM_ERROR(set.document_of(39'999), ErrorCode::kIo, "shard-00000.tok: it was cut");
  EXPECT_LOAM_ERROR(set.document_begin(3999), ErrorCode::kIo, "shard-00000.tok: it was cut");
  Ids first(10);
  set.read(0, first);
  EXPECT_EQ(first, Ids(10, 7));
}

class HostileShard : public ::testing::Test {
 protected:
  void SetUp() override {
    write_set(directory_ / "s", {{1, 2, 3}, {4, 5}, {6, 7, 8, 9}}, 10);
    good_ = read_file(shard());
  }
  Path shard() const { return directory_ / "s" / "shard-00000.tok"; }
  void expect_refused(const std::string& bytes, const std::string& what) {
    write_file_atomic(shard(), bytes);
    EXPECT_LOAM_ERROR(TokenSet(directory_ / "s"), ErrorCode::kBadFormat, what);
  }
  template <class T>
  std::string with(size_t at, T value) {
    std::string bytes = good_;
    put(bytes, at, value);
    return bytes;
  }
  TempDir directory_;
  std::string good_;
};

TEST_F(HostileShard, HeaderAndSizes) {
  expect_refused("", "too short for a header");
  expect_refused(good_.substr(0, 63), "too short for a header");
  expect_refused(with<char>(0, 'X'), "LOAMTOK1");
  expect_refused(with<uint32_t>(8, 3), "3 bytes a token");
  expect_refused(with<uint64_t>(16, 0), "0 tokens");
  expect_refused(with<uint64_t>(16, ~uint64_t{0}), "tokens and");
  expect_refused(with<uint64_t>(16, uint64_t{1} << 63), "tokens and");
  expect_refused(with<uint64_t>(16, 13), "its header makes");
  expect_refused(with<uint64_t>(24, 0), "0 documents");
  expect_refused(with<uint64_t>(24, 10), "10 documents");
  expect_refused(with<uint64_t>(24, uint64_t{1} << 61), "documents");
  expect_refused(with<uint64_t>(24, 4), "its header makes");
  expect_refused(good_ + '\0', "its header makes");
  expect_refused(with<uint32_t>(8, 4), "its header makes");
  for (size_t size = 0; size < good_.size(); ++size) expect_refused(good_.substr(0, size), "");
}

TEST_F(HostileShard, DocumentOffsets) {
  const size_t begins = good_.size() - 24;
  expect_refused(with<uint64_t>(begins, 1), "does not begin at 0");
  expect_refused(with<uint64_t>(begins + 8, 0), "document 1 begins at token 0");
  expect_refused(with<uint64_t>(begins + 8, 5), "document 2 begins at token 5");
  expect_refused(with<uint64_t>(begins + 16, 9), "document 2 begins at token 9");
  expect_refused(with<uint64_t>(begins + 16, ~uint64_t{0}), "document 2");
}

TEST_F(HostileShard, ContentsAreForVerify) {
  write_file_atomic(shard(), with<uint16_t>(64, 9));
  EXPECT_LOAM_ERROR(TokenSet(directory_ / "s").verify(), ErrorCode::kBadFormat, "the hash differs");
  // An id past the vocabulary, with a hash that agrees.
  std::string bytes = with<uint16_t>(64, 10);
  put(bytes, 32, hash64(std::string_view(bytes).substr(64)));
  write_file_atomic(shard(), bytes);
  EXPECT_LOAM_ERROR(TokenSet(directory_ / "s").verify(), ErrorCode::kBadFormat, "id 10 is outside");
}

TEST_F(HostileShard, Index) {
  const Path path = directory_ / "s" / "index.json";
  const Json good = Json::parse(read_file(path));
  const auto expect = [&](const std::string& key, Json value, const std::string& what) {
    Json changed = good;
    changed[key] = std::move(value);
    write_file_atomic(path, changed.dump());
    EXPECT_LOAM_ERROR(TokenSet(directory_ / "s"), ErrorCode::kBadFormat, what);
  };
  expect("format", "other", "not a token set");
  expect("format", 1, "'format' is not a string");
  expect("version", 2, "version 2");
  expect("vocab_size", 0, "'vocab_size'");
  expect("vocab_size", int64_t{1} << 40, "do not fit");
  expect("vocab_size", 70'000, "not what the index says");
  expect("end_of_text", 10, "do not fit");
  expect("tokens", 10, "not the sums");
  expect("documents", 2, "not the sums");
  expect("text_bytes", -1, "'text_bytes'");
  expect("shards", Json::array(), "'shards'");
  expect("shards", Json::Array{5}, "'file'");
  expect("shards", Json::Array{Json::Object{{"file", "../s/shard-00000.tok"}, {"tokens", 9}, {"documents", 3}}},
         "beside it");
  expect("shards", Json::Array{Json::Object{{"file", "shard-00000.tok"}, {"tokens", 8}, {"documents", 3}}},
         "index says");
  write_file_atomic(path, "[]");
  EXPECT_LOAM_ERROR(TokenSet(directory_ / "s"), ErrorCode::kBadFormat, "'format'");
  std::filesystem::remove(path);
  EXPECT_LOAM_ERROR(TokenSet(directory_ / "s"), ErrorCode::kNotFound, "index.json");
}

}  // namespace
}  // namespace loam
