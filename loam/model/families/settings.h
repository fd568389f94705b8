// The config.json of a Hugging Face directory: every key is read, known to have no effect here, refused, or warned
// about.
#pragma once

#include <initializer_list>
#include <set>
#include <string>

#include "loam/base/json.h"
#include "loam/config/model_config.h"

namespace loam {

// An absent key and null mean the fallback. Every error is Error{kBadFormat} that names the key.
class Settings {
 public:
  // Error unless `json` is an object.
  explicit Settings(const Json& json);

  int64_t integer(const char* key);  // required
  int64_t layers(const char* key);   // required; a number that lists of layers may be made for
  int64_t integer(const char* key, int64_t fallback);
  double number(const char* key, double fallback);
  bool flag(const char* key, bool fallback);
  ActivationKind activation(const char* key, ActivationKind fallback);
  // The value as it is, or null.
  const Json* value(const char* key);

  // Error if the key has a value other than the one under which it changes nothing.
  void require(const char* key, const Json& neutral);
  // Settings of training, generation and book-keeping that do not change what a forward pass computes.
  void ignore(std::initializer_list<const char*> keys);
  // Refuses what no family supports, and warns about keys that nobody asked for.
  void finish();

 private:
  void check_dtype();

  const Json& json_;
  std::set<std::string> seen_;
};

// Hugging Face's names of activations, "gelu_new" among them.
const char* activation_name(ActivationKind kind);

}  // namespace loam
