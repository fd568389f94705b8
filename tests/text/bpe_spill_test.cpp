// Training in bounded memory: counts on disk, what does not fit, and going on after the process was killed.
#include <gtest/gtest.h>

#include "loam/base/log.h"
#include "loam/text/count_store.h"
#include "loam/text/merge_learner.h"
#include "loam/text/piece_choice.h"
#include "tests/harness/expect_error.h"
#include "tests/harness/temp_dir.h"
#include "tests/harness/write_quickly.h"
#include "tests/text/text_testing.h"

namespace loam {
namespace {

using testing::as_bytes;
using testing::count_pieces;
using testing::random_text;
using testing::slow_train;

constexpr int64_t kMerges = 120;

class Spill : public ::testing::Test {
 protected:
  Spill() {
    for (uint64_t seed = 0; seed < 40; ++seed) documents_.push_back(random_text(testing::hard_parts(), 60, seed));
  }
  BpeTrainOptions options(int64_t memory, int threads = 1) {
    BpeTrainOptions options;
    options.vocab_size = 256 + kMerges;
    options.threads = threads;
    options.memory = memory;
    options.directory = directory_ / "counts";
    return options;
  }
  std::vector<Path> files() const {
    std::vector<Path> found;
    if (!std::filesystem::exists(directory_ / "counts")) return found;
    for (const auto& entry : std::filesystem::directory_iterator(directory_ / "counts")) found.push_back(entry.path());
    std::sort(found.begin(), found.end());
    return found;
  }

