#include <cmath>

#include "loam/kernels/cpu/register.h"
#include "loam/kernels/kernel_table.h"

namespace loam {
namespace {

void log_prob(const ExecContext&, const LogProbArgs& args) {
  const auto *max = args.max.ptr<float>(), *sum = args.sum.ptr<float>(), *target_logit = args.target_logit.ptr<float>();
  const auto* targets = args.targets.ptr<int32_t>();
  auto *logp = args.logp.ptr<float>(), *lse = args.lse.ptr<float>();
  for (int64_t n = 0; n < args.max.numel(); ++n) {
    const float log_sum = std::log(sum[n]);
    lse[n] = max[n] + log_sum;
    // The distance from the maximum first: both logits may be large where their difference is small.
    logp[n] = targets[n] < 0 ? 0.0f : (target_logit[n] - max[n]) - log_sum;
    if (args.entropy) args.entropy.ptr<float>()[n] = log_sum - args.dot.ptr<float>()[n] / sum[n];
  }
}

}  // namespace

void register_log_prob_kernels(KernelTable& table) { table.log_prob.function = log_prob; }

}  // namespace loam
