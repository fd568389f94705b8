#include "loam/train/details.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "loam/kernels/kernel_table.h"
#include "loam/model/transformer.h"
#include "loam/nn/sequence.h"

namespace loam {
namespace {

std::string layer_name(int64_t layer) { return fmt::format("layers.{}", layer); }

// "layers.3.mlp.up" belongs to "layers.3", "norm.weight" to "norm".
std::string owner_of(const ParamSpec& spec) {
  return spec.layer >= 0 ? layer_name(spec.layer) : spec.name.substr(0, spec.name.find('.'));
}

// Hands on what it is asked, with a place for the largest logits.
class WatchedSequence : public SequenceContext {
 public:
  using Watch = std::function<void(int layer, const Tensor& largest)>;
  WatchedSequence(SequenceContext& sequence, Watch watch) : sequence_(sequence), watch_(std::move(watch)) {}
  const Tensor& positions() const override { return sequence_.positions(); }
  Var attend(const Context& ctx, int layer, const Var& q, const Var& k, const Var& v,
             const ops::AttentionOptions& options) override {
    ops::AttentionOptions watched = options;
    watched.max_logit =
        ctx.empty({q.shape()[0], q.shape()[2], q.shape()[1]}, DType::f32, MemoryKind::workspace);  // [B,H,T]
    const Var out = sequence_.attend(ctx, layer, q, k, v, watched);
    watch_(layer, watched.max_logit);
    return out;
  }

 private:
  SequenceContext& sequence_;
  Watch watch_;
};

double sum_squares(const ExecContext& ctx, const Tensor& values) {
  const Tensor sum = ctx.empty({1}, DType::i64, MemoryKind::workspace);  // an f64's bits
  ctx.kernels->fill(ctx, {sum, 0.0f});
  ctx.kernels->sum_squares(ctx, {.x = values.reshape({values.numel()}), .out = static_cast<double*>(sum.view().data)});
  return std::bit_cast<double>(sum.to_host().span<int64_t>()[0]);
}

}  // namespace

Json to_json(const std::vector<LayerDetail>& layers) {
  Json list = Json::array();
  for (const LayerDetail& layer : layers) {
    Json json = Json::Object{{"name", layer.name},
                             {"gradient_norm", layer.gradient_norm},
                             {"weight_norm", layer.weight_norm},
                             {"update_norm", layer.update_norm}};
    if (layer.weight_norm > 0) json["update_ratio"] = layer.update_norm / layer.weight_norm;
    if (layer.activation_rms) json["activation_rms"] = layer.activation_rms;
    if (layer.max_attention_logit) json["max_attention_logit"] = layer.max_attention_logit;
    list.push_back(std::move(json));
  }
  return list;
}

StepDetails::StepDetails(const ExecContext& ctx, ParamStore& weights, std::function<Tensor(int32_t)> master)
    : ctx_(ctx), weights_(weights), master_(std::move(master)) {}
StepDetails::~StepDetails() = default;

LayerDetail& StepDetails::layer(const std::string& name) {
  const auto found = std::find_if(layers_.begin(), layers_.end(), [&](const auto& l) { return l.name == name; });
  if (found != layers_.end()) return *found;
  layers_.push_back({name, 0, 0, 0, {}, {}});
  return layers_.back();
}

void StepDetails::see(const std::string& name, const Tensor& values) {
  auto found = std::find_if(activations_.begin(), activations_.end(), [&](const auto& a) { return a.first == name; });
  if (found == activations_.end()) found = activations_.insert(activations_.end(), {name, {}});
  found->second.squares += sum_squares(ctx_, values);
  found->second.count += values.numel();
}

void StepDetails::see_logits(int layer, const Tensor& largest) {
  const auto index = static_cast<size_t>(layer);
  if (max_logits_.size() <= index) max_logits_.resize(index + 1, -std::numeric_limits<float>::infinity());
  for (const float logit : largest.to_host().span<float>()) max_logits_[index] = std::max(max_logits_[index], logit);
}

Var StepDetails::hidden(const Context& ctx, const Transformer& model, const Tensor& ids, SequenceContext& given,
                        const RecomputeConfig& again) {
  watched_ = std::make_unique<WatchedSequence>(given, [this](int layer, const Tensor& largest) {
    if (looks_) see_logits(layer, largest);
  });
  looks_ = true;
  const Var embedded = model.embed(ctx, ids, *watched_);
  see("embedding", embedded.value);
  const Var x = model.blocks(ctx, embedded, *watched_, again, [this](int layer, const Tensor& values) {
    if (looks_) see(layer_name(layer), values);
  });
  Var out = model.final_norm(ctx, x);
  see("norm", out.value);
  looks_ = false;
  return out;
}

void StepDetails::before_update() {
  for (int32_t i = 0; i < weights_.size(); ++i) {
    LayerDetail& owner = layer(owner_of(weights_.spec(i)));
    negated_.emplace_back();
    if (!weights_.trainable(i)) continue;
    owner.gradient_norm += sum_squares(ctx_, weights_.gradient(i));
    const Tensor master = master_(i);
    negated_.back() = ctx_.empty(master.shape(), DType::f32, MemoryKind::workspace);
    ctx_.kernels->scale(ctx_, {.in = master, .factor = -1, .out = negated_.back()});
  }
}

std::vector<LayerDetail> StepDetails::after_update() {
  for (int32_t i = 0; i < weights_.size(); ++i) {
    LayerDetail& owner = layer(owner_of(weights_.spec(i)));
    const Tensor master = master_(i);
    owner.weight_norm += master.dtype() == DType::f32 ? sum_squares(ctx_, master) : 0;
    const Tensor& change = negated_[static_cast<size_t>(i)];
    if (!change) continue;
    ctx_.kernels->add(ctx_, {.a = master, .b = change, .out = change});
    owner.update_norm += sum_squares(ctx_, change);
  }
  negated_.clear();
  for (LayerDetail& detail : layers_) {
    for (double* square : {&detail.gradient_norm, &detail.weight_norm, &detail.update_norm})
      *square = std::sqrt(*square);
  }
  for (const auto& [name, sum] : activations_) {
    layer(name).activation_rms = std::sqrt(sum.squares / static_cast<double>(sum.count));
  }
  for (size_t i = 0; i < max_logits_.size(); ++i) {
    layer(layer_name(static_cast<int64_t>(i))).max_attention_logit = max_logits_[i];
  }
  return layers_;
}

}  // namespace loam
