// safetensors: 8 bytes little-endian header length, a JSON header {name: {dtype, shape, data_offsets}, "__metadata__": {...}}, then the data.
// Specification: huggingface/safetensors, README "Format".
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "loam/base/file.h"
#include "loam/base/mmap.h"
#include "loam/tensor/tensor.h"

namespace loam {

// Maps a file and gives out tensors that share the map. The file is hostile until read: header length at most 100 MB and inside the file, sizes checked for overflow, ranges inside the data,
// in agreement with dtype and shape, without overlap or hole; otherwise Error{kBadFormat} that names file and tensor.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const Path& path);

  const std::vector<std::string>& names() const { return names_; }  // in order of their data
  bool contains(const std::string& name) const { return entries_.contains(name); }
  // Read only, CPU; lives as long as the map, which the tensor keeps alive. Error{kNotFound} that names file and tensor.
  Tensor tensor(const std::string& name) const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const Path& path() const { return path_; }

 private:
  struct Entry {
    DType dtype;
    Shape shape;
    int64_t begin;
  };
  Path path_;
  std::shared_ptr<MappedFile> map_;
  std::vector<std::string> names_;
  std::map<std::string, Entry> entries_;
  std::map<std::string, std::string> metadata_;
};

// Writes contiguous CPU tensors in the order given (aligned to 8 bytes), atomically.
void write_safetensors(const Path& path, const std::vector<std::pair<std::string, Tensor>>& tensors, const std::map<std::string, std::string>& metadata = {});

// A model's tensors: model.safetensors, or the shards that model.safetensors.index.json names. Error if the index names a file or tensor that is not there.
class SafetensorsModel {
 public:
  explicit SafetensorsModel(const Path& directory);
  std::vector<std::string> names() const;
  bool contains(const std::string& name) const { return where_.contains(name); }
  Tensor tensor(const std::string& name) const;

 private:
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, size_t> where_;
};

}  // namespace loam
