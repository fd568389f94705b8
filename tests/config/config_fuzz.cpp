// Any bytes as a configuration: one Error, or a configuration that writes and reads back equal.
#include "loam/config/train_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace loam;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto attempt = [](const auto& action) {
    try {
      action();
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kBadFormat && error.code() != ErrorCode::kInvalidArgument) std::abort();
    }
  };
  const auto check = [](const TrainConfig& config) {
    const TrainConfig derived = derive(config);
    config_warnings(derived);
    TrainConfig again;
    config_from_json(again, Json::parse(config_to_json(derived).dump()));
    if (!config_diff(config_to_json(again), config_to_json(derived)).empty()) std::abort();
    if (!config_diff(config_to_json(derive(again)), config_to_json(derived)).empty()) std::abort();
  };
  attempt([&] {
    TrainConfig config;
    config_from_json(config, Json::parse(text));
    check(config);
  });
  attempt([&] {
    TrainConfig config;
    config_set(config, text);
    check(config);
  });
  attempt([&] {
    const Json json = Json::parse(text);
    if (json.is_object()) config_diff(json, config_to_json(TrainConfig{}));
  });
  return 0;
}
