// What a statement throws.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <string_view>

#include "loam/base/error.h"

namespace loam::testing {

// Runs `action`, which must throw loam::Error{code}; gives its message, or "" (and a failure) if it does not.
std::string error_of(ErrorCode code, const std::function<void()>& action);

// Whether `action` throws loam::Error{code} whose message holds `part`.
::testing::AssertionResult throws_error(ErrorCode code, std::string_view part, const std::function<void()>& action);

}  // namespace loam::testing

// The statement throws loam::Error with this code, and its message holds `part`.
#define EXPECT_LOAM_ERROR(statement, code, part) \
  EXPECT_TRUE(::loam::testing::throws_error(code, part, [&] { (void)(statement); }))
