// loam: every command, one line each.
#include "apps/command.h"

namespace loam {

void add_config_commands(CLI::App& app);
void add_train_command(CLI::App& app);

namespace {

void add_commands(CLI::App& app) {
  add_train_command(app);
  add_config_commands(app);
}

}  // namespace
}  // namespace loam

int main(int argc, char** argv) { return loam::run_program(argc, argv, loam::add_commands); }
