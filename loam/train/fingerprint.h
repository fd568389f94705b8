// What made a run: program, machine, configuration and data; OUT/run.json.
#pragma once

#include <string>

#include "loam/base/json.h"
#include "loam/train/trainer.h"

namespace loam {

// {"version", "commit", "dirty", "compiler", "host", "cpu", "threads", "config", "data", "started", "command"}:
// "config" is the XXH3-128 of the configuration as one line of JSON, "started" the time now in UTC.
Json fingerprint_of(const ExecContext& ctx, const Trainer& trainer, const RunOptions& options);

// OUT/run.json: {"id", "starts": [{"step", ... the fingerprint}, ...]}, one start a process. The id is made of random
// bits when the run begins and kept as long as it goes on.
class RunFile {
 public:
  // `kept_id` is that of the checkpoint that the run goes on from, for a run.json that is missing or damaged; empty for
  // none. Where a run begins anew, what run.json says is that of another one: prepare_run_directory() removed it.
  RunFile(const Path& out, const std::string& kept_id);
  const std::string& id() const { return id_; }
  void add_start(int64_t step, const Json& fingerprint);

 private:
  Path path_;
  std::string id_;
  Json starts_ = Json::array();
};

}  // namespace loam
