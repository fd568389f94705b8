#include "loam/train/energy.h"

#include <fmt/format.h>

#include <fstream>

#include "loam/base/cgroup.h"

namespace loam {
namespace {

constexpr double kJoulesPerKwh = 3.6e6, kSecondsPerHour = 3600;

std::optional<int64_t> number_in(const Path& path) {
  const std::vector<int64_t> numbers = numbers_in(path);
  return numbers.size() == 1 && numbers[0] >= 0 ? std::optional(numbers[0]) : std::nullopt;
}

std::optional<double> sum_of(const std::optional<double>& a, const std::optional<double>& b) {
  return a || b ? std::optional(a.value_or(0) + b.value_or(0)) : std::nullopt;
}

}  // namespace

EnergyMeter::EnergyMeter(const Path& root) {
  std::error_code error;
  for (const auto& zone : std::filesystem::directory_iterator(root / "sys/class/powercap", error)) {
    if (!zone.path().filename().string().starts_with("intel-rapl:")) continue;
    std::ifstream file(zone.path() / "name");
    std::string name;
    // A package holds its cores; "psys" holds the packages.
    if (!(file >> name) || !(name.starts_with("package-") || name == "dram")) continue;
    const auto now = number_in(zone.path() / "energy_uj"), range = number_in(zone.path() / "max_energy_range_uj");
    if (now && range) counters_.push_back({zone.path() / "energy_uj", *now, *range});
  }
}

double EnergyMeter::joules() {
  for (Counter& counter : counters_) {
    const auto now = number_in(counter.file);
    if (!now) continue;
    const int64_t used = *now - counter.last + (*now < counter.last ? counter.range : 0);
    joules_ += static_cast<double>(used) * 1e-6;
    counter.last = *now;
  }
  return joules_;
}

RunCost operator+(const RunCost& a, const RunCost& b) {
  return {sum_of(a.kwh, b.kwh), sum_of(a.energy_cost, b.energy_cost), sum_of(a.machine_cost, b.machine_cost)};
}

Json to_json(const RunCost& cost) {
  Json json = Json::object();
  if (cost.kwh) json["kwh"] = *cost.kwh;
  if (cost.energy_cost) json["energy_cost"] = *cost.energy_cost;
  if (cost.machine_cost) json["machine_cost"] = *cost.machine_cost;
  return json;
}

RunCost cost_from_json(const Json& json) {
  const auto number = [&](const char* key) {
    const Json* value = json.find(key);
    return value ? std::optional(value->as_double()) : std::nullopt;
  };
  return {number("kwh"), number("energy_cost"), number("machine_cost")};
}

std::string to_string(const RunCost& cost) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (cost.kwh) add(fmt::format("{:.3g} kWh", *cost.kwh));
  if (cost.energy_cost) add(fmt::format("{:.2f} for energy", *cost.energy_cost));
  if (cost.machine_cost) add(fmt::format("{:.2f} for the machine", *cost.machine_cost));
  return text;
}

RunCost cost_of(const PriceConfig& price, double seconds, std::optional<double> joules) {
  RunCost cost;
  if (price.watts > 0) joules = price.watts * seconds;
  if (joules) cost.kwh = *joules / kJoulesPerKwh;
  if (cost.kwh && price.per_kwh > 0) cost.energy_cost = *cost.kwh * price.per_kwh;
  if (price.per_hour > 0) cost.machine_cost = seconds / kSecondsPerHour * price.per_hour;
  return cost;
}

}  // namespace loam
