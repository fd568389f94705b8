// loam: every command, one line each.
#include "apps/command.h"

namespace loam {

void add_bench_commands(CLI::App& app);
void add_config_commands(CLI::App& app);
void add_convert_command(CLI::App& app);
void add_data_commands(CLI::App& app);
void add_generate_command(CLI::App& app);
void add_inspect_command(CLI::App& app);
void add_score_command(CLI::App& app);
void add_tokenizer_commands(CLI::App& app);
void add_train_command(CLI::App& app);

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

int main(int argc, char** argv) { return loam::run_program(argc, argv, loam::add_commands); }
