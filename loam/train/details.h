// What every layer does in a step: how large its gradient, weights, update and activations are.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "loam/autograd/context.h"
#include "loam/base/json.h"
#include "loam/config/recompute_config.h"

namespace loam {

class ParamStore;
class Transformer;
class SequenceContext;

// Of the parameters of one block ("layers.3"), or of one outside the blocks ("embedding", "positions", "norm", "head").
// Norms are L2, of all its parameters together.
struct LayerDetail {
  std::string name;
  double gradient_norm = 0;  // before clipping
  double weight_norm = 0;    // of the f32 masters, after the step
  double update_norm = 0;    // of what the step added to them
  // Root mean square of the residual stream behind it: the block, the embedding, the last norm.
  std::optional<double> activation_rms;
  // The largest score of a query and a key that it sees, as it enters the softmax.
  std::optional<double> max_attention_logit;
};

// [{"name", "gradient_norm", "weight_norm", "update_norm", "update_ratio", "activation_rms", ...}, ...]
Json to_json(const std::vector<LayerDetail>& layers);

// Measures one step. It needs a copy of the masters while the optimizer works.
class StepDetails {
 public:
  // `master` gives the f32 truth of a parameter.
  StepDetails(const ExecContext& ctx, ParamStore& weights, std::function<Tensor(int32_t)> master);
  ~StepDetails();
  // The hidden states of a micro-batch, by the ops of Transformer::hidden, with a look at each result. REQUIRES: the
  // one before it is through.
  Var hidden(const Context& ctx, const Transformer& model, const Tensor& ids, SequenceContext& sequence,
             const RecomputeConfig& again);
  void before_update();
  std::vector<LayerDetail> after_update();

 private:
  struct Sum {
    double squares = 0;
    int64_t count = 0;
  };
  LayerDetail& layer(const std::string& name);
  void see(const std::string& name, const Tensor& values);
  void see_logits(int layer, const Tensor& largest);  // [B,H,T] f32: by query

  ExecContext ctx_;
  ParamStore& weights_;
  std::function<Tensor(int32_t)> master_;
  std::unique_ptr<SequenceContext> watched_;  // until backward is over
  bool looks_ = false;                        // not at what backward computes again
  std::vector<LayerDetail> layers_;           // norms are sums of squares until after_update()
  std::vector<std::pair<std::string, Sum>> activations_;
  std::vector<float> max_logits_;  // by layer
  std::vector<Tensor> negated_;    // by parameter: minus the master before the step
};

}  // namespace loam
