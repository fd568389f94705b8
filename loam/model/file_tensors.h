// The tensors of a MODEL directory, against those that its configuration asks for.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "loam/base/file.h"
#include "loam/format/safetensors.h"
#include "loam/model/families/family.h"

namespace loam {

// The rules of a family with each layer's number in its place, layer after layer.
std::vector<TensorRule> rules_of_layers(const Family& family, const ModelConfig& config);

// The tensors of a directory under the names that the family's rules use.
class FileTensors {
 public:
  // Errors as SafetensorsModel.
  FileTensors(const Path& directory, const Family& family);
  bool contains(const std::string& name) const { return files_.contains(real_name(name)); }
  Tensor tensor(const std::string& name) const { return files_.tensor(real_name(name)); }
  std::string metadata(const std::string& key) const { return files_.metadata(key); }

  // Names and shapes. Error{kBadFormat} that lists the tensors that are missing and those that belong nowhere, or names
  // the first of a wrong shape or dtype.
  void check(const std::vector<std::pair<std::string, Shape>>& expected, bool tied) const;
  // A tied file may repeat the table as its head, but not contradict it: Error{kBadFormat}.
  void check_tied_head(const std::string& embedding) const;

 private:
  std::string real_name(const std::string& name) const;
  void check_one(const std::string& name, const Shape& shape) const;

  Path directory_;
  SafetensorsModel files_;
  const Family& family_;
  bool bare_ = false;  // a file of the bare model, whose names lack the family's prefix
};

}  // namespace loam
