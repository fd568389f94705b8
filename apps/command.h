// How a command is added to the program: one file, one function, one line in commands.h and main.cpp.
//
//   void add_count_command(CLI::App& app) {
//     struct Options { std::vector<std::string> inputs; };
//     auto options = std::make_shared<Options>();
//     CLI::App* command = add_command(app, "count", "Count things", "loam count --input a.txt",
//                                     [options](const CommonFlags& flags) { ...; return 0; });
//     add_input(*command, options->inputs);
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
#include <string_view>
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

// Calls `check`; what it finds to be an invalid argument is one that the user typed: "--device foo: ...".
template <class Check>
void as_usage(const std::string& typed, Check&& check) {
  try {
    check();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidArgument) throw;
    throw UsageError(typed + ": " + error.what());
  }
}

// Adds `name` below `parent` (the program, or a group of commands) with the common flags; `run` is called once all
// flags are read.
CLI::App* add_command(CLI::App& parent, const std::string& name, const std::string& help, const std::string& example,
                      std::function<int(const CommonFlags&)> run);
// A name that only holds commands: `loam tokenizer ...`. Returns the one of that name if it is there already.
CLI::App* add_command_group(CLI::App& parent, const std::string& name, const std::string& help);

// Parses, runs the command, reports what went wrong, and returns the exit status. `add_commands` fills the program.
int run_program(int argc, char** argv, void (*add_commands)(CLI::App&));

// The reader of stdout has gone (`| head`): not a fault, but the end of the work.
class ClosedOutput : public Error {
 public:
  ClosedOutput() : Error(ErrorCode::kIo, "standard output: nobody reads it any more") {}
};

// Writes to stdout. Error{kIo} if that fails, ClosedOutput if nobody reads it.
void write_output(std::string_view bytes);
void flush_output();
// The text and a newline.
void print(const std::string& text);

// "0.1.0 (1a2b3c4)": release and git commit.
std::string program_version();
// A recipe by name ("quickstart") or a configuration file by path. Error{kNotFound} that lists the recipes.
Path find_recipe(const std::string& name);
// Name and path of every recipe, sorted.
std::vector<std::pair<std::string, Path>> recipes();
// A setting and how the user gave it: {"optimizer.lr=1", "--lr 1"}.
struct TypedSetting {
  std::string assignment, typed;
};
// The settings of --set.
std::vector<TypedSetting> typed_settings(const std::vector<std::string>& assignments);
// The configuration of a recipe or file ("": the defaults) with settings applied. UsageError in the user's words for a
// setting that does not exist or a value that cannot be; an Error that names the file where that is at fault.
TrainConfig read_train_config(const std::string& recipe, const std::vector<TypedSetting>& settings);

}  // namespace loam
