// Any bytes as config.json, generation_config.json and model.safetensors of a directory: an error of bad input, or a
// configuration and a list of tensors that fit. What allocates and runs a model comes after these checks.
#include <set>

#include "loam/base/log.h"
#include "loam/model/config_file.h"
#include "loam/model/file_tensors.h"
#include "tests/harness/temp_dir.h"
#include "tests/harness/write_quickly.h"

namespace {

using namespace loam;

void expect(bool condition) {
  if (!condition) std::abort();
}

void read_all(const Path& directory) {
  const ModelFileConfig read = read_model_config(directory);
  const ModelConfig& config = read.config;
  expect(config.layers > 0 && config.heads > 0 && config.heads % config.kv_heads == 0 && config.vocab_size > 0);
  expect(config_to_json(derive(config)) == config_to_json(config));
  expect(parameter_count(config) > 0);
  expect(read.bos_id < config.vocab_size);
  for (const int32_t id : read.eos_ids) expect(id >= 0 && id < config.vocab_size);

  const FileTensors file(directory, *read.family);
  // The parameters' shapes need the model itself; those of the file stand for them.
  std::vector<std::pair<std::string, Shape>> expected;
  std::set<std::string> places;
  for (const TensorRule& rule : rules_of_layers(*read.family, config)) {
    expect(places.insert(rule.param + ":" + rule.slice).second);
    const bool there = file.contains(rule.file_name);
    expected.emplace_back(rule.file_name, there ? file.tensor(rule.file_name).shape() : Shape{1});
  }
  file.check(expected, config.tied_embeddings);
  if (config.tied_embeddings) file.check_tied_head(expected[0].first);
}

}  // namespace

// The first two are ended by a NUL byte, which no JSON holds.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const loam::testing::TempDir directory;
  set_log_level(LogLevel::kOff);
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  for (const char* name : {"config.json", "generation_config.json"}) {
    const size_t end = std::min(rest.find('\0'), rest.size());
    loam::testing::write_quickly(directory / name, rest.substr(0, end));
    if (end == 0) std::filesystem::remove(directory / name);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  loam::testing::write_quickly(directory / "model.safetensors", rest);
  try {
    read_all(directory.path());
  } catch (const Error& error) {
    const ErrorCode code = error.code();
    expect(code == ErrorCode::kBadFormat || code == ErrorCode::kNotFound || code == ErrorCode::kUnavailable);
  }
  return 0;
}
