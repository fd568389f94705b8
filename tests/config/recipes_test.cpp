// The recipes: every one is a whole configuration, and has as many parameters as the published model.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "loam/base/file.h"
#include "loam/config/train_config.h"
#include "tests/harness/shared.h"

namespace loam {
namespace {

// Of the published weights, as transformers counts them.
const std::map<std::string, int64_t> kPublished{
    {"gemma2-2b", 2614341888},   {"gemma3-1b", 999885952},   {"gpt2-124m", 124439808},    {"gpt2-355m", 354823168},
    {"gpt2-774m", 774030080},    {"gpt2-1.5b", 1557611200},  {"llama2-7b", 6738415616},   {"llama3.1-8b", 8030261248},
    {"llama3.2-1b", 1235814400}, {"mistral-7b", 7241732096}, {"olmo2-1b", 1484916736},    {"phi3-mini", 3821079552},
    {"pythia-70m", 70426624},    {"pythia-160m", 162322944}, {"pythia-410m", 405334016},  {"pythia-1.4b", 1414647808},
    {"qwen2.5-0.5b", 494032768}, {"qwen3-0.6b", 596049920},  {"smollm2-135m", 134515008}, {"smollm3-3b", 3075098624},
};

// 1234567: "1,234,567".
std::string grouped(int64_t number) {
  std::string digits = std::to_string(number);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3) {
    digits.insert(digits.begin() + at, ',');
  }
  return digits;
}

TEST(Recipes, AreWholeAndHaveThePublishedSizes) {
  std::set<std::string> published, others;
  for (const auto& entry : std::filesystem::directory_iterator(testing::source_path("recipes"))) {
    const std::string name = entry.path().stem().string();
    SCOPED_TRACE(name);
    Json json = Json::parse(read_file(entry.path()), entry.path().string());
    const std::string comment = json.at("comment").as_string();
    std::erase_if(json.as_object(), [](const Json::Member& member) { return member.first == "comment"; });
    TrainConfig config;
    config_from_json(config, json);
    config = derive(config);
    EXPECT_EQ(config_warnings(config), std::vector<std::string>());
    const auto found = kPublished.find(name);
    (found == kPublished.end() ? others : published).insert(name);
    if (found == kPublished.end()) continue;
    EXPECT_EQ(parameter_count(config.model), found->second);
    EXPECT_NE(comment.find(" " + grouped(found->second) + " parameters"), std::string::npos) << comment;
  }
  EXPECT_EQ(published.size(), kPublished.size());
  EXPECT_EQ(others, (std::set<std::string>{"quickstart", "tiny"}));
}

}  // namespace
}  // namespace loam
