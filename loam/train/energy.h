// Energy and money that a run takes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "loam/base/file.h"
#include "loam/base/json.h"
#include "loam/config/train_config.h"

namespace loam {

// What the processors and their memory have drawn, from RAPL's counters under /sys/class/powercap (Linux,
// powercap.rst): the zones called "package-N" and "dram", in microjoules, which wrap at max_energy_range_uj. `root` is
// where /sys lies (for tests).
class EnergyMeter {
 public:
  explicit EnergyMeter(const Path& root = "/");
  bool available() const { return !counters_.empty(); }
  // Joules since construction. To be called before a counter has wrapped twice: every few minutes.
  double joules();

 private:
  struct Counter {
    Path file;
    int64_t last = 0, range = 0;  // microjoules
  };
  std::vector<Counter> counters_;
  double joules_ = 0;
};

struct RunCost {
  std::optional<double> kwh;                        // none where neither a power is given nor a meter can be read
  std::optional<double> energy_cost, machine_cost;  // none without its price
};
RunCost operator+(const RunCost& a, const RunCost& b);
// {"kwh", "energy_cost", "machine_cost"}, without those that are not known; and back.
Json to_json(const RunCost& cost);
RunCost cost_from_json(const Json& json);
// "0.42 kWh, 0.13 for energy, 1.50 for the machine"; "" if nothing is known.
std::string to_string(const RunCost& cost);

// What so many seconds of training cost. `joules` are those of a meter: they count where no power is given.
RunCost cost_of(const PriceConfig& price, double seconds, std::optional<double> joules);

}  // namespace loam
