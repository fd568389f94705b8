#include "loam/model/transformer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "loam/autograd/recompute.h"
#include "loam/ops/basic.h"
#include "loam/ops/embedding.h"
#include "loam/ops/linear.h"

namespace loam {
namespace {

ParamRef declare(ParamStore& store, const std::string& name, Shape shape, ParamKind kind, ParamInit init) {
  ParamSpec spec;
  spec.name = name;
  spec.shape = shape;
  spec.kind = kind;
  spec.init = init;
  return store.declare(std::move(spec));
}

ParamInit table_init(const ModelConfig& c) {
  ParamInit init = matrix_init(c, 1, 1);  // its kind, and a standard deviation of 1 where none is stated
  init.std = c.embedding_init_std > 0 ? c.embedding_init_std : c.init_std > 0 ? c.init_std : 1;
  return init;
}

ParamInit head_init(const ModelConfig& c, int64_t rows) {
  ParamInit init = matrix_init(c, rows, c.dim);
  init.std *= std::sqrt(mup_width(c));  // the head's multiplier shrinks instead
  if (c.zero_init_head) init.kind = ParamInit::Kind::zeros;
  return init;
}

// The embedding's table where it is tied.
ParamRef declare_head(ParamStore& store, const ModelConfig& c, const ParamRef& embedding) {
  if (c.tied_embeddings) return embedding;
  return declare(store, "head", {head_rows(c), c.dim}, ParamKind::matrix, head_init(c, head_rows(c)));
}

ModelConfig checked(const ModelConfig& config) {
  LOAM_CHECK(config.vocab_size > 0, "model.vocab_size is 0; the tokenizer's size belongs there");
  LOAM_CHECK(config.kv_heads > 0 && config.head_dim > 0 && config.ffn_dim > 0,
             "model: its configuration is not derived");
  return config;
}

// Learned and sinusoidal positions are rows of a table: there is none beyond the context.
void check_positions(const Tensor& positions, int64_t context_length) {
  if (positions.device().kind != DeviceKind::cpu) return;
  for (int32_t position : positions.span<int32_t>()) {
    LOAM_CHECK(position >= 0 && position < context_length,
               "model: position {} is outside the {} positions of its table (context_length)", position,
               context_length);
  }
}

}  // namespace

Transformer::Transformer(ParamStore& store, const ModelConfig& config) : config_(checked(config)) {
  const ModelConfig& c = config_;
  embedding_ = declare(store, "embedding", {c.vocab_size, c.dim}, ParamKind::embedding, table_init(c));
  if (c.positions == PositionKind::learned) {
    positions_ = declare(store, "positions", {c.context_length, c.dim}, ParamKind::embedding, table_init(c));
  }
  head_ = declare_head(store, c, embedding_);
  if (c.head_bias) {
    head_bias_ = declare(store, "head.bias", {head_rows(c)}, ParamKind::vector, {ParamInit::Kind::zeros});
  }
  for (int layer = 0; layer < c.layers; ++layer) blocks_.emplace_back(store, layer, c);
  if (c.final_norm) norm_.emplace(store, "norm", -1, c, c.dim);
}

void Transformer::allocate(const ExecContext& ctx) {
  tables_ = PositionTables(Context(ctx), config_, embedding_.value().dtype());
  allocated_ = true;
}

ops::LanguageHead Transformer::head() const {
  LOAM_CHECK(config_.head == HeadKind::language_model, "model: it has a scalar head, not a language model's");
  ops::LanguageHead head(head_);
  head.bias = head_bias_;
  head.scale = static_cast<float>(config_.logit_scale / mup_width(config_));
  head.softcap = static_cast<float>(config_.logit_softcap);
  return head;
}

Var Transformer::embed(const Context& ctx, const Tensor& ids, SequenceContext& sequence) const {
  const Tensor& positions = sequence.positions();
  LOAM_CHECK(ids.rank() == 2 && positions.shape() == ids.shape(), "model: ids {} and positions {} must be one [B,T]",
             ids.shape().str(), positions.shape().str());
  Var x = ops::embedding(ctx, ids, embedding_);
  if (config_.embedding_scale != 1) {
    // Rounded to the model's dtype, as Gemma is trained and as transformers does.
    const float factor = visit_float(x.dtype(), "model", [&](auto type) {
      return static_cast<float>(decltype(type)(static_cast<float>(config_.embedding_scale)));
    });
    x = ops::scale(ctx, x, factor);
  }
  if (config_.positions == PositionKind::learned || config_.positions == PositionKind::sinusoidal) {
    check_positions(positions, config_.context_length);
    x = ops::add(ctx, x,
                 positions_ ? ops::embedding(ctx, positions, positions_)
                            : Var(ops::table_rows(ctx, positions, tables_.sinusoids)));
  }
  return ops::dropout(ctx, x, static_cast<float>(config_.dropout), 0);
}

Var Transformer::block(const Context& ctx, int layer, const Var& x, SequenceContext& sequence,
                       RecomputePart again) const {
  LOAM_CHECK(allocated_, "model: allocate() was not called");
  return blocks_[static_cast<size_t>(layer)](ctx, x, tables_, sequence, again);
}

Var Transformer::blocks(const Context& ctx, Var x, SequenceContext& sequence, const RecomputeConfig& again,
                        const Seen& seen) const {
  const Stage stage = [this, &sequence, part = again.part, seen](const Context& c, int64_t layer, const Var& in) {
    Var out = block(c, static_cast<int>(layer), in, sequence, part);
    if (seen) seen(static_cast<int>(layer), out.value);
    return out;
  };
  return recompute_chain(ctx, layers(), again.groups, stage, std::move(x));
}

Var Transformer::final_norm(const Context& ctx, const Var& x) const { return norm_ ? (*norm_)(ctx, x) : x; }

Var Transformer::scalars(const Context& ctx, const Var& hidden) const {
  LOAM_CHECK(config_.head == HeadKind::scalar, "model: it has a language model's head, not a scalar one");
  const auto [B, T, C] = hidden.value.dims<3>();
  const double width = mup_width(config_);
  const Var scaled = width == 1 ? hidden : ops::scale(ctx, hidden, static_cast<float>(1 / width));
  const Var values = ops::reshape(ctx, ops::linear(ctx, scaled, head_, head_bias_), {B, T});
  return values.dtype() == DType::f32 ? values : ops::cast(ctx, values, DType::f32);
}

Var Transformer::hidden(const Context& ctx, const Tensor& ids, SequenceContext& sequence,
                        const RecomputeConfig& again) const {
  return final_norm(ctx, blocks(ctx, embed(ctx, ids, sequence), sequence, again));
}

Tensor Transformer::logits(const Context& ctx, const Tensor& hidden) const { return ops::logits(ctx, hidden, head()); }

}  // namespace loam
