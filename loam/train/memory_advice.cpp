#include <algorithm>
#include <cmath>
#include <vector>

#include "loam/base/log.h"
#include "loam/base/progress.h"
#include "loam/train/memory.h"
#include "loam/train/trainer.h"

namespace loam {
namespace {

constexpr int64_t kShortestRow = 16;  // tokens; shorter ones teach next to nothing

std::string bytes(int64_t n) { return format_bytes(static_cast<double>(n)); }

// A configuration with one setting changed, and what it takes.
struct Change {
  std::string text;
  TrainConfig config;
  int64_t bytes = 0;
};

// Those of one kind, from the mildest on.
using Changes = std::vector<Change>;

// Of at most `most` rows.
Changes micro_batches(TrainConfig config, int64_t most) {
  Changes changes;
  for (int64_t rows = most; rows >= 1; --rows) {
    if (config.batch % rows != 0) continue;
    config.micro_batch = rows;
    changes.push_back({fmt::format("micro_batch={}", rows), config});
  }
  return changes;
}
Changes smaller_micro_batches(TrainConfig config) { return micro_batches(config, config.micro_batch - 1); }

// Groups of the root of the layers, within which each layer is computed again, keep the least.
Changes recomputations(TrainConfig config) {
  Changes changes;
  const std::vector<int64_t> before = config.recompute.groups;
  const auto root = static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(config.model.layers))));
  for (const std::vector<int64_t>& groups : {std::vector<int64_t>{1}, {root, 1}}) {
    if (groups == before) changes.clear();
    if (groups == before || (groups.size() == 2 && root < 2)) continue;
    config.recompute.groups = groups;
    changes.push_back({"recompute.groups=" + config_to_json(config.recompute).at("groups").dump(), config});
  }
  return changes;
}

Changes shorter_rows(TrainConfig config) {
  Changes changes;
  while (config.data.length / 2 >= kShortestRow) {
    config.data.length /= 2;
    changes.push_back({fmt::format("data.length={}", config.data.length), config});
  }
  return changes;
}

class Advisor {
 public:
  // `before`: what changes must stay below.
  Advisor(const ExecContext& ctx, int64_t before, std::optional<int64_t> available)
      : ctx_(ctx), before_(before), available_(available) {}

  // The first that fits: each takes less than the one before it.
  std::optional<Change> first_that_fits(Changes changes) const {
    if (!changes.empty() && fits(changes.front())) return changes.front();
    const auto too_much = [this](Change& change) { return !fits(change); };
    const auto first = std::partition_point(changes.begin(), changes.end(), too_much);
    return first == changes.end() ? std::nullopt : std::optional(*first);
  }
  bool fits(Change& change) const {
    change.bytes = predict_memory(ctx_, change.config).total();
    return change.bytes < before_ && (!available_ || change.bytes <= *available_);
  }

 private:
  const ExecContext& ctx_;
  int64_t before_;
  std::optional<int64_t> available_;
};

// Where nothing suffices alone: one change on top of the other.
std::string changes_together(const Advisor& advisor, TrainConfig config) {
  std::string text;
  for (const auto& kind : {smaller_micro_batches, recomputations, shorter_rows}) {
    Changes changes = kind(config);
    if (changes.empty()) continue;
    const std::optional<Change> fitting = advisor.first_that_fits(changes);
    if (!fitting) advisor.fits(changes.back());
    const Change& change = fitting ? *fitting : changes.back();
    text += fmt::format("{}{} takes {}", text.empty() ? "" : "; with it, ", change.text, bytes(change.bytes));
    if (fitting) return text;
    text += ", still too much";
    config = change.config;
  }
  return text + (text.empty() ? "" : "; ") + "a smaller model is needed";
}

}  // namespace

std::string PredictedMemory::str() const {
  std::string text;
  const auto add = [&](int64_t n, const char* what) {
    if (n > 0) text += fmt::format("{}{} {}", text.empty() ? "" : " + ", bytes(n), what);
  };
  add(weights, "weights"), add(gradients, "gradients"), add(moments, "optimizer");
  add(activations, "activations"), add(workspace, "workspace");
  return text + " = " + bytes(total());
}

std::string memory_at_peak(const ExecContext& ctx) {
  std::string text;
  const ArenaStats stats = ctx.arena->stats();
  for (int kind = 0; kind < kMemoryKinds; ++kind) {
    const int64_t peak = stats.peak[static_cast<size_t>(kind)];
    if (peak == 0) continue;
    text +=
        fmt::format("{} {} {}", text.empty() ? "At the peak:" : ",", memory_kind_name(MemoryKind(kind)), bytes(peak));
  }
  const std::optional<int64_t> available = available_memory(ctx);
  return text + (available ? fmt::format("; {} has {} left", memory_owner(ctx), bytes(*available)) : "");
}

std::string memory_advice(const ExecContext& ctx, const TrainConfig& config, std::optional<int64_t> available) {
  const Advisor advisor(ctx, predict_memory(ctx, config).total(), available);
  std::string text;
  int found = 0;
  for (const auto& kind : {smaller_micro_batches, recomputations, shorter_rows}) {
    if (found == 2) break;
    const auto change = advisor.first_that_fits(kind(config));
    if (!change) continue;
    text += fmt::format("{}{} takes {}", found++ > 0 ? "; or " : "", change->text, bytes(change->bytes));
  }
  return found > 0 ? text : changes_together(advisor, config);
}

namespace {

// What the run began with; none if it begins now.
std::optional<int64_t> micro_batch_of(const std::optional<VerifiedCheckpoint>& checkpoint, int64_t batch) {
  if (!checkpoint) return std::nullopt;
  const Json state = read_checkpoint_state(checkpoint->path);
  const Json* config = state.is_object() ? state.find("config") : nullptr;
  const Json* rows = config && config->is_object() ? config->find("micro_batch") : nullptr;
  if (!rows || !rows->is_int() || rows->as_int() < 1 || batch % rows->as_int() != 0) return std::nullopt;
  return rows->as_int();
}

}  // namespace

TrainConfig settle_micro_batch(const ExecContext& ctx, TrainConfig config,
                               const std::optional<VerifiedCheckpoint>& checkpoint) {
  if (config.micro_batch != kAuto) return config;
  if (const auto rows = micro_batch_of(checkpoint, config.batch)) {
    config.micro_batch = *rows;
    return config;
  }
  const std::optional<int64_t> available = available_memory(ctx);
  LOAM_CHECK(available.has_value(), "micro_batch=auto: how much memory {} has left is not known; it needs a number",
             memory_owner(ctx));
  const int64_t most = *available / 10 * 9;
  const auto found = Advisor(ctx, INT64_MAX, most).first_that_fits(micro_batches(config, config.batch));
  if (!found) {
    config.micro_batch = 1;
    fail(ErrorCode::kOutOfMemory, "micro_batch=auto: one row takes {}, more than 90 % of the {} that {} has left; {}",
         bytes(predict_memory(ctx, config).total()), bytes(*available), memory_owner(ctx),
         memory_advice(ctx, config, most));
  }
  log_info("micro_batch=auto: {} of the {} rows of a batch at a time take {} of the {} that {} has left",
           found->config.micro_batch, config.batch, bytes(found->bytes), bytes(*available), memory_owner(ctx));
  return found->config;
}

}  // namespace loam
