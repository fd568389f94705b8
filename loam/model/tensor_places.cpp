#include "loam/model/tensor_places.h"

#include <algorithm>

namespace loam {
namespace {

Place place_of(const TensorRule& rule, ParamStore& store) {
  const ParamRef param = store.find(rule.param);
  const ParamSpec& spec = store.spec(param.index);
  Place place{rule.file_name, param.index, 0, spec.shape[0], spec.shape, rule.transposed, rule.order};
  if (rule.slice.empty()) return place;
  const auto slice =
      std::find_if(spec.slices.begin(), spec.slices.end(), [&](const RowSlice& s) { return s.name == rule.slice; });
  if (slice == spec.slices.end()) {
    fail(ErrorCode::kInternal, "parameter {} has no slice {}", spec.name, rule.slice);
  }
  place.begin = slice->begin;
  place.rows = place.shape[0] = slice->rows;
  return place;
}

// The place d of an element of a head among its rotated ones, in the order (k, k + R/2), as its place among neighbours
// (2k, 2k + 1).
int64_t neighbour(int64_t d, int64_t rotated) {
  if (d >= rotated) return d;
  return d < rotated / 2 ? 2 * d : 2 * (d - rotated / 2) + 1;
}

// The name of the embedding's table in the file.
std::string embedding_name(const std::vector<Place>& places, ParamStore& store) {
  const int32_t embedding = store.find("embedding").index;
  const auto place = std::find_if(places.begin(), places.end(), [&](const Place& p) { return p.param == embedding; });
  if (place == places.end()) fail(ErrorCode::kInternal, "a family without an embedding");
  return place->file_name;
}

}  // namespace

std::vector<Place> places_of(const Family& family, const ModelConfig& config, ParamStore& store) {
  std::vector<Place> places;
  for (const TensorRule& rule : rules_of_layers(family, config)) places.push_back(place_of(rule, store));
  return places;
}

std::vector<int64_t> file_order(const Place& place, const ModelConfig& config) {
  const bool reorders = config.rope_pairs == RopePairs::interleaved;
  if (place.order == RowOrder::plain || (place.order == RowOrder::rotary && !reorders)) return {};
  const int64_t D = config.head_dim, H = config.heads, rotated_heads = H + config.kv_heads;
  std::vector<int64_t> order(static_cast<size_t>(place.rows));
  for (int64_t row = 0; row < place.rows; ++row) {
    // In the file: head, and the place in it; for RowOrder::heads each head has its q, k and v.
    const bool by_head = place.order == RowOrder::heads;
    const int64_t head = by_head ? row / D % 3 * H + row / (3 * D) : row / D, d = row % D;
    const bool rotates = reorders && head < rotated_heads;
    order[static_cast<size_t>(row)] = head * D + (rotates ? neighbour(d, config.rope_dim) : d);
  }
  return order;
}

std::vector<int64_t> inverse(const std::vector<int64_t>& order) {
  std::vector<int64_t> at(order.size());
  for (size_t i = 0; i < order.size(); ++i) at[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  return at;
}

void check_places(const FileTensors& file, const std::vector<Place>& places, const ModelConfig& config,
                  ParamStore& store) {
  std::vector<std::pair<std::string, Shape>> expected;
  for (const Place& place : places) expected.emplace_back(place.file_name, place.file_shape());
  file.check(expected, config.tied_embeddings);
  if (config.tied_embeddings) file.check_tied_head(embedding_name(places, store));
}

}  // namespace loam
