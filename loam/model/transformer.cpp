#include "loam/model/transformer.h"

#include <algorithm>

#include "loam/ops/attention.h"
#include "loam/ops/basic.h"
#include "loam/ops/embedding.h"
#include "loam/ops/linear.h"

namespace loam {
namespace {

ParamRef declare_table(ParamStore& store, const std::string& name, Shape shape, ParamKind kind, double std) {
  ParamSpec spec;
  spec.name = name;
  spec.shape = shape;
  spec.kind = kind;
  spec.init.std = std;
  return store.declare(std::move(spec));
}

ModelConfig checked(const ModelConfig& config) {
  LOAM_CHECK(config.vocab_size > 0, "model.vocab_size is 0; the tokenizer's size belongs there");
  LOAM_CHECK(config.kv_heads > 0 && config.head_dim > 0 && config.ffn_dim > 0,
             "model: its configuration is not derived");
  return config;
}

// Learned positions are rows of a table: there is none beyond the context.
void check_positions(const Tensor& positions, int64_t context_length) {
  if (positions.device().kind != DeviceKind::cpu) return;
  for (int32_t position : positions.span<int32_t>()) {
    LOAM_CHECK(position >= 0 && position < context_length,
               "model: position {} is outside the {} learned positions (context_length)", position, context_length);
  }
}

}  // namespace

Block::Block(ParamStore& store, int layer, const ModelConfig& config)
    : attention_norm(store, fmt::format("layers.{}.attention_norm", layer), layer, config),
      attention(store, fmt::format("layers.{}.attention", layer), layer, config),
      mlp_norm(store, fmt::format("layers.{}.mlp_norm", layer), layer, config),
      mlp(store, fmt::format("layers.{}.mlp", layer), layer, config) {}

Var Block::operator()(const Context& ctx, const Var& x, const Tensor& frequency, SequenceContext& sequence) const {
  const Var mixed = ops::add(ctx, x, attention(ctx, attention_norm(ctx, x), frequency, sequence));
  return ops::add(ctx, mixed, mlp(ctx, mlp_norm(ctx, mixed)));
}

Transformer::Transformer(ParamStore& store, const ModelConfig& config)
    : config_(checked(config)),
      embedding_(
          declare_table(store, "embedding", {config.vocab_size, config.dim}, ParamKind::embedding, config.init_std)),
      positions_(config.positions == PositionKind::learned
                     ? declare_table(store, "positions", {config.context_length, config.dim}, ParamKind::embedding,
                                     config.init_std)
                     : ParamRef{}),
      head_(config.tied_embeddings
                ? embedding_
                : declare_table(store, "head", {config.vocab_size, config.dim}, ParamKind::matrix, config.init_std)),
      blocks_([&] {
        std::vector<Block> blocks;
        for (int layer = 0; layer < config.layers; ++layer) blocks.emplace_back(store, layer, config);
        return blocks;
      }()),
      norm_(store, "norm", -1, config) {}

void Transformer::allocate(const ExecContext& ctx) {
  if (config_.positions != PositionKind::rope) return;
  frequency_ = ops::rope_frequency(Context(ctx), config_.head_dim, config_.rope_theta);
}

Var Transformer::embed(const Context& ctx, const Tensor& ids, SequenceContext& sequence) const {
  const Tensor& positions = sequence.positions();
  LOAM_CHECK(ids.rank() == 2 && positions.shape() == ids.shape(), "model: ids {} and positions {} must be one [B,T]",
             ids.shape().str(), positions.shape().str());
  const Var x = ops::embedding(ctx, ids, embedding_);
  if (config_.positions != PositionKind::learned) return x;
  check_positions(positions, config_.context_length);
  return ops::add(ctx, x, ops::embedding(ctx, positions, positions_));
}

Var Transformer::block(const Context& ctx, int layer, const Var& x, SequenceContext& sequence) const {
  LOAM_CHECK(frequency_ || config_.positions != PositionKind::rope, "model: allocate() was not called");
  return blocks_[static_cast<size_t>(layer)](ctx, x, frequency_, sequence);
}

Var Transformer::final_norm(const Context& ctx, const Var& x) const { return norm_(ctx, x); }

Var Transformer::hidden(const Context& ctx, const Tensor& ids, SequenceContext& sequence) const {
  Var x = embed(ctx, ids, sequence);
  for (int layer = 0; layer < static_cast<int>(layers()); ++layer) x = block(ctx, layer, x, sequence);
  return final_norm(ctx, x);
}

Tensor Transformer::logits(const Context& ctx, const Tensor& hidden) const { return ops::logits(ctx, hidden, head_); }

}  // namespace loam
