#include "loam/train/metrics.h"

#include <gtest/gtest.h>

#include "loam/base/plot.h"
#include "loam/train/tensorboard.h"
#include "tests/harness/expect_error.h"
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
  EXPECT_EQ(bytes, read_file(Path(LOAM_SOURCE_DIR) / "tests/fixtures/tensorboard_events.bin"));
}

TEST(Tensorboard, WriterMakesOneNewFileALife) {
  const TempDir directory;
  for (int life = 0; life < 3; ++life) {
    TensorboardWriter writer(directory.path(), life > 0 ? life : -1);
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

TEST(MetricsLog, DamagedLinesAreDropped) {
  const TempDir directory;
  write_file_atomic(directory / "metrics.jsonl", "[]\nnot json\n{\"kind\":7,\"step\":1}\n{\"kind\":\"train\"}\n\n");
  MetricsLog log(directory.path(), 100);
  EXPECT_EQ(read_file(directory / "metrics.jsonl"), "");
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
