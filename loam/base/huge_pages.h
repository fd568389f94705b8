// Memory for tables that are read at random.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <vector>

namespace loam {

// Asks the kernel to back large blocks by huge pages: reading at random from a table of megabytes otherwise waits for
// page tables as much as for the table. Blocks of a quarter of a huge page and more are rounded up to whole ones.
template <class T>
struct HugePageAllocator {
  using value_type = T;
  static constexpr size_t kPage = size_t{2} << 20;

  HugePageAllocator() = default;
  template <class U>
  HugePageAllocator(const HugePageAllocator<U>&) {}

  T* allocate(size_t count) {
    if (count > SIZE_MAX / sizeof(T) - kPage) throw std::bad_array_new_length();
    const size_t bytes = count * sizeof(T), rounded = (bytes + kPage - 1) / kPage * kPage;
    if (bytes < kPage / 4) return static_cast<T*>(::operator new(bytes));
    void* block = std::aligned_alloc(kPage, rounded);
    if (!block) throw std::bad_alloc();
    madvise(block, rounded, MADV_HUGEPAGE);  // advice: a refusal costs only speed
    return static_cast<T*>(block);
  }
  void deallocate(T* block, size_t count) {
    if (count * sizeof(T) < kPage / 4) return ::operator delete(block);
    std::free(block);
  }
  bool operator==(const HugePageAllocator&) const { return true; }
};

template <class T>
using HugePageVector = std::vector<T, HugePageAllocator<T>>;

}  // namespace loam
