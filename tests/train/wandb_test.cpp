#include "loam/train/wandb.h"

#include <gtest/gtest.h>

#include "tests/harness/shared.h"
#include "tests/harness/temp_dir.h"

namespace loam {
namespace {

// The run of tests/fixtures/make_wandb_fixture.py, as `loam train` leaves it.
void write_run(const Path& run) {
  std::filesystem::create_directories(run / "model");
  write_file_atomic(run / "config.json",
                    R"({"model": {}, "note": ")" + std::string(70000, 'x') + R"(", "optimizer": {}, "steps": 20})");
  write_file_atomic(run / "run.json", R"({"id": "0123abcd", "starts": [{"started": "2023-11-14T22:13:20Z"}]})");
  write_file_atomic(run / "metrics.jsonl",
                    R"({"kind": "start", "step": 0, "time": 0}
{"kind": "train", "step": 10, "time": 1.5, "loss": 2.5, "lr": 0.001}
{"kind": "sample", "step": 10, "time": 1.5, "text": "in the beginning"}
{"kind": "train", "step": 20, "time": 3, "loss": 2.25, "lr": null}
{"kind": "val", "step": 20, "time": 3.25, "loss": 2.375}
)");
}

TEST(Wandb, IsTheFileThatTheClientWrites) {
  const testing::TempDir scratch;
  const Path run = scratch.path() / "first";
  write_run(run);
  const Path out = write_wandb_run(run);
  EXPECT_EQ(out, run / "wandb" / "offline-run-20231114_221320-0123abcd");
  EXPECT_EQ(read_file(out / "run-0123abcd.wandb"), read_file(testing::source_path("tests/fixtures/wandb_run.wandb")));
  EXPECT_EQ(write_wandb_run(run), out);  // the same run again
}

// The last record's end by protobuf's rules: its message RunExitRecord (field 18) has exit_code (1), which is left out
// where it is 0, and runtime (2), here 3 s.
TEST(Wandb, TheEndOfARunIsItsOwn) {
  const testing::TempDir scratch;
  const Path run = scratch.path() / "first",
             file = run / "wandb/offline-run-20231114_221320-0123abcd/run-0123abcd.wandb";
  write_run(run);
  const auto ends_with = [&](std::string_view end) {
    write_wandb_run(run);
    return read_file(file).ends_with(end);
  };
  using namespace std::string_view_literals;
  EXPECT_TRUE(ends_with("\x92\x01\x02\x10\x03"sv));
  std::filesystem::remove(run / "model");
  EXPECT_TRUE(ends_with("\x92\x01\x05\x08\xFF\x01\x10\x03"sv));  // interrupted: 255
  write_file_atomic(run / "metrics.jsonl",
                    read_file(run / "metrics.jsonl") + "{\"kind\": \"stopped\", \"step\": 20, \"time\": 3.25}\n");
  EXPECT_TRUE(ends_with("\x92\x01\x04\x08\x01\x10\x03"sv));  // an error: 1
}

// LevelDB's format: what does not fit before the end of a block of 32 KiB begins in the next one, which a header of 7
// bytes must fit into.
TEST(Wandb, BlocksAreFilledAsLevelDbSays) {
  for (const size_t left : {0u, 1u, 6u, 7u, 8u, 20u}) {
    WandbLog log;
    const size_t first = 32768 - 7 - 7 - left;  // behind the file's header and the record's own
    log.add(std::string(first, 'a'));
    ASSERT_EQ(log.bytes().size(), 32768 - left);
    log.add("bcdef");
    const std::string& bytes = log.bytes();
    if (left < 7) {
      EXPECT_EQ(bytes.substr(32768 - left, left), std::string(left, '\0'));
      EXPECT_EQ(bytes.size(), 32768 + 7 + 5) << left;
    } else if (left < 12) {  // a FIRST that fills the block, maybe of nothing, and a LAST
      EXPECT_EQ(bytes[32768 - left + 6], 1 + 1) << left;
      EXPECT_EQ(bytes[32768 + 6], 4) << left;
      EXPECT_EQ(bytes.size(), 32768 - left + 7 + 7 + 5) << left;
    } else {
      EXPECT_EQ(bytes.size(), 32768 - left + 7 + 5) << left;
    }
  }
}

}  // namespace
}  // namespace loam
