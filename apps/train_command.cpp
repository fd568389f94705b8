// `loam train`: pre-training.
#include <CLI/CLI.hpp>
#include <memory>

#include "apps/command.h"

namespace loam {

void add_train_command(CLI::App&) {}

}  // namespace loam
