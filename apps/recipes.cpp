#include <algorithm>

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

TrainConfig read_train_config(const std::string& recipe, const std::vector<std::string>& settings) {
  TrainConfig config;
  if (!recipe.empty()) {
    const Path path = find_recipe(recipe);
    Json json = Json::parse(read_file(path, int64_t{1} << 24), path.string());
    std::erase_if(json.as_object(), [](const Json::Member& member) { return member.first == "comment"; });
    try {
      config_from_json(config, json);
    } catch (const Error& error) {
      fail(error.code(), "{}: {}", path.string(), error.what());
    }
  }
  for (const std::string& setting : settings) {
    try {
      config_set(config, setting);
    } catch (const Error& error) {
      throw UsageError("--set " + setting + ": " + error.what());
    }
  }
  return config;
}

}  // namespace loam
