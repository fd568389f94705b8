// A run in a directory of its own, and what it left there.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "loam/base/hash.h"
#include "loam/base/interrupt.h"
#include "loam/base/log.h"
#include "loam/train/run_directory.h"
#include "tests/harness/sanitizers.h"
#include "tests/train/training_data.h"

namespace loam::testing {

inline std::vector<Json> records_of(const Path& run, const std::string& kind) {
  std::vector<Json> records;
  LineReader lines(open_input(run / "metrics.jsonl"));
  for (std::string line; lines.next(line);) {
    const Json record = Json::parse(line);
    if (record.at("kind").as_string() == kind) records.push_back(record);
  }
  return records;
}

// The part of the metrics that does not depend on the clock: step, loss, rate, norm of every line.
inline std::string curve_of(const Path& run) {
  std::string curve;
  for (const char* kind : {"train", "val"}) {
    for (const Json& r : records_of(run, kind)) {
      curve += fmt::format("{} {} {}", kind, r.at("step").as_int(), r.at("loss").dump());
      if (const Json* lr = r.find("lr")) curve += " " + lr->dump() + " " + r.at("grad_norm").dump();
      curve += "\n";
    }
  }
  return curve;
}

inline std::string final_state(const Path& run) {
  const auto newest = CheckpointStore(run / "checkpoints").newest_complete();
  if (!newest) return "none";
  return fmt::format("{} {} {}", newest->step, hash_hex(read_file(newest->path / "model.safetensors")),
                     hash_hex(read_file(newest->path / "optimizer.safetensors")));
}

class RunTest : public ::testing::Test {
 protected:
  RunTest() {
    set_log_level(LogLevel::kError);
    clear_interrupt();
    write_data(directory / "data");
    write_file_atomic(directory / "data" / "tokenizer.json", "{\"a tokenizer\": true}");
    config.data.path = (directory / "data").string();
    config.val_every = 20;
    if (kSanitized) {
      config.model.context_length = 8;
      config.model.dim = 16;
      config.model.heads = 2;
      config.model.kv_heads = 1;
    }
  }
  ~RunTest() override {
    clear_interrupt();
    set_log_level(LogLevel::kInfo);
  }

  RunOptions options(const std::string& name) {
    RunOptions o;
    o.out = directory / name;
    return o;
  }
  RunSummary run(const RunOptions& o) { return run_training(resources.context, config, o); }

  TempDir directory;
  TrainConfig config = tiny_config();
  ExecResources resources = make_exec_resources(Device{}, 1);
};

}  // namespace loam::testing
