// loam: every command, one line each.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "apps/command.h"
#include "apps/commands.h"

namespace loam {

namespace {

void add_commands(Command& program) {
  add_tokenizer_commands(program);
  add_data_commands(program);
  add_train_command(program);
  add_runs_commands(program);
  add_plot_command(program);
  add_generate_command(program);
  add_score_command(program);
  add_convert_command(program);
  add_inspect_command(program);
  add_config_commands(program);
  add_bench_commands(program);
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
