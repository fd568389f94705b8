#include "loam/data/document.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "loam/base/log.h"
#include "tests/harness/expect_error.h"
#include "tests/harness/temp_dir.h"

namespace loam {
namespace {

using testing::TempDir;

class Documents : public ::testing::Test {
 protected:
  void SetUp() override {
    level_ = log_level();
    set_log_level(LogLevel::kOff);
  }
  void TearDown() override { set_log_level(level_); }

  Path file(const std::string& name, std::string_view bytes) {
    write_file_atomic(directory_ / name, bytes);
    return directory_ / name;
  }
  std::vector<Document> read(std::vector<Path> inputs, DocumentReaderOptions options = {}) {
    DocumentReader reader(std::move(inputs), std::move(options));
    std::vector<Document> documents;
    Document document;
    while (reader.next(document)) documents.push_back(document);
    bad_ = reader.bad_lines();
    bytes_ = reader.bytes_read();
    input_bytes_ = reader.input_bytes();
    return documents;
  }
  std::vector<std::string> texts(std::vector<Path> inputs, DocumentReaderOptions options = {}) {
    std::vector<std::string> texts;
    for (const Document& document : read(std::move(inputs), std::move(options))) texts.push_back(document.text);
    return texts;
  }

  TempDir directory_;
  int64_t bad_ = 0, bytes_ = 0, input_bytes_ = 0;
  LogLevel level_;
};

using Texts = std::vector<std::string>;

TEST_F(Documents, JsonLines) {
  const std::string bytes =
      "{\"text\": \"one\\ntwo\", \"id\": \"a-1\", \"metadata\": {\"lang\": \"en\"}, \"url\": \"http://x\"}\r\n"
      "\n"
      "{\"id\": 17, \"text\": \"\"}\n"
      "  \t\n"
      "{\"text\": \"last\"}";
  const Path path = file("d.jsonl", bytes);
  const auto documents = read({path});
  ASSERT_EQ(documents.size(), 3u);
  EXPECT_EQ(documents[0].text, "one\ntwo");
  EXPECT_EQ(documents[0].id, "a-1");
  EXPECT_EQ(documents[0].metadata.dump(), R"({"lang":"en","url":"http://x"})");
  EXPECT_EQ(documents[1].id, "17");
  EXPECT_EQ(documents[1].text, "");
  EXPECT_EQ(documents[1].metadata.dump(), "{}");
  EXPECT_EQ(documents[2].id, path.string() + ":5");
  EXPECT_EQ(bad_, 0);
  EXPECT_EQ(bytes_, static_cast<int64_t>(bytes.size()));
  EXPECT_EQ(input_bytes_, static_cast<int64_t>(bytes.size()));
}

// The same document from the fast parser and, forced by a lone surrogate, from the other one.
TEST_F(Documents, AnIdIsExactOrABadLine) {
  const auto documents = read({file("d.jsonl",
                                    "{\"text\": \"a\", \"id\": 9007199254740993}\n"
                                    "{\"text\": \"b\", \"id\": 18446744073709551615}\n"
                                    "{\"text\": \"c\", \"id\": 18446744073709551617}\n"
                                    "{\"text\": \"d\", \"id\": -9223372036854775809}\n"
                                    "{\"text\": \"e\", \"id\": 1.5}\n")});
  ASSERT_EQ(documents.size(), 3u);
  EXPECT_EQ(documents[0].id, "9007199254740993");
  EXPECT_EQ(documents[1].id, "18446744073709551615");
  EXPECT_EQ(documents[2].id, "1.5");
  EXPECT_EQ(bad_, 2);
}

TEST_F(Documents, ATokenShardIsNoText) {
  for (const char* name : {"shard-00000.tok", "shard.jsonl"}) {
    EXPECT_LOAM_ERROR(read({file(name, std::string("LOAMTOK1\2\0\0\0", 12))}), ErrorCode::kBadFormat,
                      std::string(name) + ": a token shard");
  }
  EXPECT_EQ(read({file("a.txt", "LOAMTOK")}).at(0).text, "LOAMTOK");
}

TEST_F(Documents, MetadataKeepsEveryKindOfValue) {
  const std::string values =
      R"("a":null,"b":[true,false,[]],"c":-9223372036854775808,"d":18446744073709551615,"e":0.1,"f":{"g":"\u00e9\n"},)";
  const std::string kept =
      R"({"a":null,"b":[true,false,[]],"c":-9223372036854775808,"d":1.8446744073709552e+19,"e":0.1,"f":{"g":"é\n"},)";
  const Path path = file("d.jsonl", "{" + values + R"("h":"x","id":2.5,"text":"one","text":"two"})" + "\n{" + values +
                                        R"("h":"\ud800","id":2.5,"text":"one","text":"two"})");
  const auto documents = read({path});
  ASSERT_EQ(documents.size(), 2u);
  EXPECT_EQ(documents[0].metadata.dump(), kept + R"("h":"x"})");
  EXPECT_EQ(documents[1].metadata.dump(), kept + "\"h\":\"\uFFFD\"}");
  for (const Document& document : documents) {
    EXPECT_EQ(document.text, "two");  // of equal keys the last one counts
    EXPECT_EQ(document.id, "2.5");
  }
}

TEST_F(Documents, DeepNestingIsABadLine) {
  const auto nested = [](int depth) {
    return std::string(static_cast<size_t>(depth), '[') + std::string(static_cast<size_t>(depth), ']');
  };
  std::string bytes;
  for (const int depth : {10, 400, 510, 1000, 100'000}) bytes += R"({"text":"x","deep":)" + nested(depth) + "}\n";
  EXPECT_EQ(read({file("d.jsonl", bytes)}).size(), 3u);
  EXPECT_EQ(bad_, 2);
}

TEST_F(Documents, AnotherTextKey) {
  const Path path = file("d.json", "{\"text\":\"no\",\"content\":\"yes\"}\n");
  EXPECT_EQ(texts({path}, {.text_key = "content", .separator = "", .max_bad_share = 0.01}), Texts{"yes"});
}

TEST_F(Documents, LoneSurrogatesAndBadBytesBecomeReplacementCharacters) {
  const Path path = file("d.jsonl",
                         "{\"text\":\"ok\\ud800bad\"}\n{\"text\":\"\\udbc0\"}\n{\"text\":\"\\ud83d\\ude00\"}\n"
                         "{\"text\":\"a\xED\xA0\x80z\"}\n{\"text\":\"\xFF\"}\n");
  EXPECT_EQ(texts({path}), (Texts{"ok\uFFFDbad", "\uFFFD", "\U0001F600", "a\uFFFD\uFFFD\uFFFDz", "\uFFFD"}));
  EXPECT_EQ(bad_, 0);
}

TEST_F(Documents, BadLinesAreCountedAndSkipped) {
  using namespace std::string_view_literals;
  const Path path =
      file("d.jsonl",
           "{\"text\":\"good\"}\n{\"text\":\n[1]\n{\"txt\":\"x\"}\n{\"text\":\"a\",\"text\":5}\nplain words\n"
           "{\"text\":\"a\0b\"}\n\0\n{\"text\":\"good too\"}\n"sv);
  EXPECT_EQ(texts({path}), (Texts{"good", "good too"}));
  EXPECT_EQ(bad_, 7);
}

TEST_F(Documents, ABadLineIsReportedWithFileAndLine) {
  set_log_level(LogLevel::kWarn);
  const Path path = file("d.jsonl", "{\"text\":\"good\"}\n{\"text\":5}\n");
  ::testing::internal::CaptureStderr();
  texts({path});
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find(path.string() + ":2: bad line: 'text' is not a string"), std::string::npos) << said;
  ::testing::internal::CaptureStderr();
  texts({file("e.jsonl", "{\"text\":\"good\"}\n{bad\n")});
  const std::string again = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(again.find("e.jsonl:2: bad line: not JSON: byte 1: "), std::string::npos) << again;
}

TEST_F(Documents, AnotherReaderGoesOnFromAPosition) {
  const std::vector<Path> inputs = {file("a.jsonl", "{\"text\":\"1\"}\nbad\n{\"text\":\"2\"}\n"),
                                    file("b.txt", "3\n--\n4"), file("c.txt", ""),
                                    file("d.jsonl", "bad\n{\"text\":\"5\"}\n"), file("e.txt", "")};
  DocumentReaderOptions options;
  options.separator = "--";
  DocumentReader whole(inputs, options);
  Document document;
  for (int next = 1; next <= 6; ++next) {  // documents "1" to "5" in order; a reader at 0 to 5 of them
    DocumentReader rest(inputs, options);
    rest.go_to(whole.position());
    for (int i = next; i <= 5; ++i) {
      ASSERT_TRUE(rest.next(document));
      EXPECT_EQ(document.text, std::to_string(i));
    }
    EXPECT_FALSE(rest.next(document));
    EXPECT_EQ(rest.bad_lines(), 2);
    EXPECT_EQ(whole.next(document), next <= 5);
  }
  DocumentReader other({inputs[0]}, options);
  EXPECT_LOAM_ERROR(other.go_to({.input = 0, .documents = 3}), ErrorCode::kInvalidArgument, "document 3 of input 0");
  EXPECT_LOAM_ERROR(other.go_to({.input = 2}), ErrorCode::kInvalidArgument, "input 2 of 1");
}

// As in Python's json, and so in most programs that write such lines.
TEST_F(Documents, OfEqualKeysTheLastOneCounts) {
  const std::string line = R"({"id":"a","text":"one","id":"b","text":"two)";
  for (const std::string end : {"", "\\ud800"}) {  // by either parser
    const auto documents = read({file("d.jsonl", line + end + "\"}\n")});
    ASSERT_EQ(documents.size(), 1u);
    EXPECT_EQ(documents[0].id, "b");
    EXPECT_EQ(documents[0].text.substr(0, 3), "two");
  }
  EXPECT_EQ(texts({file("e.jsonl", R"({"text":5,"text":"x"})"
                                   "\n"
                                   R"({"text":"x","text":5})")}),
            Texts{"x"});
  EXPECT_EQ(bad_, 1);
}

TEST_F(Documents, ALineThatShouldBeAPairSaysWhatItLacks) {
  set_log_level(LogLevel::kWarn);
  const Path path = file("d.jsonl",
                         "{\"prompt\":\"a\",\"completion\":\"b\"}\n{\"prompt\":\"a\"}\n{\"completion\":\"b\"}\n"
                         "{\"prompt\":1,\"completion\":\"b\"}\n{\"prompt\":\"a\",\"completion\":1}\n{\"x\":1}\n");
  ::testing::internal::CaptureStderr();
  DocumentReaderOptions options;
  options.pairs = true;
  EXPECT_EQ(texts({path}, options), Texts{"b"});
  const std::string said = ::testing::internal::GetCapturedStderr();
  for (const char* part : {":2: bad line: there is no key 'completion'", ":3: bad line: there is no key 'prompt'",
                           ":4: bad line: no string under 'prompt'", ":5: bad line: 'completion' is not a string",
                           ":6: bad line: there is no key 'text'"}) {
    EXPECT_NE(said.find("d.jsonl" + std::string(part)), std::string::npos) << part << " in " << said;
  }
}

TEST_F(Documents, TooManyBadLinesAreAnError) {
  // 100 good lines, then bad ones: the second one of 102 passes 1 %.
  std::string bytes;
  for (int i = 0; i < 100; ++i) bytes += "{\"text\":\"x\"}\n";
  EXPECT_EQ(texts({file("one.jsonl", bytes + "bad\n")}).size(), 100u);
  EXPECT_EQ(bad_, 1);
  EXPECT_LOAM_ERROR(texts({file("two.jsonl", bytes + "bad\nbad\n")}), ErrorCode::kBadFormat, "two.jsonl:102: bad line");
  EXPECT_EQ(texts({directory_ / "two.jsonl"}, {.text_key = "text", .separator = "", .max_bad_share = 0.02}).size(),
            100u);
}

TEST_F(Documents, AFileWithBadLinesOnlyIsAnError) {
  const Path path = file("d.jsonl", "bad\n{\"txt\":\"x\"}\n");
  EXPECT_LOAM_ERROR(texts({path}), ErrorCode::kBadFormat, "d.jsonl: none of its 2 lines is a document");
  EXPECT_EQ(texts({file("empty.jsonl", "")}), Texts{});
}

TEST_F(Documents, PlainTextIsOneDocumentAFile) {
  using namespace std::string_view_literals;
  const std::string all(" a\r\n\0b\xFF\n\n"sv);
  const Path path = file("a.txt", all);
  const auto documents = read({path, file("b", "second"), file("empty.txt", "")});
  ASSERT_EQ(documents.size(), 2u);
  EXPECT_EQ(documents[0].text, all);  // to the byte
  EXPECT_EQ(documents[0].id, path.string() + ":1");
  EXPECT_EQ(documents[1].text, "second");
}

TEST_F(Documents, ASeparatorLineEndsADocument) {
  DocumentReaderOptions options;
  options.separator = "<|endoftext|>";
  const Path path = file("s.txt",
                         "<|endoftext|>\none\n\ntwo\n<|endoftext|>\r\n<|endoftext|>\n\nthree <|endoftext|>\n"
                         "<|endoftext|>\nfour\r\nlast\n");
  const auto documents = read({path}, options);
  ASSERT_EQ(documents.size(), 3u);
  EXPECT_EQ(documents[0].text, "one\n\ntwo");
  EXPECT_EQ(documents[0].id, path.string() + ":2");
  EXPECT_EQ(documents[1].text, "\nthree <|endoftext|>");
  EXPECT_EQ(documents[1].id, path.string() + ":7");
  EXPECT_EQ(documents[2].text, "four\r\nlast");
  EXPECT_EQ(documents[2].id, path.string() + ":10");
}

TEST_F(Documents, SeparatorsAtEveryPlace) {
  DocumentReaderOptions options;
  options.separator = "--";
  const auto of = [&](const std::string& bytes) { return texts({file("s.txt", bytes)}, options); };
  EXPECT_EQ(of("--\n--\n--"), Texts{});
  EXPECT_EQ(of("--\r\n--\r\n"), Texts{});
  EXPECT_EQ(of("--"), Texts{});
  EXPECT_EQ(of("a\n--"), Texts{"a"});
  EXPECT_EQ(of("--\na"), Texts{"a"});
  EXPECT_EQ(of(" --\n-- \n---"), Texts{" --\n-- \n---"});  // none of them is the line
  EXPECT_EQ(of("a\r\nb\r\n--\r\nc\r\n"), (Texts{"a\r\nb", "c"}));
  EXPECT_EQ(of("a\r\n--\nb\r\n"), (Texts{"a\r", "b\r"}));  // lines end in LF: the CR is text
}

// A limit in place of unbounded memory; a document of just that size passes.
TEST_F(Documents, DocumentsPastTheLimitAreAnError) {
  DocumentReaderOptions options;
  options.max_bytes = 200'000;
  const std::string fits(200'000, 'x'), more = fits + "y";
  const auto refused = [&](const Path& path, const std::string& message) {
    EXPECT_LOAM_ERROR(texts({path}, options), ErrorCode::kBadFormat, message);
  };
  EXPECT_EQ(texts({file("a.txt", fits)}, options), Texts{fits});
  refused(file("b.txt", more), "b.txt:1: a document of plain text has more than 200000 bytes");
  const std::string line = "{\"text\":\"" + fits.substr(11) + "\"}";
  EXPECT_EQ(texts({file("a.jsonl", line + "\n")}, options), Texts{fits.substr(11)});
  refused(file("b.jsonl", line + " \n"), "b.jsonl: line 1 is longer than 200000 bytes");
  options.separator = "--";
  const std::string two_lines = fits.substr(0, 100'000) + "\n" + fits.substr(100'001);
  EXPECT_EQ(texts({file("c.txt", two_lines + "\n--\n" + two_lines)}, options), (Texts{two_lines, two_lines}));
  refused(file("d.txt", "--\n" + two_lines + "\ny\n"), "d.txt:2: a document of plain text has more than 200000 bytes");
}

TEST_F(Documents, ByteOrderMarks) {
  using namespace std::string_view_literals;
  EXPECT_EQ(texts({file("a.jsonl", "\xEF\xBB\xBF{\"text\":\"x\"}\n")}), Texts{"x"});
  EXPECT_EQ(texts({file("a.txt", "\xEF\xBB\xBFx")}), Texts{"x"});
  for (const std::string_view mark : {"\xFF\xFE"sv, "\xFE\xFF"sv, "\xFF\xFE\0\0"sv, "\0\0\xFE\xFF"sv}) {
    for (const char* name : {"wide.txt", "wide.jsonl"}) {
      EXPECT_LOAM_ERROR(texts({file(name, std::string(mark) + "a\0")}), ErrorCode::kBadFormat,
                        std::string(name) + ": begins with a UTF-16");
    }
  }
}

std::string gzip(const std::string& bytes) {
  z_stream stream = {};
  deflateInit2(&stream, 6, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string zstd(const std::string& bytes) {
  std::string out(ZSTD_compressBound(bytes.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), bytes.data(), bytes.size(), 3));
  return out;
}

TEST_F(Documents, CompressedFilesByTheNameBelow) {
  const std::string a = "{\"text\":\"a\"}\n", b = "{\"text\":\"b\"}\n";
  EXPECT_EQ(texts({file("d.jsonl.gz", gzip(a) + gzip("") + gzip(b))}), (Texts{"a", "b"}));
  EXPECT_EQ(input_bytes_, 0);
  EXPECT_EQ(bytes_, static_cast<int64_t>(a.size() + b.size()));
  EXPECT_EQ(texts({file("d.json.zst", zstd(a) + zstd(b))}), (Texts{"a", "b"}));
  EXPECT_EQ(texts({file("d.txt.gz", gzip(a))}), Texts{a});
  const std::string whole = gzip(a + b);
  const Path cut = file("cut.jsonl.gz", whole.substr(0, whole.size() - 10));
  EXPECT_LOAM_ERROR(texts({cut}), ErrorCode::kBadFormat, "cut.jsonl.gz");
}

TEST_F(Documents, ProgressIsThatOfTheFilesThemselves) {
  std::string lines;
  for (int i = 0; i < 40000; ++i) lines += "{\"text\":\"" + std::to_string(i * 7919 % 100003) + "\"}\n";
  const std::vector<Path> inputs = {file("a.jsonl", lines), file("b.jsonl.gz", gzip(lines)),
                                    file("c.jsonl.zst", zstd(lines))};
  int64_t before = 0;
  for (const Path& input : inputs) {
    DocumentReader reader({input, inputs[0]}, {});
    const auto size = static_cast<int64_t>(std::filesystem::file_size(input));
    EXPECT_EQ(reader.file_bytes(), size + static_cast<int64_t>(lines.size()));
    EXPECT_EQ(reader.file_bytes_read(), 0);
    Document document;
    for (int i = 0; i < 40000; ++i) ASSERT_TRUE(reader.next(document));
    EXPECT_EQ(reader.file_bytes_read(), size);
    while (reader.next(document)) {
    }
    EXPECT_EQ(reader.file_bytes_read(), reader.file_bytes());
    DocumentReader second({input, inputs[0]}, {});
    second.go_to({.input = 1});
    EXPECT_EQ(second.file_bytes_read(), size);
    before += size;
  }
  EXPECT_EQ(DocumentReader(inputs, {}).file_bytes(), before);
  EXPECT_EQ(DocumentReader({inputs[0], "-"}, {}).file_bytes(), 0);
}

TEST_F(Documents, AMissingFileIsNamed) {
  EXPECT_LOAM_ERROR(texts({directory_ / "absent.txt"}), ErrorCode::kNotFound, "absent.txt");
}

// Runs `body` with standard input reading `path`.
template <class Body>
auto with_standard_input(const Path& path, Body&& body) {
  const int saved = ::dup(STDIN_FILENO), fd = ::open(path.c_str(), O_RDONLY);
  ::dup2(fd, STDIN_FILENO);
  ::close(fd);
  auto result = body();
  ::dup2(saved, STDIN_FILENO);
  ::close(saved);
  return result;
}

TEST_F(Documents, StandardInputIsRecognisedByItsFirstVisibleByte) {
  const auto from = [&](const std::string& bytes) {
    const Path path = file("stdin", bytes);
    return with_standard_input(path, [&] { return read({"-"}); });
  };
  const auto json = from(std::string(10'000, '\n') + "{\"text\":\"a\"}\n{\"text\":\"b\"}\n");
  ASSERT_EQ(json.size(), 2u);
  EXPECT_EQ(json[0].text, "a");
  EXPECT_EQ(json[1].id, "standard input:10002");
  const auto plain = from("  [{\n");
  ASSERT_EQ(plain.size(), 1u);
  EXPECT_EQ(plain[0].text, "  [{\n");
  EXPECT_EQ(input_bytes_, 0);
  EXPECT_TRUE(from("").empty());
  EXPECT_EQ(from(" \n").at(0).text, " \n");
}

}  // namespace
}  // namespace loam
