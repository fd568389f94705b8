// How a command is added to the program: one file, one function, one line in commands.h and main.cpp.
//
//   void add_count_command(Command& program) {
//     struct Options { std::vector<std::string> inputs; bool words = false; };
//     auto o = std::make_shared<Options>();
//     Command c = program.add_command("count", "Count things", "loam count --input a.txt",
//                                     [o](const CommonFlags& flags) { ...; return 0; });
//     add_input(c, o->inputs);
//     c.add_flag("--words", o->words, "words too");
//   }
//
// A command writes results to stdout (one JSON object with flags.json) and progress and logs to stderr. It returns the
// exit status, or throws Error: the program prints it once, as "error: ...", and ends with status 1; UsageError:
// with 2. Only program.cpp includes the parser's header, which takes as long to compile as ten commands.
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
class Option;
}  // namespace CLI

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

// An option of a command; what is said of it can be strung together: `.required().one_of({"a", "b"})`.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option required() const;
  Option one_of(const std::vector<std::string>& words) const;
  // A list takes one word each time the option is given, instead of all that follow.
  Option one_word_each() const;
  // The option may stand without its word, which is then this one.
  Option word_or(const std::string& word) const;
  // Names in --help the kind of value (TEXT unless told), and the value without the option.
  Option show_type(const std::string& type) const;
  Option show_default(const std::string& value) const;

 private:
  CLI::Option* option_;
};

// A command, the program itself, or a name that only holds commands (`loam tokenizer ...`): a handle.
class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}

  // A command below this one, with the common flags; `run` is called once all flags are read.
  Command add_command(const std::string& name, const std::string& help, const std::string& example,
                      std::function<int(const CommonFlags&)> run);
  Command add_group(const std::string& name, const std::string& help);

  // "--name", or "NAME" for words without a flag. The word is put into `value`; a list takes every word that follows.
  Option add_option(const std::string& name, std::string& value, const std::string& help);
  Option add_option(const std::string& name, std::optional<std::string>& value, const std::string& help);
  Option add_option(const std::string& name, std::vector<std::string>& value, const std::string& help);
  // `take` gets the word, and throws UsageError if it cannot be meant.
  Option add_option(const std::string& name, std::function<void(const std::string&)> take, const std::string& help);
  // Without a word: sets `value`; "!--no-name" clears it.
  void add_flag(const std::string& name, bool& value, const std::string& help);

 private:
  CLI::App* app_;
};

// Parses, runs the command, reports what went wrong, and returns the exit status. `add_commands` fills the program.
int run_program(int argc, char** argv, void (*add_commands)(Command&));

// The reader of stdout has gone (`| head`): not a fault, but the end of the work.
class ClosedOutput : public Error {
 public:
  ClosedOutput() : Error(ErrorCode::kIo, "standard output: nobody reads it any more") {}
};

// Ends as a program does that writes to a closed pipe, now that what was half written is gone.
int end_by_closed_pipe();

// Writes to stdout. Error{kIo} if that fails, ClosedOutput if nobody reads it.
void write_output(std::string_view bytes);
void flush_output();
// The text and a newline.
void print(const std::string& text);

// "0.1.0 (1a2b3c4)": release and git commit.
std::string program_version();
// "1a2b3c4d5e6f", with "-dirty" behind it where files were changed; "unknown" outside a repository.
std::string program_commit();
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
// UsageError that names both, if two give one setting different values.
void check_agreement(const std::vector<TypedSetting>& settings);
// The configuration of a recipe or file ("": the defaults) with settings applied. UsageError in the user's words for a
// setting that does not exist or a value that cannot be; an Error that names the file where that is at fault.
TrainConfig read_train_config(const std::string& recipe, const std::vector<TypedSetting>& settings);

}  // namespace loam
