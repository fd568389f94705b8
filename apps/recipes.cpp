#include <algorithm>
#include <cctype>

#include "apps/command.h"
#include "apps/version.h"
#include "loam/base/suggest.h"

namespace loam {
namespace {

// Beside the installed program, else where the program was built from.
Path recipe_directory() {
  std::error_code error;
  const Path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) {
    const Path installed = program.parent_path().parent_path() / "share" / "loam" / "recipes";
    if (std::filesystem::is_directory(installed, error)) return installed;
  }
  return LOAM_RECIPE_DIR;
}

}  // namespace

std::string program_commit() { return LOAM_COMMIT; }
std::string program_version() { return LOAM_VERSION " (" LOAM_COMMIT ")"; }

std::vector<std::pair<std::string, Path>> recipes() {
  std::vector<std::pair<std::string, Path>> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(recipe_directory(), error)) {
    if (entry.path().extension() == ".json") found.emplace_back(entry.path().stem().string(), entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

Path find_recipe(const std::string& name) {
  std::error_code error;
  if (std::filesystem::is_regular_file(name, error)) return name;
  std::vector<std::string> names;
  for (const auto& [recipe, path] : recipes()) {
    if (recipe == name) return path;
    names.push_back(recipe);
  }
  std::string list;
  for (const std::string& known : names) list += (list.empty() ? "" : ", ") + known;
  const std::string near = nearest_name(name, names);
  fail(ErrorCode::kNotFound, "configuration {}: neither a file nor a recipe{} (recipes: {})", name,
       near.empty() ? "" : "; did you mean " + near + "?", list);
}

std::vector<TypedSetting> typed_settings(const std::vector<std::string>& assignments) {
  std::vector<TypedSetting> settings;
  for (const std::string& assignment : assignments) settings.push_back({assignment, "--set " + assignment});
  return settings;
}

void check_agreement(const std::vector<TypedSetting>& settings) {
  const auto split = [](const std::string& assignment) {
    const size_t equals = std::min(assignment.find('='), assignment.size() - 1);
    const Json value = config_detail::assigned_value(assignment.substr(equals + 1), false);
    return std::pair(assignment.substr(0, equals), Json(Json::Object{{"value", value}}));
  };
  for (size_t i = 0; i < settings.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (settings[i].assignment.empty() || settings[j].assignment.empty()) continue;
      const auto [name, value] = split(settings[i].assignment);
      const auto [other_name, other] = split(settings[j].assignment);
      if (name != other_name || config_diff(other, value).empty()) continue;
      throw UsageError(fmt::format("{} and {} give {} different values", settings[j].typed, settings[i].typed, name));
    }
  }
}

namespace {

// Whether `text` names the setting, and not just one whose name holds it.
bool names_setting(const std::string& text, const std::string& name) {
  const auto part_of_name = [&](size_t at) {
    return at < text.size() &&
           (std::isalnum(static_cast<unsigned char>(text[at])) || text[at] == '_' || text[at] == '.');
  };
  for (size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + 1)) {
    if (!part_of_name(at - 1) && !part_of_name(at + name.size())) return true;
  }
  return false;
}

void read_recipe(TrainConfig& config, const Path& path) {
  Json json = Json::parse(read_file(path, int64_t{1} << 24), path.string());
  if (json.is_object())
    std::erase_if(json.as_object(), [](const Json::Member& member) { return member.first == "comment"; });
  try {
    config_from_json(config, json);
  } catch (const Error& error) {
    fail(error.code(), "{}: {}", path.string(), error.what());
  }
}

}  // namespace

TrainConfig read_train_config(const std::string& recipe, const std::vector<TypedSetting>& settings) {
  check_agreement(settings);
  TrainConfig config;
  const Path path = recipe.empty() ? Path() : find_recipe(recipe);
  if (!path.empty()) read_recipe(config, path);
  for (const auto& [assignment, typed] : settings) as_usage(typed, [&] { config_set(config, assignment); });
  try {
    derive(config);
  } catch (const Error& error) {
    for (const auto& [assignment, typed] : settings) {
      if (names_setting(error.what(), assignment.substr(0, assignment.find('='))))
        throw UsageError(typed + ": " + error.what());
    }
    if (settings.empty()) fail(error.code(), "{}: {}", path.string(), error.what());
    read_train_config(recipe, {});  // if the file fails alone, it is to blame
    // A setting that is not named fails by what follows from it.
    std::string typed;
    for (const TypedSetting& setting : settings) typed += (typed.empty() ? "" : " ") + setting.typed;
    throw UsageError(typed + ": " + error.what());
  }
  return config;
}

}  // namespace loam
