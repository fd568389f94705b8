#include "loam/text/perfect_hash.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "loam/base/philox.h"
#include "loam/text/merge_table.h"

namespace loam {
namespace {

std::vector<uint64_t> random_hashes(size_t count) {
  const PhiloxStream random{1, 2};
  std::vector<uint64_t> hashes;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t high = random.below(2 * i, uint64_t{1} << 32), low = random.below(2 * i + 1, uint64_t{1} << 32);
    hashes.push_back(high << 32 | low);
  }
  return hashes;
}

TEST(PerfectHash, EachHashHasASlotOfItsOwn) {
  for (const size_t count : {size_t{0}, size_t{1}, size_t{2}, size_t{100}, size_t{100'000}}) {
    const std::vector<uint64_t> hashes = random_hashes(count);
    const PerfectHash table(hashes);
    EXPECT_TRUE(table.misfits().empty()) << count;
    std::set<size_t> slots;
    for (const uint64_t hash : hashes) slots.insert(table.slot(hash));
    EXPECT_EQ(slots.size(), count);
    if (count > 0) {
      EXPECT_LT(*slots.rbegin(), table.slots());
    }
    EXPECT_LT(table.slot(0x123456789ABCDEFu), table.slots());  // any other hash has some slot
  }
}

TEST(PerfectHash, HashesThatAreThereTwiceOrFillOneBucketAreMisfits) {
  std::vector<uint64_t> hashes = random_hashes(50);
  hashes.push_back(hashes[7]);
  EXPECT_EQ(PerfectHash(hashes).misfits(), std::vector<size_t>{50});
  // Equal low halves fall into one bucket.
  std::vector<uint64_t> crowd;
  for (uint64_t i = 1; i <= 20'000; ++i) crowd.push_back(i << 32);
  const PerfectHash table(crowd);
  EXPECT_GE(table.misfits().size(), crowd.size() - 100);
}

TEST(MergeTable, EveryPairIsFoundAndNoOther) {
  std::vector<RankedMerge> merges;
  for (int32_t i = 0; i < 3000; ++i) merges.push_back({i, (i * 7) % 3001, static_cast<uint32_t>(i), 4000 + i});
  const MergeTable table(merges);
  for (const RankedMerge& m : merges) {
    EXPECT_EQ(table.find(m.left, m.right).rank, m.rank);
    EXPECT_EQ(table.find(m.left, m.right).id, m.id);
    EXPECT_EQ(table.find(m.left, m.right + 1).rank, kNoRank);
  }
  const MergeTable none({});
  EXPECT_EQ(none.find(kNoToken, kNoToken).rank, kNoRank);
  EXPECT_EQ(table.find(kNoToken, kNoToken).rank, kNoRank);
}

}  // namespace
}  // namespace loam
