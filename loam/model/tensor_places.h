// Which tensor of a MODEL directory fills which rows of which parameter.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "loam/model/families/family.h"
#include "loam/model/file_tensors.h"
#include "loam/nn/param_store.h"

namespace loam {

// Where one tensor of a file belongs: rows [begin, begin + rows) of a parameter.
struct Place {
  std::string file_name;
  int32_t param;
  int64_t begin, rows;
  Shape shape;  // of those rows
  bool transposed;
  RowOrder order;
  Shape file_shape() const { return transposed ? Shape{shape[1], shape[0]} : shape; }
};

// All tensors of a model's file, layer after layer.
std::vector<Place> places_of(const Family& family, const ModelConfig& config, ParamStore& store);

// Which of the parameter's rows stands at each row of the file; empty: its own order. Of the heads only those of q and
// k are rotated.
std::vector<int64_t> file_order(const Place& place, const ModelConfig& config);
std::vector<int64_t> inverse(const std::vector<int64_t>& order);

// Errors of FileTensors::check() and check_tied_head().
void check_places(const FileTensors& file, const std::vector<Place>& places, const ModelConfig& config,
                  ParamStore& store);

}  // namespace loam
