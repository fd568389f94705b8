// loam: every command, one line each.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "apps/command.h"
#include "apps/commands.h"

namespace loam {

namespace {

void add_commands(CLI::App& app) {
  add_tokenizer_commands(app);
  add_data_commands(app);
  add_train_command(app);
  add_generate_command(app);
  add_score_command(app);
  add_convert_command(app);
  add_inspect_command(app);
  add_config_commands(app);
  add_bench_commands(app);
}

}  // namespace
}  // namespace loam

// Waiting threads of OpenMP spin for milliseconds, which on a machine whose cores are busy takes them from the work
// that is waited for: a step of a small model then takes four times as long. libgomp reads its settings before main, so
// the program starts itself again with a short spin. No effect where the user has chosen.
static void limit_spinning(char** argv) {
  if (std::getenv("GOMP_SPINCOUNT") || std::getenv("OMP_WAIT_POLICY")) return;
  setenv("GOMP_SPINCOUNT", "20000", 1);
  // By its own path, as the process takes its name from there. Returns only if it fails; then all goes on as it is.
  std::error_code error;
  execv(std::filesystem::read_symlink("/proc/self/exe", error).c_str(), argv);
}

int main(int argc, char** argv) {
  limit_spinning(argv);
  return loam::run_program(argc, argv, loam::add_commands);
}
