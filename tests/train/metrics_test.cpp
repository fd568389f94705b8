#include "loam/train/metrics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "loam/base/log.h"
#include "loam/base/plot.h"
#include "loam/train/tensorboard.h"
#include "tests/harness/expect_error.h"
#include "tests/harness/shared.h"
#include "tests/harness/temp_dir.h"

namespace loam {
namespace {

using testing::TempDir;

// Bytes that TensorBoard's own writer made (tests/fixtures/make_tensorboard_fixture.py).
TEST(Tensorboard, BytesEqualItsOwnWriter) {
  const std::string tag =
      "train/a name of more than one hundred and twenty-seven bytes, so that its length takes two bytes as a varint, "
      "and "
      "a little more than that";
  const std::string bytes =
      tfrecord(version_event(1700000000.25)) + tfrecord(restart_event(1700000000.5, 301)) +
      tfrecord(scalar_event(1700000001.75, 123456789, {{"train/loss", 2.71828}, {"train/lr", 0.0}, {tag, -1e-20}}));
  EXPECT_EQ(bytes, read_file(testing::source_path("tests/fixtures/tensorboard_events.bin")));
}

TEST(Tensorboard, WriterMakesOneNewFileALife) {
  const TempDir directory;
  for (int life = 0; life < 3; ++life) {
    TensorboardWriter writer(directory.path(), life);
    EXPECT_EQ(writer.continues(), life > 0);
    writer.add(life, {{"loss", 1.0}});
    writer.flush();
  }
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory.path())) {
    EXPECT_TRUE(entry.path().filename().string().starts_with("events.out.tfevents.")) << entry.path();
    ++files;
  }
  EXPECT_EQ(files, 3);
}

Json record(const char* kind, int64_t step, double loss) {
  return Json::Object{{"kind", kind}, {"step", step}, {"loss", loss}};
}

TEST(MetricsLog, ResumingDropsWhatCameAfterAndWhatIsTorn) {
  const TempDir directory;
  {
    MetricsLog log(directory.path(), 0);
    for (int64_t step = 1; step <= 5; ++step) log.write(record("train", step, 5.0 - static_cast<double>(step)));
    log.write(record("val", 3, 2.5));
  }
  const Path path = directory / "metrics.jsonl";
  write_file_atomic(path, read_file(path) + R"({"kind": "train", "st)");
  {
    MetricsLog log(directory.path(), 3);
    EXPECT_TRUE(log.has("train", 3));
    EXPECT_TRUE(log.has("val", 3));
    EXPECT_FALSE(log.has("train", 4));
    log.write(record("train", 4, 0.5));
  }
  const std::string expected =
      "{\"kind\":\"train\",\"step\":1,\"loss\":4.0}\n{\"kind\":\"train\",\"step\":2,\"loss\":3.0}\n"
      "{\"kind\":\"train\",\"step\":3,\"loss\":2.0}\n{\"kind\":\"val\",\"step\":3,\"loss\":2.5}\n"
      "{\"kind\":\"train\",\"step\":4,\"loss\":0.5}\n";
  EXPECT_EQ(read_file(path), expected);
}

// What readers make of the event files of a directory: files by name, and at a restart all that was said of later steps
// is forgotten (tensorboard/backend/event_processing/event_accumulator.py).
using Series = std::multimap<int64_t, float>;  // by step
class EventReader {
 public:
  std::map<std::string, Series> read(const Path& directory) {
    std::set<Path> files;
    for (const auto& entry : std::filesystem::directory_iterator(directory)) {
      if (entry.path().filename().string().starts_with("events.out.tfevents.")) files.insert(entry.path());
    }
    for (const Path& file : files) read_file_of_records(read_file(file));
    return series_;
  }

