#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include "loam/base/file.h"
#include "loam/base/philox.h"
#include "tests/harness/expect_error.h"
#include "tests/harness/temp_dir.h"

namespace loam {
namespace {

using testing::TempDir;

std::string gzip_member(const std::string& text) {
  z_stream stream = {};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string zstd_frame(const std::string& text, int window_log = 0) {
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, window_log);
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  std::string out(ZSTD_compressBound(text.size()) + 64, '\0');
  ZSTD_outBuffer to = {out.data(), out.size(), 0};
  // Two calls: the size is not known at the first, so that the frame's header states the window asked for.
  ZSTD_inBuffer from = {text.data(), text.size(), 0};
  ZSTD_compressStream2(context, &to, &from, ZSTD_e_flush);
  EXPECT_EQ(ZSTD_compressStream2(context, &to, &from, ZSTD_e_end), 0u);
  ZSTD_freeCCtx(context);
  out.resize(to.pos);
  return out;
}

// Letters that do not compress to nothing.
std::string sample(int64_t size, uint64_t site) {
  const PhiloxStream random{5, site};
  std::string text(size, '\0');
  for (int64_t i = 0; i < size; ++i) text[i] = static_cast<char>('a' + random.below(i, 20));
  return text;
}

std::string read_back(const Path& path, const std::string& bytes) {
  write_file_atomic(path, bytes);
  return read_all(*open_input(path));
}

TEST(Input, PlainFilesAreUntouched) {
  const TempDir dir;
  for (const std::string& text : {std::string(), std::string("a"), std::string("\x1f\x8b", 2), sample(600'000, 0)}) {
    EXPECT_EQ(read_back(dir / "a", text), text);
  }
  EXPECT_LOAM_ERROR(open_input(dir / "none"), ErrorCode::kNotFound, "/none");
}

// Fault 19: every member is read, also an empty one.
TEST(Input, GzipReadsAllMembers) {
  const TempDir dir;
  const std::string a = sample(500'000, 1), b = sample(3, 2);
  EXPECT_EQ(read_back(dir / "a", gzip_member(a)), a);
  EXPECT_EQ(read_back(dir / "a", gzip_member(a) + gzip_member("") + gzip_member(b) + gzip_member("")), a + b);
  EXPECT_EQ(read_back(dir / "a", gzip_member("")), "");
  std::string many, expected;
  for (int i = 0; i < 2000; ++i) {
    many += gzip_member(std::to_string(i));
    expected += std::to_string(i);
  }
  EXPECT_EQ(read_back(dir / "a", many), expected);
  EXPECT_EQ(read_back(dir / "a", gzip_member(a) + std::string(1000, '\0')), a);  // a tape's padding
}

TEST(Input, ZstdReadsAllFrames) {
  const TempDir dir;
  const std::string a = sample(500'000, 3), b = sample(3, 4);
  const std::string skippable("\x50\x2a\x4d\x18\x04\x00\x00\x00skip", 12);
  EXPECT_EQ(read_back(dir / "a", zstd_frame(a)), a);
  EXPECT_EQ(read_back(dir / "a", zstd_frame(a) + zstd_frame("") + zstd_frame(b)), a + b);
  EXPECT_EQ(read_back(dir / "a", skippable + zstd_frame(b) + skippable), b);
}

TEST(Input, ZstdWindowsUpTo128MiB) {
  const TempDir dir;
  const std::string text = sample(1000, 5);
  EXPECT_EQ(read_back(dir / "a", zstd_frame(text, 27)), text);
  EXPECT_LOAM_ERROR(read_back(dir / "a", zstd_frame(text, 28)), ErrorCode::kBadFormat, "memory");
}

// What comes before the fault is delivered; then the error tells where it is.
void expect_fault(const Path& path, const std::string& bytes, const std::string& before, const std::string& message) {
  write_file_atomic(path, bytes);
  const auto source = open_input(path);
  std::string text;
  try {
    char buffer[777];
    while (const int64_t got = source->read(buffer)) text.append(buffer, got);
    ADD_FAILURE() << "a clean end after " << text.size() << " bytes; expected: " << message;
  } catch (const Error& error) {
    EXPECT_STREQ(error_code_name(error.code()), error_code_name(ErrorCode::kBadFormat));
    EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
  }
  EXPECT_TRUE(text.starts_with(before)) << text.size() << " bytes came, " << before.size() << " expected";
}

TEST(Input, TrailingGarbageIsReported) {
  const TempDir dir;
  const std::string a = sample(100'000, 6), gz = gzip_member(a), zst = zstd_frame(a);
  expect_fault(dir / "a", gz + "garbage", a, fmt::format("after the last gzip member at byte {}", gz.size()));
  expect_fault(dir / "a", gz + "\x1f" + "garbage", a, fmt::format("after the last gzip member at byte {}", gz.size()));
  expect_fault(dir / "a", gz + std::string(3, '\0') + "g", a, fmt::format("at byte {}", gz.size() + 3));
  expect_fault(dir / "a", zst + "garbage", a, fmt::format("after the last zstd frame at byte {}", zst.size()));
}

TEST(Input, TruncationIsReportedWithTheOffset) {
  const TempDir dir;
  const std::string a = sample(100'000, 7), b = sample(50'000, 8);
  for (const bool zstd : {false, true}) {
    const std::string first = zstd ? zstd_frame(a) : gzip_member(a), second = zstd ? zstd_frame(b) : gzip_member(b);
    const std::string whole = first + second;
    for (const size_t cut : {1, 3, 7, 8, 100, 10'000}) {
      expect_fault(dir / "a", whole.substr(0, whole.size() - cut), a,
                   fmt::format("truncated {} data: the file ends inside a {} at byte {}", zstd ? "zstd" : "gzip",
                               zstd ? "frame" : "member", whole.size() - cut));
    }
  }
}

TEST(Input, DamageIsReported) {
  const TempDir dir;
  const std::string a = sample(100'000, 9);
  std::string gz = gzip_member(a), zst = zstd_frame(a);
  gz[gz.size() - 6] ^= 1;  // the member's CRC
  expect_fault(dir / "a", gz, a, "damaged gzip data");
  for (size_t i = zst.size() / 2; i < zst.size() / 2 + 64; ++i) zst[i] ^= 0x55;
  expect_fault(dir / "a", zst, "", "damaged zstd data");
}

std::vector<std::string> lines_of(const Path& path) {
  LineReader reader(open_input(path));
  std::vector<std::string> lines;
  for (std::string line; reader.next(line);) {
    lines.push_back(line);
    EXPECT_EQ(reader.line_number(), static_cast<int64_t>(lines.size()));
  }
  std::string line;
  EXPECT_FALSE(reader.next(line));
  return lines;
}

TEST(LineReader, CutsAtNewlines) {
  const TempDir dir;
  using Lines = std::vector<std::string>;
  const auto lines = [&](const std::string& text) {
    write_file_atomic(dir / "a", text);
    return lines_of(dir / "a");
  };
  EXPECT_EQ(lines(""), Lines{});
  EXPECT_EQ(lines("\n"), Lines{""});
  EXPECT_EQ(lines("a\n\nb"), (Lines{"a", "", "b"}));
  EXPECT_EQ(lines("a\r\nb\n"), (Lines{"a\r", "b"}));
  const std::string large = sample(1'000'000, 10);
  EXPECT_EQ(lines(large + "\n" + large), (Lines{large, large}));
  EXPECT_EQ(lines(gzip_member("a\nb") + gzip_member("c\n")), (Lines{"a", "bc"}));
}

TEST(LineReader, LimitsALineAndKeepsWhatIsGood) {
  const TempDir dir;
  write_file_atomic(dir / "a", "1234\n12345\n");
  LineReader reader(open_input(dir / "a"), 4);
  std::string line;
  EXPECT_TRUE(reader.next(line));
  EXPECT_LOAM_ERROR(reader.next(line), ErrorCode::kBadFormat, "/a: line 2 is longer than 4 bytes");

  const std::string gz = gzip_member("one\ntwo\nthree\n");
  write_file_atomic(dir / "b", gz.substr(0, gz.size() - 4));
  LineReader cut(open_input(dir / "b"));
  for (const char* expected : {"one", "two", "three"}) {
    ASSERT_TRUE(cut.next(line));
    EXPECT_EQ(line, expected);
  }
  EXPECT_LOAM_ERROR(cut.next(line), ErrorCode::kBadFormat, "truncated gzip data");
}

TEST(Input, ANamePromisesWhatTheFileMustHold) {
  const TempDir dir;
  for (const std::string name : {"a.gz", "a.zst"}) {
    const std::string whole = name == "a.gz" ? gzip_member("text") : zstd_frame("text");
    EXPECT_EQ(read_back(dir / name, whole), "text");
    for (const size_t cut : {0, 1, 2, 3}) {
      write_file_atomic(dir / name, whole.substr(0, cut));
      const auto read = [&] { return read_all(*open_input(dir / name)); };
      EXPECT_LOAM_ERROR(read(), ErrorCode::kBadFormat, name);
    }
  }
}

}  // namespace
}  // namespace loam
