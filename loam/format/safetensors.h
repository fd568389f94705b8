// safetensors: 8 bytes little-endian header length, a JSON header {name: {dtype, shape, data_offsets}, "__metadata__":
// {...}}, then the data. Specification: huggingface/safetensors, README "Format".
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "loam/base/file.h"
#include "loam/base/json.h"
#include "loam/base/mmap.h"
#include "loam/tensor/tensor.h"

namespace loam {

// A tensor as the header states it.
struct SafetensorsEntry {
  std::string dtype;  // as the file spells it
  Shape shape;
  int64_t begin, end;  // bytes of the data
};

// Maps a file and gives out tensors that share the map. The file is hostile until read: header length at most 100 MB
// and inside the file, names unique, sizes checked for overflow, ranges inside the data, in agreement with dtype and
// shape, without overlap or hole; otherwise Error{kBadFormat} that names file and tensor. A dtype that the format does
// not know is such an error at once; one that it knows and loam does not compute with (F64, BOOL, F8_E4M3, ...) only
// when that tensor is asked for.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const Path& path);

  const std::vector<std::string>& names() const { return names_; }  // in order of their data
  bool contains(const std::string& name) const { return entries_.contains(name); }
  // Whatever its dtype. Error{kNotFound} that names file and tensor.
  const SafetensorsEntry& entry(const std::string& name) const;
  // Read only, CPU; keeps the map alive. A copy only where the file puts the tensor at an address that its element type
  // does not allow. Error{kNotFound} that names file and tensor.
  Tensor tensor(const std::string& name) const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const Path& path() const { return path_; }

 private:
  SafetensorsEntry parse_entry(const std::string& name, const Json& value) const;
  void check_ranges();
  [[noreturn]] void fail_tensor(const std::string& name, const std::string& what) const;

  Path path_;
  std::shared_ptr<MappedFile> map_;
  std::vector<std::string> names_;
  std::map<std::string, SafetensorsEntry> entries_;
  std::map<std::string, std::string> metadata_;
  int64_t data_begin_ = 0, data_size_ = 0;
};

// Writes contiguous CPU tensors, atomically: those of the widest element type first, otherwise in the order given, from
// a multiple of 8 bytes on, so that each lies aligned without a hole. `on_tensor` hears of each that is written.
void write_safetensors(const Path& path, const std::vector<std::pair<std::string, Tensor>>& tensors,
                       const std::map<std::string, std::string>& metadata = {},
                       const std::function<void(int64_t bytes)>& on_tensor = {});

// A model's tensors: a .safetensors file, or a directory with model.safetensors or the shards that
// model.safetensors.index.json names. Error{kBadFormat, kNotFound} if the index names a file or tensor that is not
// there.
class SafetensorsModel {
 public:
  explicit SafetensorsModel(const Path& path);
  std::vector<std::string> names() const;  // in order of files and of their data
  bool contains(const std::string& name) const { return where_.contains(name); }
  const SafetensorsEntry& entry(const std::string& name) const;  // Error{kNotFound}
  Tensor tensor(const std::string& name) const;                  // Error{kNotFound}
  // What the first file that has the key says under it; "" for none.
  std::string metadata(const std::string& key) const;

 private:
  void read_index(const Path& directory);

  Path path_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, size_t> where_;
};

}  // namespace loam