 private:
  void read_file_of_records(std::string_view bytes) {
    while (bytes.size() >= 16) {
      uint64_t size = 0;
      std::memcpy(&size, bytes.data(), 8);
      if (bytes.size() < 16 + size) return;  // torn
      event(bytes.substr(12, size));
      bytes.remove_prefix(16 + size);
    }
  }
  // Calls `field` with number, integer value, and bytes of each field of a message.
  template <class Field>
  static void each(std::string_view message, const Field& field) {
    const auto varint = [&] {
      uint64_t value = 0;
      for (int shift = 0;; shift += 7) {
        const auto byte = static_cast<uint8_t>(message[0]);
        message.remove_prefix(1);
        value |= uint64_t{byte & 0x7Fu} << shift;
        if (byte < 0x80) return value;
      }
    };
    while (!message.empty()) {
      const uint64_t key = varint();
      uint64_t number = 0;
      size_t size = key % 8 == 1 ? 8 : 4;
      if (key % 8 == 0) {
        number = varint();
        size = 0;
      } else if (key % 8 == 2) {
        size = varint();
      }
      field(key / 8, number, message.substr(0, size));
      message.remove_prefix(size);
    }
  }
  void event(std::string_view message) {
    int64_t step = 0;
    bool restart = false;
    std::vector<std::pair<std::string, float>> values;
    each(message, [&](uint64_t field, uint64_t number, std::string_view bytes) {
      if (field == 2) step = static_cast<int64_t>(number);
      restart |= field == 7;
      if (field != 5) return;
      each(bytes, [&](uint64_t, uint64_t, std::string_view value) {
        std::pair<std::string, float> tagged;
        each(value, [&](uint64_t part, uint64_t, std::string_view content) {
          if (part == 1) tagged.first = content;
          if (part == 2) std::memcpy(&tagged.second, content.data(), 4);
        });
        values.push_back(tagged);
      });
    });
    if (restart) {
      for (auto& entry : series_) entry.second.erase(entry.second.lower_bound(step), entry.second.end());
    }
    for (const auto& [tag, value] : values) series_[tag].emplace(step, value);
  }

  std::map<std::string, Series> series_;
};

TEST(MetricsLog, TensorboardHasEachStepOnceAfterAnyKill) {
  const TempDir directory;
  const auto life = [&](int64_t resume, int64_t last, double loss) {
    MetricsLog log(directory.path(), resume);
    for (int64_t step = resume + 1; step <= last; ++step) log.write(record("train", step, loss));
  };
  life(0, 3, 9);  // killed before the first checkpoint
  life(0, 4, 8);  // a checkpoint at 2, killed at 4
  life(2, 4, 7);  // one at 4
  // Killed between the two files: the validation of step 4 stands in metrics.jsonl only.
  const Path path = directory / "metrics.jsonl";
  write_file_atomic(path, read_file(path) + record("val", 4, 0.5).dump() + "\n");
  life(4, 6, 6);
  const auto series = EventReader().read(directory.path());
  EXPECT_EQ(series.at("train/loss"), (Series{{1, 8}, {2, 8}, {3, 7}, {4, 7}, {5, 6}, {6, 6}}));
  EXPECT_EQ(series.at("val/loss"), (Series{{4, 0.5f}}));
}

TEST(MetricsLog, TensorboardFilesThatWereRemovedAreWrittenAgain) {
  const TempDir directory;
  {
    MetricsLog log(directory.path(), 0);
    for (int64_t step = 1; step <= 3; ++step) log.write(record("train", step, static_cast<double>(step)));
  }
  for (const auto& entry : std::filesystem::directory_iterator(directory.path())) {
    if (entry.path().filename() != "metrics.jsonl") std::filesystem::remove(entry.path());
  }
  { const MetricsLog log(directory.path(), 3); }
  EXPECT_EQ(EventReader().read(directory.path()).at("train/loss"), (Series{{1, 1}, {2, 2}, {3, 3}}));
}

