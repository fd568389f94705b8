#include "loam/nn/modules.h"

#include <cmath>

#include "loam/autograd/recompute.h"
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

ParamRef declare_matrix(ParamStore& store, const std::string& name, int layer, Shape shape, const ModelConfig& config,
                        bool into_residual, std::vector<RowSlice> slices = {}) {
  ParamSpec spec;
  spec.name = name;
  spec.shape = shape;
  spec.kind = ParamKind::matrix;
  spec.layer = layer;
  spec.init = matrix_init(config, shape[0], shape[1], into_residual);
  spec.lr_scale = 1 / mup_width(config);
  for (RowSlice& slice : slices) slice.std = matrix_init(config, slice.rows, shape[1], into_residual).std;
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

}  // namespace

ParamInit matrix_init(const ModelConfig& config, int64_t rows, int64_t columns, bool into_residual) {
  ParamInit init;
  init.kind = config.init == InitKind::normal ? ParamInit::Kind::normal : ParamInit::Kind::truncated_normal;
  init.std = config.init_std > 0 ? config.init_std : std::sqrt(2.0 / static_cast<double>(rows + columns));
  init.std /= std::sqrt(mup_width(config));
  if (into_residual && config.scaled_residual_init) init.std /= std::sqrt(2.0 * static_cast<double>(config.layers));
  if (into_residual && config.zero_init_residual) init.kind = ParamInit::Kind::zeros;
  return init;
}

Norm::Norm(ParamStore& store, const std::string& name, int layer, const ModelConfig& config, int64_t width)
    : kind(config.norm), eps(static_cast<float>(config.norm_eps)), form(ops::NormWeight::plain) {
  const bool one_plus = config.norm_scale == NormScale::one_plus_weight;
  if (one_plus) form = ops::NormWeight::one_plus;
  if (config.norm_scale != NormScale::none) {
    weight = declare_vector(store, name + ".weight", layer, width,
                            one_plus ? ParamInit::Kind::zeros : ParamInit::Kind::ones);
  }
  if (config.norm_bias) bias = declare_vector(store, name + ".bias", layer, width, ParamInit::Kind::zeros);
}

Var Norm::operator()(const Context& ctx, const Var& x) const {
  return kind == NormKind::rms ? ops::rms_norm(ctx, x, weight, eps, form)
                               : ops::layer_norm(ctx, x, weight, bias, eps, form);
}

namespace {

// Random numbers of dropout: embedding 0, then up to four uses a layer.
enum class DropoutUse : uint64_t { weights, attention, mlp };
uint64_t dropout_site(int layer, DropoutUse use) {
  return 4 * static_cast<uint64_t>(layer + 1) + static_cast<uint64_t>(use);
}

ops::AttentionOptions attention_options(int layer, const ModelConfig& config) {
  ops::AttentionOptions options;
  options.scale = static_cast<float>(config.attention_scale);
  options.softcap = static_cast<float>(config.attention_softcap);
  options.window = attention_span(config, layer) == AttentionSpan::window ? config.window : 0;
  options.dropout = {static_cast<float>(config.attention_dropout), dropout_site(layer, DropoutUse::weights)};
  return options;
}

}  // namespace

Attention::Attention(ParamStore& store, const std::string& name, int layer_index, const ModelConfig& config)
    : layer(layer_index),
      heads(config.heads),
      kv_heads(config.kv_heads),
      head_dim(config.head_dim),
      position(layer_position(config, layer_index)),
      windowed(attention_span(config, layer_index) == AttentionSpan::window),
      layout(config.rope_pairs == RopePairs::half ? RopeLayout::half : RopeLayout::interleaved),
      qk_norm(config.qk_norm),
      options(attention_options(layer_index, config)) {
  const int64_t q_rows = heads * head_dim, kv_rows = kv_heads * head_dim;
  const std::vector<RowSlice> slices{{"q", 0, q_rows}, {"k", q_rows, kv_rows}, {"v", q_rows + kv_rows, kv_rows}};
  qkv = declare_matrix(store, name + ".qkv", layer, {q_rows + 2 * kv_rows, config.dim}, config, false, slices);
  out = declare_matrix(store, name + ".out", layer, {config.dim, q_rows}, config, true);
  const auto zeros = ParamInit::Kind::zeros;
  if (config.attention_bias) {
    qkv_bias = declare_vector(store, name + ".qkv.bias", layer, q_rows + 2 * kv_rows, zeros, slices);
  }
  if (config.attention_out_bias) out_bias = declare_vector(store, name + ".out.bias", layer, config.dim, zeros);
  if (qk_norm == QkNorm::none) return;
  const bool per_head = qk_norm == QkNorm::head;
  q_norm.emplace(store, name + ".q_norm", layer, config, per_head ? head_dim : q_rows);
  k_norm.emplace(store, name + ".k_norm", layer, config, per_head ? head_dim : kv_rows);
}

