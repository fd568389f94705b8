// `loam recipes`, `loam config show` and `loam config explain`: what there is to set, and what it means.
#include <memory>

#include "apps/commands.h"
#include "apps/options.h"
#include "loam/config/train_config.h"

namespace loam {
namespace {

// What a recipe says of itself: its "comment", which no setting is called.
std::string comment_of(const Json& recipe) {
  const Json* comment = recipe.find("comment");
  return comment && comment->is_string() ? comment->as_string() : "";
}

int list_recipes(const CommonFlags& flags) {
  for (const auto& [name, path] : recipes()) {
    const std::string comment = comment_of(Json::parse(read_file(path), path.string()));
    if (flags.json) {
      Json entry;
      entry["name"] = name;
      entry["path"] = path.string();
      entry["comment"] = comment;
      print(entry.dump());
    } else {
      print(fmt::format("{:<16} {}", name, comment));
    }
  }
  return 0;
}

struct ShowOptions {
  std::string config;
  std::vector<std::string> settings;
};

int show(const ShowOptions& options, const CommonFlags& flags) {
  const TrainConfig config = read_train_config(options.config, typed_settings(options.settings));
  print(config_to_json(config).dump(flags.json ? -1 : 2));
  return 0;
}

// "optimizer.lr" belongs to "optimizer", "steps" to the run itself.
std::string part_of(const std::string& name) {
  const size_t dot = name.find('.');
  return dot == std::string::npos ? "" : name.substr(0, dot);
}

// docs/configuration.md: a table for each part.
std::string markdown(const std::vector<FieldInfo>& fields) {
  std::string text =
      "# Every setting of training\n\nAs `loam config explain --markdown` prints it. A configuration is JSON with any "
      "of "
      "these, nested at the dots; `--set optimizer.lr=1e-3` changes one. The settings of the model are `model.*` and "
      "go "
      "with its weights.\n";
  std::string part = "none yet";
  const auto escaped = [](std::string cell) {
    for (size_t at = cell.find('|'); at != std::string::npos; at = cell.find('|', at + 2)) cell.insert(at, "\\");
    return cell;
  };
  for (const FieldInfo& field : fields) {
    if (const std::string here = part_of(field.name); here != part) {
      part = here;
      text += fmt::format("\n## {}\n\n| setting | values | default | meaning |\n|---|---|---|---|\n",
                          part.empty() ? "The run" : part);
    }
    text += fmt::format("| `{}` | {} | `{}` | {} |\n", field.name, escaped(field.type), field.value.dump(),
                        escaped(field.help));
  }
  return text;
}

int explain(const std::string& key, bool as_markdown, bool json) {
  std::vector<std::string> names;
  std::vector<FieldInfo> found;
  for (const FieldInfo& field : config_fields(TrainConfig{})) {
    names.push_back(field.name);
    // A key names a setting, or all settings of a part: "optimizer".
    if (key.empty() || field.name == key || field.name.starts_with(key + ".")) found.push_back(field);
  }
  if (found.empty()) {
    const std::string near = nearest_name(key, names);
    throw UsageError("there is no setting " + key + (near.empty() ? "" : "; did you mean " + near + "?"));
  }
  if (as_markdown) {
    std::string text = markdown(found);
    text.pop_back();  // print() ends the line
    print(text);
    return 0;
  }
  for (const FieldInfo& field : found) {
    const Json facts(
        Json::Object{{"name", field.name}, {"type", field.type}, {"default", field.value}, {"help", field.help}});
    print(json ? facts.dump()
               : fmt::format("{} ({}, default {})\n    {}", field.name, field.type, field.value.dump(), field.help));
  }
  return 0;
}

}  // namespace

void add_config_commands(Command& program) {
  program.add_command("recipes", "List the complete configurations that come with loam", "loam recipes", list_recipes);

  Command group = program.add_group("config", "Show and explain the settings of training");
  auto options = std::make_shared<ShowOptions>();
  Command show_command = group.add_command("show", "Print a whole configuration as JSON",
                                           "loam config show --config quickstart --set optimizer.lr=1e-3",
                                           [options](const CommonFlags& flags) { return show(*options, flags); });
  show_command.add_option("--config", options->config, "recipe or file (default: the defaults)");
  show_command.add_option("--set", options->settings, "change a setting: key.sub=value");

  auto key = std::make_shared<std::string>();
  auto as_markdown = std::make_shared<bool>(false);
  Command explain_command = group.add_command(
      "explain", "Say what a setting means", "loam config explain optimizer.lr",
      [key, as_markdown](const CommonFlags& flags) { return explain(*key, *as_markdown, flags.json); });
  explain_command.add_option("KEY", *key, "a setting or a part of them (default: all)");
  explain_command.add_flag("--markdown", *as_markdown, "as tables in Markdown: docs/configuration.md");
}

}  // namespace loam
