#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>

#include "apps/command.h"
#include "loam/base/interrupt.h"
#include "loam/base/log.h"
#include "loam/base/parallel_for.h"
#include "loam/base/suggest.h"

namespace loam {
namespace {

struct ParsedFlags {
  int threads = 0;
  std::optional<int64_t> seed;
  bool quiet = false, json = false;
  std::string log_level;
};

std::vector<std::string>& typed_command_line() {
  static std::vector<std::string> words;
  return words;
}

void add_common_flags(CLI::App& command, ParsedFlags& flags) {
  command.add_option("--threads", flags.threads, "threads to use (default: the cores at hand)")
      ->check(CLI::Range(1, 4096));
  command.add_option("--seed", flags.seed, "seed of all random numbers");
  command.add_flag("--quiet", flags.quiet, "no progress, only warnings and errors");
  command.add_option("--log-level", flags.log_level, "debug, info, warn, error or off")
      ->check(CLI::IsMember({"debug", "info", "warn", "error", "off"}));
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
  flags.threads = parsed.threads > 0 ? std::min(parsed.threads, available_cores()) : available_cores();
  if (flags.threads < parsed.threads)
    log_warn("--threads {}: this machine has {} cores; using {}", parsed.threads, flags.threads, flags.threads);
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

// What an argument that nothing expects was probably meant to be; "" if no name is near.
std::string suggestion(const CLI::App& command, const std::string& word) {
  std::vector<std::string> names;
  if (word.starts_with("-")) {
    for (const CLI::Option* option : command.get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
  } else {
    for (const CLI::App* sub : command.get_subcommands([](const CLI::App*) { return true; })) {
      names.push_back(sub->get_name());
    }
  }
  return nearest_name(word.substr(0, word.find('=')), names);
}

int report_wrong_usage(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& command = named_command(app);
  std::string message = error.what();
  // An unknown flag explains a missing one better than the other way round.
  const std::vector<std::string> unknown = app.remaining(true);
  if (!unknown.empty()) {
    const std::string& word = unknown.front();
    const bool is_flag = word.starts_with("-");
    const bool takes_commands = !command.get_subcommands([](const CLI::App*) { return true; }).empty();
    message = (is_flag ? "unknown flag " : takes_commands ? "unknown command " : "unexpected argument ") + word;
    if (const std::string near = suggestion(command, word); !near.empty()) message += "; did you mean " + near + "?";
  }
  std::fprintf(stderr, "error: %s\n", message.c_str());
  std::fprintf(stderr, "`%s --help` says how it is used\n", command_path(command).c_str());
  return 2;
}

int report(const std::string& message, int status) {
  std::fprintf(stderr, "error: %s\n", message.c_str());
  return status;
}

}  // namespace

CLI::App* add_command(CLI::App& parent, const std::string& name, const std::string& help, const std::string& example,
                      std::function<int(const CommonFlags&)> run) {
  CLI::App* command = parent.add_subcommand(name, help);
  command->footer("Example:\n  " + example);
  auto flags = std::make_shared<ParsedFlags>();
  add_common_flags(*command, *flags);
  command->callback([flags, run = std::move(run)] {
    if (const int status = run(apply(*flags)); status != 0) throw CLI::RuntimeError(status);
  });
  return command;
}

CLI::App* add_command_group(CLI::App& parent, const std::string& name, const std::string& help) {
  for (CLI::App* sub : parent.get_subcommands([](const CLI::App*) { return true; })) {
    if (sub->get_name() == name) return sub;
  }
  CLI::App* group = parent.add_subcommand(name, help);
  group->require_subcommand(1);
  return group;
}

int run_program(int argc, char** argv, void (*add_commands)(CLI::App&)) {
  typed_command_line().assign(argv, argv + argc);
  InterruptScope interrupt;
  CLI::App app("loam: a language model from text to answers", "loam");
  app.footer("`loam COMMAND --help` says what a command does, with an example.");
  app.set_version_flag("--version", program_version());
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
  try {
    add_commands(app);
    app.parse(argc, argv);
    if (std::fflush(stdout) != 0) fail(ErrorCode::kIo, "standard output: cannot write");
    return 0;
  } catch (const CLI::RuntimeError& error) {
    return error.get_exit_code();
  } catch (const CLI::Success& request) {  // --help, --version
    return app.exit(request);
  } catch (const CLI::ParseError& error) {
    return report_wrong_usage(app, error);
  } catch (const UsageError& error) {
    return report(error.what(), 2);
  } catch (const Error& error) {
    return report(error.what(), 1);
  } catch (const std::bad_alloc&) {
    return report("out of memory", 1);
  } catch (const std::exception& error) {
    return report(error.what(), 1);
  }
}

void print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fputc('\n', stdout);
  if (std::ferror(stdout)) fail(ErrorCode::kIo, "standard output: cannot write");
}

}  // namespace loam