Var Attention::operator()(const Context& ctx, const Var& x, const PositionTables& tables,
                          SequenceContext& sequence) const {
  const ModuleScope module(ctx, "attention");
  const auto [batch, length, C] = x.value.dims<3>();
  const int64_t B = batch, T = length, q_rows = heads * head_dim, kv_rows = kv_heads * head_dim;
  const std::vector<Var> parts = ops::split(ctx, ops::linear(ctx, x, qkv, qkv_bias), {q_rows, kv_rows, kv_rows});
  // [B,T, n D] -> [B,T,n,D], normalised and rotated.
  const auto prepared = [&](const Var& rows, int64_t n, const std::optional<Norm>& norm) {
    Var y = qk_norm == QkNorm::full ? (*norm)(ctx, rows) : rows;
    y = ops::reshape(ctx, y, {B, T, n, head_dim});
    if (qk_norm == QkNorm::head) y = (*norm)(ctx, y);
    if (position != PositionKind::rope) return y;
    return ops::rope(ctx, y, sequence.positions(), windowed ? tables.window_rotation : tables.rotation, layout);
  };
  const Var q = prepared(parts[0], heads, q_norm), k = prepared(parts[1], kv_heads, k_norm);
  const Var v = ops::reshape(ctx, parts[2], {B, T, kv_heads, head_dim});
  ops::AttentionOptions here = options;
  if (position == PositionKind::alibi) here.slopes = tables.slopes;
  const Var mixed = sequence.attend(ctx, layer, q, k, v, here);  // [B,T,H,D]
  return ops::linear(ctx, ops::reshape(ctx, mixed, {B, T, q_rows}), out, out_bias);
}

Mlp::Mlp(ParamStore& store, const std::string& name, int layer, const ModelConfig& config)
    : activation(kernel_of(config.activation)), gated(config.gated) {
  const int64_t F = config.ffn_dim, C = config.dim;
  const std::vector<RowSlice> slices =
      gated ? std::vector<RowSlice>{{"gate", 0, F}, {"up", F, F}} : std::vector<RowSlice>{};
  const int64_t up_rows = gated ? 2 * F : F;
  up = declare_matrix(store, name + ".up", layer, {up_rows, C}, config, false, slices);
  down = declare_matrix(store, name + ".down", layer, {C, F}, config, true);
  if (!config.mlp_bias) return;
  up_bias = declare_vector(store, name + ".up.bias", layer, up_rows, ParamInit::Kind::zeros, slices);
  down_bias = declare_vector(store, name + ".down.bias", layer, C, ParamInit::Kind::zeros);
}

Var Mlp::operator()(const Context& ctx, const Var& x) const {
  const ModuleScope module(ctx, "mlp");
  const Var hidden = ops::linear(ctx, x, up, up_bias);
  const Var active = gated ? ops::gated(ctx, hidden, activation) : ops::activation(ctx, hidden, activation);
  return ops::linear(ctx, active, down, down_bias);
}

namespace {

std::optional<Norm> norm_if(bool wanted, ParamStore& store, const std::string& name, int layer,
                            const ModelConfig& config) {
  if (!wanted) return std::nullopt;
  return Norm(store, fmt::format("layers.{}.{}", layer, name), layer, config, config.dim);
}

bool before(NormPlace place) { return place == NormPlace::pre || place == NormPlace::sandwich; }
bool after(NormPlace place) {
  return place == NormPlace::post || place == NormPlace::output || place == NormPlace::sandwich;
}

}  // namespace

