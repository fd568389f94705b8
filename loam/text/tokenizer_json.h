// Parts of a tokenizer.json, for the files that read it.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

#include "loam/base/error.h"
#include "loam/base/json.h"
#include "loam/text/sentencepiece_rules.h"
#include "loam/text/tokenizer_model.h"

namespace loam {

// The whole file, and access to its parts with errors that name the file and the place.
class TokenizerJson {
 public:
  TokenizerJson(std::string_view file, std::string_view source) : source_(source), root_(Json::parse(file, source)) {}

  const Json& root() const { return root_; }
  const std::string& source() const { return source_; }

  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorCode::kBadFormat, "{}: {}", source_, fmt::format(format, std::forward<Args>(args)...));
  }
  // What `get` takes from a part of the file.
  template <class Get>
  decltype(auto) take(const Json& part, const Get& get) const {
    try {
      return get(part);
    } catch (const Error& error) {
      const std::string place = root_.path_of(part);
      refuse("{}{}{}", place, place.empty() ? "" : ": ", error.what());
    }
  }
  const std::string& text(const Json& part) const {
    return take(part, [](const Json& p) -> const std::string& { return p.as_string(); });
  }
  int64_t number(const Json& part) const {
    return take(part, [](const Json& p) { return p.as_int(); });
  }
  int32_t id(const Json& part) const;  // in [0, 2^31)
  const Json::Array& list(const Json& part) const {
    return take(part, [](const Json& p) -> const Json::Array& { return p.as_array(); });
  }
  const Json& at(const Json& object, std::string_view key) const {
    return take(object, [key](const Json& o) -> const Json& { return o.at(key); });
  }
  // A member that is absent or null counts as not given.
  const Json* given(const Json& object, std::string_view key) const;
  bool flag(const Json& object, std::string_view key, bool otherwise) const;
  const std::string& type_of(const Json& object) const { return text(at(object, "type")); }
  // The steps of a part of the file ("normalizer", ...): none, one, or the members of a Sequence.
  std::vector<const Json*> steps(std::string_view part, std::string_view members) const;

 private:
  std::string source_;
  Json root_;
};

// Everything round the model, as the file states it.
struct JsonRules {
  TokenizerRules rules;      // without the added tokens
  bool byte_level = false;   // pieces become bytes: only then is the model byte-level BPE
  bool space_marks = false;  // spaces become U+2581: tokens hold the mark where the rules here have a plain space
};
JsonRules read_rules(const TokenizerJson& file);

}  // namespace loam
