// Small token sets and configurations for tests of training.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "loam/base/philox.h"
#include "loam/config/train_config.h"
#include "loam/data/token_shard.h"
#include "tests/harness/temp_dir.h"

namespace loam::testing {

inline constexpr int64_t kVocab = 61;  // the model rounds it up to 64
inline constexpr int32_t kEndOfText = 60;

// Documents of learnable noise: each token is a fixed function of the one before, with an exception now and then.
inline std::vector<int32_t> make_document(int64_t length, uint64_t seed) {
  const PhiloxStream random{seed, 3};
  std::vector<int32_t> ids;
  int32_t token = static_cast<int32_t>(random.below(0, 60));
  for (int64_t i = 1; i < length; ++i) {
    ids.push_back(token);
    token = random.uniform(static_cast<uint64_t>(1000 + i)) < 0.1f
                ? static_cast<int32_t>(random.below(static_cast<uint64_t>(100000 + i), 60))
                : (token * 7 + 3) % 60;
  }
  ids.push_back(kEndOfText);
  return ids;
}

// A document that breaks the rule of all others at every token.
inline std::vector<int32_t> make_noise(int64_t length, uint64_t seed) {
  std::vector<int32_t> ids = make_document(length, seed);
  for (size_t i = 1; i + 1 < ids.size(); ++i) ids[i] = (ids[i - 1] * 11 + 17) % 60;
  return ids;
}

inline void write_set(const Path& directory, const std::vector<std::vector<int32_t>>& documents,
                      int64_t vocab = kVocab) {
  TokenSetInfo info;
  info.tokenizer_fingerprint = "test";
  info.vocab_size = vocab;
  info.end_of_text = kEndOfText;
  TokenSetWriter writer(directory, info);
  for (const auto& document : documents) writer.add(document, 3 * static_cast<int64_t>(document.size()));
  writer.finish();
}

inline std::vector<std::vector<int32_t>> documents(int64_t count, uint64_t seed) {
  std::vector<std::vector<int32_t>> all;
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t key = seed * 1000 + static_cast<uint64_t>(i);
    all.push_back(make_document(5 + static_cast<int64_t>(PhiloxStream{key, 4}.below(0, 90)), key));
  }
  return all;
}

// DIR/train and DIR/val.
inline void write_data(const Path& directory, uint64_t seed = 1) {
  write_set(directory / "train", documents(120, seed));
  write_set(directory / "val", documents(12, seed + 7));
}

inline TrainConfig tiny_config() {
  TrainConfig config;
  config.model.vocab_size = 64;
  config.model.context_length = 24;
  config.model.layers = 2;
  config.model.dim = 32;
  config.model.heads = 4;
  config.model.kv_heads = 2;
  config.optimizer.lr = 1e-2;
  config.optimizer.warmup_steps = 5;
  config.steps = 40;
  config.batch = 4;
  config.micro_batch = 2;
  config.log_every = 1;
  config.val_every = 10;
  config.val_rows = 7;
  config.save_every = 10;
  config.sample_every = 0;
  return config;
}

}  // namespace loam::testing
