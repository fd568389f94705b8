// Names the file when a read of a mapped file fails: loam/base/mmap.h.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <type_traits>

namespace loam {

// Both may be called from any thread; `begin` is the address of the map.
void guard_map(const void* begin, size_t size, const std::string& file);
void release_map(const void* begin);  // before it is unmapped

void call_guarded(void (*read)(void*), void* argument);

// Calls `read`, where a fault in a map is Error{kIo} that names the file; elsewhere it ends the process. REQUIRES:
// `read` only looks at memory and copies it: a fault leaves it without running destructors. It is not nested.
template <class Read>
void guarded(Read&& read) {
  call_guarded([](void* argument) { (*static_cast<std::remove_reference_t<Read>*>(argument))(); },
               std::addressof(read));
}

}  // namespace loam
