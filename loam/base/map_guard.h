// Names the file when a read of a mapped file fails: loam/base/mmap.h.
#pragma once

#include <cstddef>
#include <string>

namespace loam {

// Both may be called from any thread; `begin` is the address of the map.
void guard_map(const void* begin, size_t size, const std::string& file);
void release_map(const void* begin);  // before it is unmapped

}  // namespace loam
