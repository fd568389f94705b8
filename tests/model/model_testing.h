// The fixtures of tests/fixtures/make_model_fixtures.py, and what tests of models share.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "loam/autograd/tape.h"
#include "loam/format/safetensors.h"
#include "loam/model/model_files.h"
#include "loam/ops/linear_log_prob.h"
#include "tests/harness/shared.h"

namespace loam::testing {

inline Path fixture(const std::string& name) { return source_path("tests/fixtures/models") / name; }
inline const std::vector<std::string> kFixtures{"llama_tied",
                                                "llama_untied_bias",
                                                "llama_linear",
                                                "llama_llama3",
                                                "llama_yarn",
                                                "llama_sharded",
                                                "mistral_window",
                                                "qwen2_tied",
                                                "qwen2_windows",
                                                "qwen3_tied",
                                                "qwen3_yarn_bias",
                                                "gemma2",
                                                "gemma3",
                                                "olmo2",
                                                "smollm3_nope",
                                                "smollm3_nope_window",
                                                "phi3_partial_window",
                                                "phi3_longrope",
                                                "gpt_neox_parallel",
                                                "gpt_neox_serial",
                                                "gpt2_tied",
                                                "gpt2_untied"};

inline std::vector<float> floats(const Tensor& t) {
  std::vector<float> values(static_cast<size_t>(t.numel()));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] =
        visit_float(t.dtype(), "test", [&](auto type) { return static_cast<float>(t.data<decltype(type)>()[i]); });
  }
  return values;
}

// ||a - b|| / ||b||
inline double relative_error(std::span<const float> a, std::span<const float> b) {
  EXPECT_EQ(a.size(), b.size());
  double difference = 0, norm = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    difference += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    norm += double{b[i]} * b[i];
  }
  return std::sqrt(difference / norm);
}

struct Batch {
  Tensor ids, targets, positions, first_key;  // [B,T] i32
};

inline Batch batch_of(const SafetensorsFile& file) {
  return {file.tensor("ids"), file.tensor("targets"), file.tensor("positions"), file.tensor("first_key")};
}

// Logits [B T, V] of whole rows.
inline std::vector<float> logits_of(const ExecContext& exec, const Model& model, const Batch& batch) {
  const Context ctx(exec);
  FullSequence sequence(batch.positions, batch.first_key);
  const Tensor hidden = model.transformer->hidden(ctx, batch.ids, sequence).value;
  return floats(model.transformer->logits(ctx, hidden.reshape({batch.ids.numel(), model.config().dim})));
}

// One document of the given ids in one row.
inline Batch one_row(Arena& arena, const std::vector<int32_t>& ids) {
  const auto T = static_cast<int64_t>(ids.size());
  std::vector<int32_t> positions;
  for (int32_t t = 0; t < T; ++t) positions.push_back(t);
  return {Tensor::from<int32_t>(arena, {1, T}, ids), {}, Tensor::from<int32_t>(arena, {1, T}, positions), {}};
}

// Every way to compute again: groups, groups within groups, parts of blocks, and both.
inline const std::vector<RecomputeConfig> kRecomputations{
    {{1}, RecomputePart::none},     {{2}, RecomputePart::none}, {{2, 1}, RecomputePart::none}, {{}, RecomputePart::mlp},
    {{}, RecomputePart::attention}, {{}, RecomputePart::both},  {{2, 1}, RecomputePart::both}};

// Forward and backward; gradients, those of the loss times `loss_scale`, land in the model's store. Returns the mean
// loss.
inline float train_pass(const ExecContext& exec, const Model& model, const Batch& batch, float z_loss = 0,
                        const RecomputeConfig& again = {}, float loss_scale = 1) {
  Tape tape;
  const Context ctx(exec, &tape);
  FullSequence sequence(batch.positions, batch.first_key);
  int64_t count = 0;
  for (int32_t target : batch.targets.span<int32_t>()) count += target >= 0;
  model.weights->clear_gradients();
  const Var hidden = model.transformer->hidden(ctx, batch.ids, sequence, again);
  const auto loss = ops::cross_entropy(ctx, hidden, model.transformer->head(), batch.targets,
                                       loss_scale / static_cast<float>(count), z_loss);
  tape.backward(ctx, loss.loss);
  model.weights->finish_gradients(exec);
  return loss.loss.value.data<float>()[0] / loss_scale;
}

}  // namespace loam::testing