Block::Block(ParamStore& store, int layer_index, const ModelConfig& c)
    : layer(layer_index),
      place(c.norm_place),
      form(c.block),
      residual_scale(static_cast<float>(c.residual_scale)),
      dropout(static_cast<float>(c.dropout)),
      attention_norm(norm_if(before(place), store, "attention_norm", layer, c)),
      attention_post_norm(norm_if(after(place), store, "attention_post_norm", layer, c)),
      mlp_norm(norm_if(before(place) && form != BlockForm::parallel_one_norm, store, "mlp_norm", layer, c)),
      mlp_post_norm(norm_if(after(place), store, "mlp_post_norm", layer, c)),
      attention(store, fmt::format("layers.{}.attention", layer), layer, c),
      mlp(store, fmt::format("layers.{}.mlp", layer), layer, c) {}

Var Block::branch(const Context& ctx, const Var& y, const std::optional<Norm>& post_norm, uint64_t site) const {
  Var out = post_norm && place != NormPlace::post ? (*post_norm)(ctx, y) : y;
  if (residual_scale != 1) out = ops::scale(ctx, out, residual_scale);
  return ops::dropout(ctx, out, dropout, site);
}

uint64_t Block::attention_site() const { return dropout_site(layer, DropoutUse::attention); }
uint64_t Block::mlp_site() const { return dropout_site(layer, DropoutUse::mlp); }

namespace {

// part(x), which backward computes again if `again`.
template <class Part>
Var run_part(const Context& ctx, bool again, const Part& part, const Var& x) {
  if (!again) return part(ctx, x);
  const Segment segment = [part](const Context& c, const std::vector<Var>& in) { return std::vector{part(c, in[0])}; };
  return recompute(ctx, segment, {x})[0];
}

Var normed(const Context& ctx, const std::optional<Norm>& norm, const Var& x) { return norm ? (*norm)(ctx, x) : x; }

}  // namespace

Var Block::operator()(const Context& ctx, const Var& x, const PositionTables& tables, SequenceContext& sequence,
                      RecomputePart again) const {
  const ModuleScope module(ctx, "layers", layer);
  const Part attended = [this, &tables, &sequence](const Context& c, const Var& v) {
    return branch(c, attention(c, v, tables, sequence), attention_post_norm, attention_site());
  };
  const Part fed = [this](const Context& c, const Var& v) { return branch(c, mlp(c, v), mlp_post_norm, mlp_site()); };
  return form == BlockForm::serial ? serial(ctx, x, attended, fed, again) : parallel(ctx, x, attended, fed, again);
}

Var Block::serial(const Context& ctx, const Var& x, const Part& attended, const Part& fed, RecomputePart again) const {
  const auto joined = [&](const Var& v, const Var& y, const std::optional<Norm>& post_norm) {
    const Var sum = ops::add(ctx, v, y);
    return place == NormPlace::post ? (*post_norm)(ctx, sum) : sum;
  };
  const auto attention_part = [this, attended](const Context& c, const Var& v) {
    return attended(c, normed(c, attention_norm, v));
  };
  const auto mlp_part = [this, fed](const Context& c, const Var& v) { return fed(c, normed(c, mlp_norm, v)); };
  const Var mixed = joined(x, run_part(ctx, recomputes_attention(again), attention_part, x), attention_post_norm);
  return joined(mixed, run_part(ctx, recomputes_mlp(again), mlp_part, mixed), mlp_post_norm);
}

Var Block::parallel(const Context& ctx, const Var& x, const Part& attended, const Part& fed,
                    RecomputePart again) const {
  const Var for_attention = normed(ctx, attention_norm, x);
  const Var for_mlp = mlp_norm ? (*mlp_norm)(ctx, x) : for_attention;
  const Var mixed = run_part(ctx, recomputes_attention(again), attended, for_attention);
  const Var out = run_part(ctx, recomputes_mlp(again), fed, for_mlp);
  return ops::add(ctx, x, ops::add(ctx, mixed, out));
}

}  // namespace loam
