// Packed documents as training sees them: lengths around that of a row.
#include <gtest/gtest.h>

#include <cmath>

#include "loam/nn/sequence.h"
#include "loam/train/trainer.h"
#include "tests/train/training_data.h"

namespace loam {
namespace {

constexpr int64_t kRow = 24;  // T

// A stream of documents, and for each of its tokens the document it belongs to.
struct Stream {
  std::vector<std::vector<int32_t>> documents;
  std::vector<int32_t> tokens;
  std::vector<size_t> document_of;
  explicit Stream(const std::vector<int64_t>& lengths) {
    for (const int64_t length : lengths) add(testing::make_document(length, documents.size() + 1));
    while (static_cast<int64_t>(tokens.size()) < 6 * kRow + 1) add(testing::make_document(7, documents.size() + 1));
  }
  void add(std::vector<int32_t> document) {
    // No end-of-text: the label at every seam has to be masked.
    for (int32_t& id : document) id %= 60;
    for (const int32_t id : document) {
      tokens.push_back(id);
      document_of.push_back(documents.size());
    }
    documents.push_back(std::move(document));
  }
};

class PackedDocuments : public ::testing::TestWithParam<int64_t> {
 protected:
  PackedDocuments() {
    config_ = testing::tiny_config();
    config_.model.context_length = kRow;
    config_.data.shuffle = false;
    config_.batch = config_.micro_batch = 6;
    config_.optimizer.warmup_steps = 0;
    config_ = derive(config_);
  }
  std::shared_ptr<const TokenSet> write(const Stream& stream, const std::string& name) {
    testing::write_set(directory_ / name, stream.documents);
    return std::make_shared<TokenSet>(directory_ / name);
  }
  TokenBatch batch(const std::shared_ptr<const TokenSet>& set) const {
    TokenBatch batch;
    Loader(set, {.length = kRow, .mask_documents = true, .shuffle = false, .seed = 0}).fill(0, 6, batch);
    return batch;
  }
  // Logits [6 T, V] of the first six rows.
  std::vector<float> logits(Trainer& trainer, const TokenBatch& batch) const {
    const Context ctx(resources_.context);
    const auto tensor = [&](const std::vector<int32_t>& v) {
      return Tensor::from<int32_t>(*ctx.arena, {batch.rows, batch.length}, v);
    };
    FullSequence sequence(tensor(batch.positions), tensor(batch.first_key));
    const Transformer& transformer = *trainer.model().transformer;
    const Tensor hidden = transformer.hidden(ctx, tensor(batch.tokens), sequence).value;
    const Tensor logits = transformer.logits(ctx, hidden.reshape({6 * kRow, config_.model.dim}));
    const auto values = logits.span<float>();
    return {values.begin(), values.end()};
  }

  testing::TempDir directory_;
  TrainConfig config_;
  ExecResources resources_ = make_exec_resources(Device{}, 1);
};

// Documents of the given length stand first, between others, and twice in a row.
Stream stream_of(int64_t length) { return Stream({length, 5, length, length, 11}); }

TEST_P(PackedDocuments, NothingOfANeighbourReachesADocument) {
  const Stream stream = stream_of(GetParam());
  Trainer trainer(resources_.context, config_, write(stream, "train"), nullptr);
  const TokenBatch before = batch(std::make_shared<TokenSet>(directory_ / "train"));
  const std::vector<float> expected = logits(trainer, before);
  const size_t V = expected.size() / static_cast<size_t>(6 * kRow);
  for (size_t changed = 0; changed < 5; ++changed) {
    TokenBatch other = before;
    for (size_t i = 0; i < other.tokens.size(); ++i) {
      if (stream.document_of[i] == changed) other.tokens[i] = (other.tokens[i] + 17) % 60;
    }
    const std::vector<float> found = logits(trainer, other);
    bool own_changed = false;
    for (size_t i = 0; i < other.tokens.size(); ++i) {
      const bool equal = std::equal(found.begin() + static_cast<std::ptrdiff_t>(i * V),
                                    found.begin() + static_cast<std::ptrdiff_t>((i + 1) * V),
                                    expected.begin() + static_cast<std::ptrdiff_t>(i * V));
      const bool own = stream.document_of[i] == changed;
      own_changed |= own && !equal;
      ASSERT_TRUE(own || equal) << "document " << changed << " reaches token " << i;
    }
    const bool seen = stream.document_of[6 * kRow - 1] >= changed;
    EXPECT_EQ(own_changed, seen);
  }
}

TEST_P(PackedDocuments, EverySegmentHasTokensAndTheLabelAcrossASeamIsMasked) {
  const Stream stream = stream_of(GetParam());
  const auto set = write(stream, "train");
  const TokenBatch found = batch(set);
  int64_t targets = 0;
  for (size_t i = 0; i < found.tokens.size(); ++i) {
    const size_t row = i / kRow * kRow;  // its first token
    size_t first = i;
    while (first > row && stream.document_of[first - 1] == stream.document_of[i]) --first;
    const bool seam = stream.document_of[i + 1] != stream.document_of[i];
    EXPECT_EQ(found.tokens[i], stream.tokens[i]) << i;
    EXPECT_EQ(found.first_key[i], static_cast<int32_t>(first - row)) << i;
    EXPECT_EQ(found.positions[i], static_cast<int32_t>(i - first)) << i;
    EXPECT_EQ(found.targets[i], seam ? -1 : stream.tokens[i + 1]) << i;
    targets += !seam;
  }
  Trainer trainer(resources_.context, config_, set, nullptr);
  const StepResult result = trainer.step();
  EXPECT_EQ(result.targets, targets);
  EXPECT_TRUE(std::isfinite(*result.loss));
  EXPECT_FALSE(result.skipped);
}

INSTANTIATE_TEST_SUITE_P(Lengths, PackedDocuments, ::testing::Values(1, kRow - 1, kRow, kRow + 1, 2 * kRow),
                         [](const auto& p) { return fmt::format("{}", p.param); });

}  // namespace
}  // namespace loam
