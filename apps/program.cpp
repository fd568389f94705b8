#include <signal.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>

#include "apps/command.h"
#include "apps/options.h"
#include "loam/base/interrupt.h"
#include "loam/base/log.h"
#include "loam/base/parallel_for.h"
#include "loam/base/suggest.h"
#include "loam/base/utf8.h"

namespace loam {
namespace {

constexpr int64_t kMaxThreads = 4096;

struct ParsedFlags {
  int64_t threads = 0;
  std::optional<int64_t> seed;
  bool quiet = false, json = false;
  std::string log_level;
};

std::vector<std::string>& typed_command_line() {
  static std::vector<std::string> words;
  return words;
}

void add_common_flags(Command& command, ParsedFlags& flags) {
  add_integer(command, "--threads", flags.threads, "threads to use (default: the cores at hand)", 1, kMaxThreads)
      .show_default("");
  const auto set_seed = [&flags](const std::string& word) { flags.seed = parse_integer("--seed", word, 0); };
  command.add_option("--seed", set_seed, "seed of all random numbers").show_type("INT");
  command.add_flag("--quiet", flags.quiet, "no progress, only warnings and errors");
  command.add_option("--log-level", flags.log_level, "debug, info, warn, error or off")
      .one_of({"debug", "info", "warn", "error", "off"});
  command.add_flag("--json", flags.json, "machine-readable output");
}

CommonFlags apply(const ParsedFlags& parsed) {
  if (!parsed.log_level.empty()) {
    set_log_level(parse_log_level(parsed.log_level));
  } else if (parsed.quiet) {
    set_log_level(LogLevel::kWarn);
  }
  CommonFlags flags;
  // More threads than cores only wait for each other.
  const int wanted = static_cast<int>(parsed.threads);
  flags.threads = wanted > 0 ? std::min(wanted, available_cores()) : available_cores();
  if (flags.threads < wanted)
    log_warn("--threads {}: this machine has {} cores; using {}", wanted, flags.threads, flags.threads);
  flags.seed = parsed.seed;
  flags.quiet = parsed.quiet;
  flags.json = parsed.json;
  flags.command_line = typed_command_line();
  return flags;
}

// The innermost command that was named.
const CLI::App& named_command(const CLI::App& app) {
  const CLI::App* command = &app;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().back();
  return *command;
}

std::string command_path(const CLI::App& command) {
  const std::string own = command.get_name();
  return command.get_parent() ? command_path(*command.get_parent()) + " " + own : own;
}

bool takes_commands(const CLI::App& command) {
  return !command.get_subcommands([](const CLI::App*) { return true; }).empty();
}

// What an argument that nothing expects was probably meant to be; "" if no name is near.
std::string suggestion(const CLI::App& command, const std::string& word) {
  std::vector<std::string> names;
  if (word.starts_with("-")) {
    for (const CLI::Option* option : command.get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
  } else {
    for (const CLI::App* sub : command.get_subcommands([](const CLI::App*) { return true; }))
      names.push_back(sub->get_name());
  }
  return nearest_name(word.substr(0, word.find('=')), names);
}

int report_wrong_usage(const CLI::App& app, std::string message) {
  const CLI::App& command = named_command(app);
  // An unknown flag explains a missing one better than the other way round.
  const std::vector<std::string> unknown = app.remaining(true);
  if (!unknown.empty()) {
    const std::string& word = unknown.front();
    message = word.starts_with("-")     ? "unknown flag " + word
              : takes_commands(command) ? "unknown command " + word
                                        : "unexpected argument " + word;
    const std::string near = suggestion(command, word);
    if (near == word) {
      message += " in front of the command: it belongs behind it";
    } else if (!near.empty()) {
      message += "; did you mean " + near + "?";
    }
  }
  std::fprintf(stderr, "error: %s\n", printable(message).c_str());
  std::fprintf(stderr, "`%s --help` says how it is used\n", command_path(command).c_str());
  return 2;
}

// `loam tokenzier --help` asks for the help of a command that is not there.
bool asks_about_unknown_command(const CLI::App& app) {
  const std::vector<std::string> unknown = app.remaining(true);
  return takes_commands(named_command(app)) && !unknown.empty() && !unknown.front().starts_with("-");
}

int report(const Error& error) {
  std::fprintf(stderr, "error: %s\n", printable(error.what()).c_str());
  return 1;
}

// "train --steps" for every flag of every command, "inspect PATH" for arguments without a flag.
void list_flags(const CLI::App& command, const std::string& path) {
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = option->get_positional() ? option->get_name(true) : "--" + option->get_lnames().at(0);
    print(path + (path.empty() ? "" : " ") + name);
  }
  for (const CLI::App* sub : command.get_subcommands([](const CLI::App*) { return true; }))
    list_flags(*sub, path + (path.empty() ? "" : " ") + sub->get_name());
}

// The words of the command line, last one first as CLI11 takes them. "--flag=" becomes two words, or else CLI11 would
// take the next one for its value.
std::vector<std::string> reversed_words(int argc, char** argv) {
  std::vector<std::string> words;
  for (int i = argc - 1; i > 0; --i) {
    const std::string word = argv[i];
    const bool empty_value = word.starts_with("--") && word.find('=') == word.size() - 1;
    if (empty_value) words.emplace_back();
    words.push_back(empty_value ? word.substr(0, word.size() - 1) : word);
  }
  return words;
}

int run_words(CLI::App& app, std::vector<std::string> words) {
  try {
    app.parse(std::move(words));
    flush_output();
    return 0;
  } catch (const CLI::RuntimeError& error) {
    flush_output();
    return error.get_exit_code();
  } catch (const CLI::Success& request) {  // --help, --version
    if (asks_about_unknown_command(app)) return report_wrong_usage(app, "");
    const int status = app.exit(request);
    flush_output();
    return status;
  } catch (const CLI::ParseError& error) {
    return report_wrong_usage(app, error.what());
  } catch (const UsageError& error) {
    return report_wrong_usage(app, error.what());
  }
}

}  // namespace

Option Option::required() const { return Option(option_->required()); }
Option Option::one_of(const std::vector<std::string>& words) const {
  const auto check = [words](const std::string& word) { return problem_among(word, words); };
  return Option(option_->check(check, CLI::IsMember(words).get_description()));
}
Option Option::one_word_each() const { return Option(option_->allow_extra_args(false)); }
Option Option::word_or(const std::string& word) const { return Option(option_->expected(0, 1)->default_str(word)); }
Option Option::show_type(const std::string& type) const { return Option(option_->type_name(type)); }
Option Option::show_default(const std::string& value) const { return Option(option_->default_str(value)); }

Option Command::add_option(const std::string& name, std::string& value, const std::string& help) {
  return Option(app_->add_option(name, value, help));
}
Option Command::add_option(const std::string& name, std::optional<std::string>& value, const std::string& help) {
  return Option(app_->add_option(name, value, help));
}
Option Command::add_option(const std::string& name, std::vector<std::string>& value, const std::string& help) {
  return Option(app_->add_option(name, value, help));
}
Option Command::add_option(const std::string& name, std::function<void(const std::string&)> take,
                           const std::string& help) {
  return Option(app_->add_option_function<std::string>(name, take, help));
}
void Command::add_flag(const std::string& name, bool& value, const std::string& help) {
  app_->add_flag(name, value, help);
}

Command Command::add_command(const std::string& name, const std::string& help, const std::string& example,
                             std::function<int(const CommonFlags&)> run) {
  CLI::App* app = app_->add_subcommand(name, help);
  app->footer("Example:\n  " + example);
  Command command(app);
  auto flags = std::make_shared<ParsedFlags>();
  add_common_flags(command, *flags);
  app->callback([flags, run = std::move(run)] {
    if (const int status = run(apply(*flags)); status != 0) throw CLI::RuntimeError(status);
  });
  return command;
}

Command Command::add_group(const std::string& name, const std::string& help) {
  CLI::App* app = app_->add_subcommand(name, help);
  app->require_subcommand(1);
  return Command(app);
}

int run_program(int argc, char** argv, void (*add_commands)(Command&)) {
  typed_command_line().assign(argv, argv + argc);
  signal(SIGPIPE, SIG_IGN);  // a failed write is an error, so that nothing half written stays behind
  InterruptScope interrupt;
  CLI::App app("loam: a language model from text to answers", "loam");
  app.footer("`loam COMMAND --help` says what a command does, with an example.");
  app.set_version_flag("--version", program_version());
  const auto list = [&app] {
    list_flags(app, "");
    throw CLI::Success();
  };
  app.add_flag_callback("--list-flags", list, "Every command with each of its flags, one a line");
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
  try {
    Command program(&app);
    add_commands(program);
    return run_words(app, reversed_words(argc, argv));
  } catch (const ClosedOutput&) {
    return end_by_closed_pipe();
  } catch (const Error& error) {
    return report(error);
  } catch (const std::bad_alloc&) {
    return report(Error(ErrorCode::kOutOfMemory, "out of memory"));
  } catch (const std::filesystem::filesystem_error& error) {
    return report(Error(ErrorCode::kIo, error.path1().string() + ": " + error.code().message()));
  } catch (const std::exception& error) {
    return report(Error(ErrorCode::kInternal, error.what()));
  }
}

}  // namespace loam
