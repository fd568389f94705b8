// `loam inspect`: what is in a file or directory that loam reads.
#include <memory>

#include "apps/commands.h"
#include "apps/inspect.h"
#include "apps/options.h"
#include "loam/base/utf8.h"

namespace loam {
namespace {

// One fact a line; parts of a whole are indented below it, tensors stand last.
void print_facts(const Json& facts, const std::string& indent) {
  for (const auto& [key, value] : facts.as_object()) {
    if (key == "tensors" || key == "problem") continue;  // the command ends with a problem
    if (value.is_object() && !value.as_object().empty()) {
      print(indent + printable(key));
      print_facts(value, indent + "  ");
    } else {
      print(fmt::format("{:<24} {}", indent + printable(key),
                        printable(value.is_string() ? value.as_string() : value.dump())));
    }
  }
  const Json* tensors = facts.find("tensors");
  if (!tensors || !tensors->is_array()) return;
  for (const Json& t : tensors->as_array()) {
    print(fmt::format("{}{:<60} {:<7} {}", indent, printable(t.at("name").as_string()), t.at("dtype").as_string(),
                      t.at("shape").dump()));
  }
}

}  // namespace

void add_inspect_command(Command& program) {
  auto name = std::make_shared<std::string>();
  Command c = program.add_command("inspect", "Say what a model, run, checkpoint, data directory, tokenizer or file is",
                                  "loam inspect run/model", [name](const CommonFlags& flags) {
                                    if (name->empty()) throw UsageError("PATH is empty");
                                    const Json facts = inspect(*name);
                                    flags.json ? print(facts.dump()) : print_facts(facts, "");
                                    if (const Json* problem = facts.find("problem"))
                                      fail(ErrorCode::kBadFormat, "{}", problem->as_string());
                                    return 0;
                                  });
  c.add_option("PATH", *name, "what to look at").required();
}

}  // namespace loam
