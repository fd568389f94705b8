// `loam tokenizer`: the group, and `loam tokenizer info`.
#include <memory>

#include "apps/commands.h"
#include "apps/open_model.h"
#include "apps/options.h"

namespace loam {
namespace {

int info(const std::string& name, const CommonFlags& flags) {
  const Json facts = describe_tokenizer(open_tokenizer(name, "", -1));
  if (flags.json) {
    print(facts.dump());
  } else {
    for (const auto& [key, value] : facts.as_object()) print(fmt::format("{:<20} {}", key, value.dump()));
  }
  return 0;
}

}  // namespace

void add_tokenizer_commands(Command& program) {
  Command group = program.add_group("tokenizer", "Train and use tokenizers");
  add_tokenizer_train_command(group);
  add_encode_command(group);
  add_decode_command(group);
  add_count_command(group);
  add_compare_command(group);
  add_tokenizer_convert_command(group);
  auto name = std::make_shared<std::string>();
  Command c = group.add_command("info", "Facts about a tokenizer", "loam tokenizer info --tokenizer tok",
                                [name](const CommonFlags& flags) { return info(*name, flags); });
  c.add_option("--tokenizer", *name, "TOKENIZER").required();
}

}  // namespace loam
