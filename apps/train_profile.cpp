#include "apps/train_profile.h"

#include "apps/command.h"
#include "loam/base/log.h"
#include "loam/train/run_directory.h"
#include "loam/train/train_profile.h"

namespace loam {

int profile_run(const ExecContext& ctx, const TrainConfig& config, const RunOptions& options, int64_t steps,
                bool as_json) {
  const RunLock lock(options.out);
  RunStart start = check_run(config, options);
  const Path directory = options.out / "profile";
  AtomicDirectory files(directory, options.force, kProfileFiles);
  const auto profile = profile_training(ctx, start.config, std::move(start.data), steps);
  write_profile(*profile, files.path());
  files.commit();
  as_json ? print(profile_kernels(*profile).dump()) : write_output(profile_table(*profile));
  log_info("in {}: ops.json, memory.json, and trace.json for ui.perfetto.dev", directory.string());
  return 0;
}

}  // namespace loam
