#include <algorithm>

#include "loam/base/progress.h"
#include "loam/train/memory.h"
#include "loam/train/trainer.h"

namespace loam {
namespace {

constexpr int64_t kShortestRow = 16;  // tokens; shorter ones teach next to nothing

std::string bytes(int64_t n) { return format_bytes(static_cast<double>(n)); }

// The changes of one setting that take less, from the mildest on; the first that fits, else the one that takes least.
struct Change {
  std::string text;
  int64_t bytes = 0;
};
template <class Next>
std::optional<Change> first_that_fits(const ExecContext& ctx, TrainConfig config, std::optional<int64_t> available,
                                      Next next) {
  std::optional<Change> best;
  while (const std::optional<std::string> text = next(config)) {
    const int64_t bytes = predict_memory(ctx, config).total();
    if (!best || bytes < best->bytes) best = {*text, bytes};
    if (!available || bytes <= *available) break;
  }
  return best;
}

}  // namespace

std::string memory_at_peak(const ArenaStats& stats, std::optional<int64_t> available) {
  std::string text;
  for (int kind = 0; kind < kMemoryKinds; ++kind) {
    const int64_t peak = stats.peak[static_cast<size_t>(kind)];
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
        if (c.data.length / 2 < kShortestRow) return std::nullopt;
        c.data.length /= 2;
        return fmt::format("data.length={}", c.data.length);
      }));
  std::string text;
  bool any_fits = false;
  for (const auto& change : changes) {
    if (!change) continue;
    const bool fits = available && change->bytes <= *available;
    any_fits |= fits;
    text += fmt::format("{}{} takes {}{}",
                        text.empty() ? ""
                        : more       ? "; with it, "
                                     : "; or ",
                        change->text, bytes(change->bytes), !available || fits ? "" : ", still too much");
  }
  if (text.empty()) return "a smaller model is needed";
  return text + (any_fits || !available ? "" : "; a smaller model is needed");
}

}  // namespace loam
