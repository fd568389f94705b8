// How a command is added to the program: one file, one function, one line in main.cpp.
//
//   void add_count_command(CLI::App& app) {
//     struct Options { std::vector<std::string> inputs; };
//     auto options = std::make_shared<Options>();
//     CLI::App* command = add_command(app, "count", "Count things", "loam count --input a.txt",
//                                     [options](const CommonFlags& flags) { ...; return 0; });
//     command->add_option("--input", options->inputs, "files to read")->required();
//   }
//
// A command writes results to stdout (one JSON object with flags.json) and progress and logs to stderr. It returns the
// exit status, or throws Error: the program prints it once, as "error: ...", and ends with status 1; UsageError:
// with 2.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "loam/base/error.h"
#include "loam/base/file.h"
#include "loam/config/train_config.h"

namespace CLI {
class App;
}

namespace loam {

// Flags that every command has. --quiet and --log-level have taken effect when a command runs.
struct CommonFlags {
  int threads = 1;  // --threads, else the cores this process may use
  std::optional<int64_t> seed;
  bool quiet = false;
  bool json = false;
  std::vector<std::string> command_line;  // as typed
};

// What the user typed cannot be meant: exit status 2.
class UsageError : public Error {
 public:
  explicit UsageError(const std::string& message) : Error(ErrorCode::kInvalidArgument, message) {}
};

// Adds `name` below `parent` (the program, or a group of commands) with the common flags; `run` is called once all
// flags are read.
CLI::App* add_command(CLI::App& parent, const std::string& name, const std::string& help, const std::string& example,
                      std::function<int(const CommonFlags&)> run);
// A name that only holds commands: `loam tokenizer ...`. Returns the one of that name if it is there already.
CLI::App* add_command_group(CLI::App& parent, const std::string& name, const std::string& help);

// Parses, runs the command, reports what went wrong, and returns the exit status. `add_commands` fills the program.
int run_program(int argc, char** argv, void (*add_commands)(CLI::App&));

// Prints to stdout with a newline. Error{kIo} if nobody can read it any more.
void print(const std::string& text);

// "0.1.0 (1a2b3c4)": release and git commit.
std::string program_version();
// A recipe by name ("quickstart") or a configuration file by path. Error{kNotFound} that lists the recipes.
Path find_recipe(const std::string& name);
// Name and path of every recipe, sorted.
std::vector<std::pair<std::string, Path>> recipes();
// The configuration of a recipe or file ("": the defaults) with `--set` assignments applied. UsageError for an unknown
// setting or a wrong value.
TrainConfig read_train_config(const std::string& recipe, const std::vector<std::string>& settings);

}  // namespace loam
