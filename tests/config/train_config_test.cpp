#include "loam/config/train_config.h"

#include <gtest/gtest.h>

#include "tests/harness/expect_error.h"

namespace loam {
namespace {

using testing::error_of;

TEST(TrainConfig, DerivesLengthAndMicroBatch) {
  TrainConfig c;
  c.model.context_length = 128, c.batch = 24;
  c = derive(c);
  EXPECT_EQ(c.data.length, 128);
  EXPECT_EQ(c.micro_batch, 24);
  EXPECT_EQ(c.model.head_dim, 32);
  EXPECT_EQ(config_to_json(derive(c)), config_to_json(c));
}

TEST(TrainConfig, ErrorsNameTheField) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases{
      {{"batch=32", "micro_batch=5"}, "batch (32) is not a multiple of micro_batch (5)"},
      {{"batch=0"}, "batch is 0"},
      {{"steps=0"}, "steps is 0"},
      {{"data.length=300"}, "data.length is 300; it must lie in [1, 256]"},
      {{"data.length=-1"}, "data.length is -1"},
      {{"optimizer.lr=0"}, "optimizer.lr is 0"},
      {{"optimizer.lr=-1"}, "optimizer.lr is -1"},
      {{"optimizer.beta2=1"}, "optimizer.beta2 is 1"},
      {{"optimizer.beta1=-0.1"}, "optimizer.beta1 is -0.1"},
      {{"optimizer.eps=0"}, "optimizer.eps is 0"},
      {{"optimizer.min_lr_ratio=1.5"}, "optimizer.min_lr_ratio is 1.5"},
      {{"optimizer.decay_fraction=-1"}, "optimizer.decay_fraction is -1"},
      {{"optimizer.weight_decay=-1"}, "optimizer.weight_decay is -1"},
      {{"optimizer.warmup_steps=-1"}, "optimizer.warmup_steps is -1"},
      {{"optimizer.clip_norm=-1"}, "optimizer.clip_norm is -1"},
      {{"keep_last=0"}, "keep_last is 0"},
      {{"log_every=0"}, "log_every is 0"},
      {{"seed=-1"}, "seed is -1"},
      {{"model.heads=7"}, "dim (256) is not a multiple of heads (7)"},
  };
  for (const auto& [settings, part] : cases) {
    const std::string found = error_of(ErrorCode::kInvalidArgument, [&, &list = settings] {
      TrainConfig c;
      for (const std::string& setting : list) config_set(c, setting);
      derive(c);
    });
    EXPECT_NE(found.find(part), std::string::npos) << found;
  }
}

TEST(TrainConfig, WarnsOfAWarmUpThatNeverEnds) {
  TrainConfig c;
  c.steps = 50, c.optimizer.warmup_steps = 51;
  ::testing::internal::CaptureStderr();
  derive(c);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("optimizer.warmup_steps (51) exceeds steps (50)"),
            std::string::npos);
  c.optimizer.warmup_steps = 50;
  ::testing::internal::CaptureStderr();
  derive(c);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace loam
