// Whether a sanitizer watches the tests. It makes growth of time and memory its own, and code some twenty times as
// slow: what is measured is left out there, and large inputs are smaller.
#pragma once

namespace loam::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace loam::testing
