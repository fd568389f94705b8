#include <algorithm>

#include "loam/base/progress.h"
#include "loam/train/memory.h"
#include "loam/train/trainer.h"

namespace loam {
namespace {

std::string bytes(int64_t n) { return format_bytes(static_cast<double>(n)); }

// The changes of one setting that take less, from the mildest on; the first that fits, else the last.
struct Change {
  std::string text;
  int64_t bytes = 0;
};
template <class Next>
std::optional<Change> first_that_fits(const ExecContext& ctx, TrainConfig config, std::optional<int64_t> available,
                                      Next next) {
  std::optional<Change> best;
  while (const std::optional<std::string> text = next(config)) {
    best = {*text, predict_memory(ctx, config).total()};
    if (!available || best->bytes <= *available) break;
  }
  return best;
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

std::string memory_at_peak(const ArenaStats& stats, std::optional<int64_t> available) {
  std::string text;
  for (int kind = 0; kind < kMemoryKinds; ++kind) {
    const int64_t peak = stats.at_peak[static_cast<size_t>(kind)];
    if (peak == 0) continue;
    text +=
        fmt::format("{} {} {}", text.empty() ? "At the peak:" : ",", memory_kind_name(MemoryKind(kind)), bytes(peak));
  }
  return text + (available ? fmt::format("; the machine has {} left", bytes(*available)) : "");
}

std::string memory_advice(const ExecContext& ctx, const TrainConfig& config, std::optional<int64_t> available) {
  std::vector<std::optional<Change>> changes;
  changes.push_back(first_that_fits(ctx, config, available, [](TrainConfig& c) -> std::optional<std::string> {
    if (c.micro_batch == 1) return std::nullopt;
    do --c.micro_batch;
    while (c.batch % c.micro_batch != 0);
    return fmt::format("micro_batch={}", c.micro_batch);
  }));
  TrainConfig smallest = config;
  smallest.micro_batch = 1;
  const bool more = !changes[0] || (available && changes[0]->bytes > *available);
  changes.push_back(
      first_that_fits(ctx, more ? smallest : config, available, [](TrainConfig& c) -> std::optional<std::string> {
        if (c.data.length < 2) return std::nullopt;
        c.data.length /= 2;
        return fmt::format("data.length={}", c.data.length);
      }));
  std::string text;
  for (const auto& change : changes) {
    if (!change) continue;
    const bool fits = available && change->bytes <= *available;
    text += fmt::format("{}{} takes {}{}",
                        text.empty() ? ""
                        : more       ? "; with it, "
                                     : "; or ",
                        change->text, bytes(change->bytes), !available || fits ? "" : ", still too much");
  }
  return text.empty() ? "a smaller model takes less" : text;
}

}  // namespace loam