  testing::TempDir directory_;
  std::vector<std::string> documents_;
};

TEST_F(Spill, CountsOnDiskGiveTheSameMerges) {
  const std::vector<testing::ByteMerge> wanted = slow_train(count_pieces(documents_), kMerges);
  ASSERT_EQ(wanted.size(), static_cast<size_t>(kMerges));
  for (const int threads : {1, 2, 3}) {
    BpeTrainer trainer(options(800'000, threads));
    int spilled = 0;
    for (const std::string& document : documents_) {
      trainer.add_document(document, int64_t{1} << 40);  // more than 32 bits hold, in the files too
      trainer.add_document(random_text({"ab ", "cd "}, 5, 1), 0);
      if (spilled < 7) {
        trainer.checkpoint(Json(spilled));
        ++spilled;
      }
    }
    EXPECT_EQ(as_bytes(trainer.train()), wanted) << threads;
    EXPECT_EQ(trainer.dropped().pieces, 0);
    EXPECT_EQ(trainer.distinct_pieces(), static_cast<int64_t>(count_pieces(documents_).size()));
    trainer.discard();
    EXPECT_TRUE(files().empty());
  }
}

TEST_F(Spill, FullTablesGoToDiskByThemselves) {
  BpeTrainer trainer(options(1));
  for (const std::string& document : documents_) trainer.add_document(document);
  EXPECT_TRUE(trainer.has_spilled());
  EXPECT_EQ(files().size(), documents_.size());
  EXPECT_EQ(trainer.memory_used(), 16 - 8);  // of an empty table
  // The whole order of frequency, as the pieces counted by the plain reference have it.
  std::vector<std::pair<int64_t, std::string>> wanted;
  for (const auto& [piece, count] : count_pieces(documents_)) {
    if (count >= 2) wanted.emplace_back(-count, piece);
  }
  std::sort(wanted.begin(), wanted.end());
  for (const size_t most : {size_t{10}, wanted.size()}) {
    const std::vector<PieceCount> found = trainer.most_frequent(static_cast<int64_t>(most));
    ASSERT_EQ(found.size(), most);
    for (size_t i = 0; i < most; ++i) {
      EXPECT_EQ(std::pair(-found[i].count, found[i].piece), wanted[i]);
    }
  }
  BpeTrainOptions nowhere = options(1);
  nowhere.directory.clear();
  BpeTrainer without(nowhere);
  EXPECT_LOAM_ERROR(without.add_document("a b"), ErrorCode::kOutOfMemory, "no directory");
}

TEST_F(Spill, ResumedAfterTheLastCheckpointIsTheSame) {
  BpeTrainOptions given = options(1 << 30, 2);
  given.source = Json::parse(R"({"inputs": "a.txt"})");
  const std::vector<Merge> wanted = testing::train_on(documents_, kMerges);
  for (const size_t kept : {size_t{0}, size_t{1}, size_t{17}, documents_.size()}) {
    {
      BpeTrainer killed(given);
      for (size_t i = 0; i < documents_.size(); ++i) {
        killed.add_document(documents_[i]);
        if (i + 1 == kept) killed.checkpoint(Json(static_cast<int64_t>(kept)));
      }
    }
    BpeTrainer trainer(given);
    const std::optional<Json> position = trainer.resume();
    ASSERT_EQ(position.has_value(), kept > 0);
    if (position) {
      EXPECT_EQ(position->as_int(), static_cast<int64_t>(kept));
    }
    for (size_t i = kept; i < documents_.size(); ++i) trainer.add_document(documents_[i]);
    EXPECT_EQ(trainer.train(), wanted);
    int64_t bytes = 0;
    for (const std::string& document : documents_) bytes += static_cast<int64_t>(document.size());
    EXPECT_EQ(trainer.total_bytes(), bytes);
    trainer.discard();
  }
}

// What was written after the last checkpoint belongs to documents that are counted again.
TEST_F(Spill, RunsAfterTheLastCheckpointDoNotCount) {
  {
    BpeTrainer killed(options(1));
    killed.add_document("ab ab ab");
    killed.checkpoint(Json(1));
    killed.add_document("cd cd cd");
    killed.add_document("ef ef ef");
    EXPECT_EQ(files().size(), 4u);
  }
  BpeTrainer trainer(options(1 << 30));
  ASSERT_TRUE(trainer.resume());
  EXPECT_EQ(files().size(), 2u);
  EXPECT_EQ(trainer.distinct_pieces(), 2);  // "ab", " ab"
}

TEST_F(Spill, CountsOfSomethingElseAreRefused) {
  const auto with = [this](const char* source) {
    BpeTrainOptions given = options(1 << 20);
    given.source = Json::parse(source);
    return given;
  };
  {
    BpeTrainer trainer(with(R"({"inputs": "a.txt", "text_key": "text"})"));
    trainer.add_document("ab ab");
    trainer.checkpoint(Json(1));
    BpeTrainer second(with(R"({"inputs": "a.txt", "text_key": "text"})"));
    EXPECT_LOAM_ERROR(second.resume(), ErrorCode::kUnavailable, "another process");
  }
  const auto refused = [](const BpeTrainOptions& given, const char* message) {
    BpeTrainer trainer(given);
    EXPECT_LOAM_ERROR(trainer.resume(), ErrorCode::kInvalidArgument, message);
  };
  const char* same = R"({"inputs": "a.txt", "text_key": "text"})";
  refused(with(R"({"inputs": "b.txt", "text_key": "text"})"), "inputs \"a.txt\", not \"b.txt\"");
  BpeTrainOptions pattern = with(same), specials = with(same), larger = with(same);
  pattern.pretokenizer = parse_pretokenizer("cl100k");
  refused(pattern, "pattern");
  specials.special_tokens = {"<s>"};
  refused(specials, "special_tokens");
  // The size of the vocabulary and the like are of no consequence to counts.
  larger.vocab_size = 5000;
  larger.min_frequency = 1;
  BpeTrainer good(larger);
  EXPECT_TRUE(good.resume());
}

TEST_F(Spill, DamagedFilesAreNamedAndNothingOfOthersIsRemoved) {
  {
    BpeTrainer trainer(options(1 << 20));
    trainer.add_document("low lower lowest low");
    trainer.checkpoint(Json(1));
  }
  const Path run = directory_ / "counts" / "run-000000", manifest = directory_ / "counts" / "manifest.json";
  const auto train_with = [&](const Path& file, const std::string& bytes) {
    testing::write_quickly(file, bytes);
    BpeTrainer trainer(options(1 << 20));
    trainer.resume();
    trainer.train();
  };
  set_log_level(LogLevel::kError);
  const std::string bytes = read_file(run);
  for (size_t at = 0; at < bytes.size(); ++at) {
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ 0x81);
    EXPECT_LOAM_ERROR(train_with(run, changed), ErrorCode::kBadFormat, "run-000000");
    EXPECT_LOAM_ERROR(train_with(run, bytes.substr(0, at)), ErrorCode::kBadFormat, "run-000000");
  }
  EXPECT_LOAM_ERROR(train_with(run, bytes + "a"), ErrorCode::kBadFormat, "run-000000");
  EXPECT_NO_THROW(train_with(run, bytes));
  for (const char* text : {"", "[]", "{}", R"({"format": "loam counted pieces", "version": 2, "runs": []})",
                           R"({"format": "loam counted pieces", "version": 1, "runs": [{"number": -1}]})"}) {
    EXPECT_LOAM_ERROR(train_with(manifest, text), ErrorCode::kBadFormat, "manifest.json");
  }
  write_file_atomic(directory_ / "counts" / "letter.txt", "Dear");
  EXPECT_LOAM_ERROR(CountStore(directory_ / "counts").remove(), ErrorCode::kAlreadyExists, "letter.txt");
  EXPECT_EQ(read_file(directory_ / "counts" / "letter.txt"), "Dear");
  for (const char* name : {"run-1", "run-000001/step.bin", "run-log.txt", "manifest.json.bak",
                           ".run-000001.tmp-my notes", "manifest.json/x"}) {
    const Path counts = directory_ / "others", file = counts / name;
    std::filesystem::create_directories(file.parent_path());
    write_file_atomic(file, "Dear");
    EXPECT_LOAM_ERROR(CountStore(counts).remove(), ErrorCode::kAlreadyExists, "others: holds ") << name;
    EXPECT_EQ(read_file(file), "Dear");
    std::filesystem::remove_all(counts);
  }
  set_log_level(LogLevel::kInfo);
}

TEST_F(Spill, ManyRunsBecomeOne) {
  CountStore store(directory_ / "counts");
  std::map<std::string, int64_t> wanted;
  for (int i = 0; i < 140; ++i) {
    std::vector<PieceCounter> tables(2);
    for (int k = 0; k < 5; ++k) {
      const std::string piece = std::to_string((i * 7 + k) % 300) + std::string(k % 2, '\0');
      tables[k % 2].add(piece, i + 1);
      wanted[piece] += i + 1;
    }
    store.add_run(tables);
    EXPECT_TRUE(store.has_unsaved_runs());
    store.save(Json(i));
    EXPECT_FALSE(store.has_unsaved_runs());
    ASSERT_LE(files().size(), 65u);
  }
  std::vector<std::pair<std::string, int64_t>> found;
  store.for_each([&](std::string_view piece, int64_t count) { found.emplace_back(piece, count); });
  EXPECT_EQ(found, (std::vector<std::pair<std::string, int64_t>>(wanted.begin(), wanted.end())));
}

// The rarest pieces are left out, of equally rare ones some: by their bytes, so that neither the order nor the threads
// matter. The most frequent ones that fit are all there.
TEST_F(Spill, WhatDoesNotFitIsLeftOutWithAWarning) {
  constexpr int64_t kPositions = 400'000 * 3 / 4 / MergeLearner::kBytesAPosition;  // a byte each, and one a piece
  std::vector<std::string> words, reversed;                                        // "w", " w" and four digits
  for (int i = 0; i < 3000; ++i) {
    for (int k = 0; k < 1 + (i % 3); ++k) words.push_back(fmt::format("w{:04} ", i * 7919 % 10000));
  }
  reversed.assign(words.rbegin(), words.rend());
  set_log_level(LogLevel::kWarn);
  ::testing::internal::CaptureStderr();
  std::vector<Merge> merges;
  for (const int threads : {1, 2}) {
    for (const auto& each : {words, reversed}) {
      BpeTrainer trainer(options(400'000, threads));
      trainer.add_documents({each.begin(), each.end()});
      const std::vector<Merge> some = trainer.train();
      if (merges.empty()) merges = some;
      EXPECT_EQ(some, merges);
      EXPECT_EQ(trainer.distinct_pieces() - trainer.dropped().pieces, 2 + (kPositions - 2 - 3) / 5);
    }
  }
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("distinct pieces do not fit into 400 kB of memory; the rarest are left out"), std::string::npos)
      << log;
  BpeTrainer huge(options(400'000));
  huge.add_document(std::string(50'000, 'a'));
  ::testing::internal::CaptureStderr();
  EXPECT_LOAM_ERROR(huge.train(), ErrorCode::kInvalidArgument, "the longest of 50000 bytes");
  ::testing::internal::GetCapturedStderr();
  set_log_level(LogLevel::kInfo);
}

TEST(PieceChoice, TheMostFrequentPiecesThatFit) {
  std::map<std::string, int64_t> counts;
  for (int i = 0; i < 5000; ++i) counts["p" + std::to_string(10000 + i)] = 1 + i % 5 + (i % 50 == 0 ? 1'000'000 : 0);
  const auto all = [&](const PieceVisitor& visit) {
    for (const auto& [piece, count] : counts) visit(piece, count);
  };
  for (const int64_t positions : {0, 6, 699, 700, 9'000, 15'000, 34'999, 35'000}) {  // of 7 for each
    const PieceChoice choice(all, positions);
    int64_t taken = 0, least_taken = INT64_MAX, most_left = 0;
    all([&](std::string_view piece, int64_t count) {
      if (choice.takes(piece, count)) {
        ++taken;
        least_taken = std::min(least_taken, count);
      } else {
        most_left = std::max(most_left, count);
      }
    });
    EXPECT_EQ(choice.chosen().pieces, taken);
    EXPECT_EQ(choice.chosen().positions, 7 * taken);
    EXPECT_LE(7 * taken, positions);
    EXPECT_GE(7 * taken, positions - 7 * 5) << "the last bucket of hashes holds few";
    EXPECT_LE(most_left, least_taken);
    EXPECT_EQ(choice.all().pieces, 5000);
  }
}

TEST(PieceCounter, CountsAsAMapDoes) {
  PieceCounter counter, other;
  std::map<std::string, int64_t> wanted;
  const PhiloxStream random{3, 0};
  for (uint64_t i = 0; i < 20000; ++i) {
    const std::string piece =
        testing::random_bytes(static_cast<int>(1 + random.below(2 * i, 20)), random.below(2 * i + 1, 3000));
    (i % 2 ? counter : other).add(piece, static_cast<int64_t>(i));
    wanted[piece] += static_cast<int64_t>(i);
  }
  counter.add_all(other);
  std::vector<std::pair<std::string, int64_t>> found;
  for (const uint32_t record : counter.sorted()) found.emplace_back(counter.text(record), counter.count(record));
  EXPECT_EQ(found, (std::vector<std::pair<std::string, int64_t>>(wanted.begin(), wanted.end())));
  EXPECT_EQ(counter.size(), static_cast<int64_t>(wanted.size()));
}

}  // namespace
}  // namespace loam
