#include "loam/train/fingerprint.h"

#include <unistd.h>

#include <array>
#include <ctime>
#include <fstream>
#include <random>

#include "loam/base/hash.h"
#include "loam/base/log.h"

namespace loam {
namespace {

#ifdef __clang__
constexpr const char* kCompiler = "clang " __clang_version__;
#else
constexpr const char* kCompiler = "GCC " __VERSION__;
#endif

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

// "AMD EPYC 7763 64-Core Processor"; "" where the system does not tell.
std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != line.npos) return line.substr(colon + 2);
  }
  return "";
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

std::string new_id() {
  std::random_device random;  // the system's own
  return fmt::format("{:08x}", static_cast<uint32_t>(random()));
}

}  // namespace

Json fingerprint_of(const ExecContext& ctx, const Trainer& trainer, const RunOptions& options) {
  Json words = Json::array();
  for (const std::string& word : options.command_line) words.push_back(word);
  return Json::Object{{"version", options.version},
                      {"commit", options.commit},
                      {"dirty", options.commit.ends_with("-dirty")},
                      {"compiler", kCompiler},
                      {"host", host_name()},
                      {"cpu", cpu_name()},
                      {"threads", ctx.threads},
                      {"config", hash_hex(config_to_json(trainer.config()).dump())},
                      {"data", trainer.data_fingerprints()},
                      {"started", utc_now()},
                      {"command", std::move(words)}};
}

RunFile::RunFile(const Path& out, const std::string& kept_id) : path_(out / "run.json"), id_(kept_id) {
  if (std::filesystem::exists(path_)) {
    try {
      const Json json = Json::parse(read_file(path_, int64_t{1} << 28), path_.string());
      const std::string& id = json.at("id").as_string();
      starts_ = json.at("starts").as_array();
      if (id_.empty()) id_ = id;
    } catch (const Error& error) {
      log_warn("{}; it is written anew", error.what());
    }
  }
  if (id_.empty()) id_ = new_id();
}

void RunFile::add_start(int64_t step, const Json& fingerprint) {
  Json start = Json::Object{{"step", step}};
  for (const auto& [key, value] : fingerprint.as_object()) start[key] = value;
  starts_.push_back(std::move(start));
  const Json json = Json::Object{{"id", id_}, {"starts", starts_}};
  write_file_atomic(path_, json.dump(2) + "\n");
}

}  // namespace loam
