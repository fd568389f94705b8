#include "loam/base/suggest.h"

#include <gtest/gtest.h>

namespace loam {
namespace {

TEST(Suggest, FindsTheNearest) {
  const std::vector<std::string> names = {"learning_rate", "min_lr", "warmup_steps", "seed"};
  EXPECT_EQ(nearest_name("lerning_rate", names), "learning_rate");
  EXPECT_EQ(nearest_name("warmup-steps", names), "warmup_steps");
  EXPECT_EQ(nearest_name("sede", names), "seed");  // a swap is two edits
  EXPECT_EQ(nearest_name("seed", names), "seed");
}

TEST(Suggest, IsSilentWhenNothingIsNear) {
  EXPECT_EQ(nearest_name("kitten", {"sitting"}), "");            // distance 3, limit 2
  EXPECT_EQ(nearest_name("saturdays", {"sundays"}), "sundays");  // distance 3, limit 3
  EXPECT_EQ(nearest_name("embedd", {"head", "embedding.scale", "embedding", "embeddingses"}), "embedding");
  EXPECT_EQ(nearest_name("emb", {"embedding"}), "");  // less than half
  EXPECT_EQ(nearest_name("lr", {"eps", "min_lr_ratio", "lr_scale", "lrs_scale"}), "lr_scale");
  EXPECT_EQ(nearest_name("lr", {"bx"}), "");  // nothing of it is kept
  EXPECT_EQ(nearest_name("", {"a"}), "");
  EXPECT_EQ(nearest_name("x", {}), "");
  EXPECT_EQ(nearest_name(std::string(1'000'000, 'a'), {"seed"}), "");
}

TEST(ProblemAmong, ListsAndSuggests) {
  const std::vector<std::string> words = {"llama", "gpt2"};
  EXPECT_EQ(problem_among("gpt2", words), "");
  EXPECT_EQ(problem_among("gptt2", words), "'gptt2' is none of llama, gpt2; did you mean gpt2?");
  EXPECT_EQ(problem_among("", words), "'' is none of llama, gpt2");
}

}  // namespace
}  // namespace loam
