#include "loam/nn/modules.h"

#include <cmath>

#include "loam/ops/activation.h"
#include "loam/ops/attention.h"
#include "loam/ops/basic.h"
#include "loam/ops/linear.h"
#include "loam/ops/norm.h"

namespace loam {
namespace {

Activation kernel_of(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::silu:
      return Activation::silu;
    case ActivationKind::gelu:
      return Activation::gelu;
    case ActivationKind::gelu_tanh:
      return Activation::gelu_tanh;
    case ActivationKind::relu:
      return Activation::relu;
    case ActivationKind::relu_squared:
      return Activation::relu_squared;
  }
  fail(ErrorCode::kInternal, "activation: a kind without a kernel");
}

ParamRef declare_matrix(ParamStore& store, const std::string& name, int layer, Shape shape, double std,
                        std::vector<RowSlice> slices = {}) {
  ParamSpec spec;
  spec.name = name;
  spec.shape = shape;
  spec.kind = ParamKind::matrix;
  spec.layer = layer;
  spec.init.std = std;
  spec.slices = std::move(slices);
  return store.declare(std::move(spec));
}

ParamRef declare_vector(ParamStore& store, const std::string& name, int layer, int64_t size, ParamInit::Kind init,
                        std::vector<RowSlice> slices = {}) {
  ParamSpec spec;
  spec.name = name;
  spec.shape = {size};
  spec.kind = ParamKind::vector;
  spec.layer = layer;
  spec.init.kind = init;
  spec.slices = std::move(slices);
  return store.declare(std::move(spec));
}

// Each block adds twice to the residual stream: this keeps its variance from growing with depth (GPT-2).
double residual_std(const ModelConfig& config) {
  return config.scaled_residual_init ? config.init_std / std::sqrt(2.0 * static_cast<double>(config.layers))
                                     : config.init_std;
}

}  // namespace

Norm::Norm(ParamStore& store, const std::string& name, int layer, const ModelConfig& config)
    : kind(config.norm), eps(static_cast<float>(config.norm_eps)) {
  weight = declare_vector(store, name + ".weight", layer, config.dim, ParamInit::Kind::ones);
  if (config.norm_bias) bias = declare_vector(store, name + ".bias", layer, config.dim, ParamInit::Kind::zeros);
}

Var Norm::operator()(const Context& ctx, const Var& x) const {
  return kind == NormKind::rms ? ops::rms_norm(ctx, x, weight, eps) : ops::layer_norm(ctx, x, weight, bias, eps);
}

Attention::Attention(ParamStore& store, const std::string& name, int layer_index, const ModelConfig& config)
    : layer(layer_index),
      heads(config.heads),
      kv_heads(config.kv_heads),
      head_dim(config.head_dim),
      rotary(config.positions == PositionKind::rope),
      pairs(config.rope_pairs) {
  const int64_t q_rows = heads * head_dim, kv_rows = kv_heads * head_dim;
  const std::vector<RowSlice> slices{{"q", 0, q_rows}, {"k", q_rows, kv_rows}, {"v", q_rows + kv_rows, kv_rows}};
  qkv = declare_matrix(store, name + ".qkv", layer, {q_rows + 2 * kv_rows, config.dim}, config.init_std, slices);
  out = declare_matrix(store, name + ".out", layer, {config.dim, q_rows}, residual_std(config));
  const auto zeros = ParamInit::Kind::zeros;
  if (config.attention_bias) {
    qkv_bias = declare_vector(store, name + ".qkv.bias", layer, q_rows + 2 * kv_rows, zeros, slices);
  }
  if (config.attention_out_bias) out_bias = declare_vector(store, name + ".out.bias", layer, config.dim, zeros);
}

Var Attention::operator()(const Context& ctx, const Var& x, const Tensor& frequency, SequenceContext& sequence) const {
  const auto [B, T, C] = x.value.dims<3>();
  const int64_t q_rows = heads * head_dim, kv_rows = kv_heads * head_dim;
  const std::vector<Var> parts = ops::split(ctx, ops::linear(ctx, x, qkv, qkv_bias), {q_rows, kv_rows, kv_rows});
  Var q = ops::reshape(ctx, parts[0], {B, T, heads, head_dim});           // [B,T,H,D]
  Var k = ops::reshape(ctx, parts[1], {B, T, kv_heads, head_dim});        // [B,T,K,D]
  const Var v = ops::reshape(ctx, parts[2], {B, T, kv_heads, head_dim});  // [B,T,K,D]
  if (rotary) {
    const RopeLayout layout = pairs == RopePairs::half ? RopeLayout::half : RopeLayout::interleaved;
    q = ops::rope(ctx, q, sequence.positions(), frequency, layout);
    k = ops::rope(ctx, k, sequence.positions(), frequency, layout);
  }
  const Var mixed = sequence.attend(ctx, layer, q, k, v);  // [B,T,H,D]
  return ops::linear(ctx, ops::reshape(ctx, mixed, {B, T, q_rows}), out, out_bias);
}

Mlp::Mlp(ParamStore& store, const std::string& name, int layer, const ModelConfig& config)
    : activation(config.activation), gated(config.gated) {
  const int64_t F = config.ffn_dim, C = config.dim;
  const std::vector<RowSlice> slices =
      gated ? std::vector<RowSlice>{{"gate", 0, F}, {"up", F, F}} : std::vector<RowSlice>{};
  const int64_t up_rows = gated ? 2 * F : F;
  up = declare_matrix(store, name + ".up", layer, {up_rows, C}, config.init_std, slices);
  down = declare_matrix(store, name + ".down", layer, {C, F}, residual_std(config));
  if (!config.mlp_bias) return;
  up_bias = declare_vector(store, name + ".up.bias", layer, up_rows, ParamInit::Kind::zeros, slices);
  down_bias = declare_vector(store, name + ".down.bias", layer, C, ParamInit::Kind::zeros);
}

Var Mlp::operator()(const Context& ctx, const Var& x) const {
  const Var hidden = ops::linear(ctx, x, up, up_bias);
  const Activation f = kernel_of(activation);
  const Var active = gated ? ops::gated(ctx, hidden, f) : ops::activation(ctx, hidden, f);
  return ops::linear(ctx, active, down, down_bias);
}

}  // namespace loam