TEST(MetricsLog, UnknownNumbersAreLeftOut) {
  const TempDir directory;
  {
    MetricsLog log(directory.path(), 0);
    log.write(Json::Object{{"kind", "train"}, {"step", 1}, {"loss", nullptr}, {"lr", 0.5}});
  }
  const auto series = EventReader().read(directory.path());
  EXPECT_EQ(series.size(), 1u);
  EXPECT_EQ(series.at("train/lr"), (Series{{1, 0.5f}}));
}

TEST(MetricsLog, DamagedLinesAreDropped) {
  const TempDir directory;
  write_file_atomic(directory / "metrics.jsonl", "[]\nnot json\n{\"kind\":7,\"step\":1}\n{\"kind\":\"train\"}\n\n");
  MetricsLog log(directory.path(), 100);
  EXPECT_EQ(read_file(directory / "metrics.jsonl"), "");
}

// What is logged at the level of warnings while it lives.
class Warnings {
 public:
  Warnings() {
    set_log_level(LogLevel::kWarn);
    ::testing::internal::CaptureStderr();
  }
  ~Warnings() { set_log_level(LogLevel::kInfo); }
  std::string text() { return ::testing::internal::GetCapturedStderr(); }
};

int64_t lines_of(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

TEST(MetricsLog, WhatIsLostIsSaidOnceAndWhatIsWholeStays) {
  const TempDir directory;
  const Path path = directory / "metrics.jsonl";
  {
    MetricsLog log(directory.path(), 0);
    for (int64_t step = 1; step <= 6; ++step) log.write(record("train", step, 0.5));
    EXPECT_EQ(log.size(), 6);
  }
  const std::string whole = read_file(path), line = whole.substr(0, whole.size() / 6);
  const auto reopened = [&](const std::string& text) {
    write_file_atomic(path, text);
    Warnings warnings;
    MetricsLog(directory.path(), 6, 6);
    return warnings.text();
  };
  EXPECT_EQ(reopened(whole), "");
  EXPECT_EQ(reopened(whole.substr(0, whole.size() - 1)), "");  // the last record is whole
  EXPECT_EQ(read_file(path), whole);
  EXPECT_EQ(reopened(whole + "{\"kind\": \"tr"), "");  // a kill while step 7 was written

  std::string said = reopened(whole.substr(0, 3 * line.size() + 4));  // cut inside the fourth line
  EXPECT_NE(said.find("metrics.jsonl: 3 of 6 records up to step 6 are missing"), std::string::npos) << said;
  EXPECT_EQ(lines_of(said), 1);
  EXPECT_EQ(read_file(path), whole.substr(0, 3 * line.size()));

  std::string damaged = whole;
  damaged[line.size() + 1] = damaged[4 * line.size() + 1] = '\0';
  said = reopened(damaged);
  EXPECT_NE(said.find("metrics.jsonl: 2 damaged lines are dropped, the first is line 2: "), std::string::npos) << said;
  EXPECT_EQ(lines_of(said), 1);
  EXPECT_EQ(read_file(path), line + whole.substr(2 * line.size(), 2 * line.size()) + whole.substr(5 * line.size()));

  std::filesystem::remove(path);
  Warnings warnings;
  MetricsLog(directory.path(), 6, 6);
  said = warnings.text();
  EXPECT_NE(said.find("metrics.jsonl: missing: what the run said of its first 6 steps is lost"), std::string::npos);
  EXPECT_EQ(lines_of(said), 1);
}

TEST(MetricsLog, DrawsALossPicture) {
  if (!gnuplot_available()) GTEST_SKIP() << "gnuplot is not installed";
  const TempDir directory;
  MetricsLog log(directory.path(), 0);
  log.plot();
  EXPECT_FALSE(std::filesystem::exists(directory / "loss.png"));  // nothing to draw yet
  for (int64_t step = 1; step <= 5; ++step) log.write(record("train", step, 1.0 / static_cast<double>(step)));
  log.write(record("val", 5, 0.3));
  log.plot();
  EXPECT_TRUE(read_file(directory / "loss.png").starts_with("\x89PNG"));
}

}  // namespace
}  // namespace loam
