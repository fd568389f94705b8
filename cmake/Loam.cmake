# Compiler settings and the functions that every layer uses.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g1 -DLOAM_DEBUG")

find_program(LOAM_CCACHE ccache)
if(LOAM_CCACHE)  # it asks for this sloppiness where headers are precompiled; the base lets build directories share
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros
      CCACHE_BASEDIR=${PROJECT_BINARY_DIR} ${LOAM_CCACHE})
endif()

add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wshadow;-Werror>")
include_directories(${PROJECT_SOURCE_DIR})
if(LOAM_SANITIZE)
  add_compile_options(-fsanitize=${LOAM_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${LOAM_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-Wno-maybe-uninitialized)  # GCC 12 gives it falsely in instrumented code
  endif()
endif()
if(LOAM_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
  add_custom_target(loam_fuzzers)  # all of them
endif()

find_package(Threads REQUIRED)
find_package(fmt REQUIRED)

# parallel_for runs on OpenMP, and on std::thread under ThreadSanitizer, which does not understand libgomp.
if(LOAM_SANITIZE MATCHES "thread")
  add_compile_definitions(LOAM_STD_THREADS)
else()
  find_package(OpenMP REQUIRED)
endif()

# Headers that take most of the time of most files are compiled once for the layers and the program, and once for the
# tests, whose flags differ. Release only: the other builds find the include that a file forgot.
set(LOAM_COMMON_HEADERS <algorithm> <array> <cmath> <cstring> <filesystem> <functional> <limits> <map> <memory> <optional>
    <span> <string> <string_view> <utility> <vector> <fmt/core.h>)

# loam_common_headers(NAME [HEADERS ...] [LIBS ...]): a target that compiles them, with the flags of the calling folder.
function(loam_common_headers name)
  if(CMAKE_BUILD_TYPE STREQUAL "Release")
    cmake_parse_arguments(ARG "" "" "HEADERS;LIBS" ${ARGN})
    file(CONFIGURE OUTPUT ${name}.cpp CONTENT "")
    add_library(${name} OBJECT ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp)
    target_link_libraries(${name} PRIVATE fmt::fmt $<TARGET_NAME_IF_EXISTS:OpenMP::OpenMP_CXX> ${ARG_LIBS})
    target_precompile_headers(${name} PRIVATE ${LOAM_COMMON_HEADERS} ${ARG_HEADERS})
  endif()
endfunction()

# loam_reuse_headers(TARGET NAME): TARGET, which has the same flags, includes what NAME has compiled.
function(loam_reuse_headers target name)
  if(CMAKE_BUILD_TYPE STREQUAL "Release")
    target_precompile_headers(${target} REUSE_FROM ${name})
  endif()
endfunction()

# loam_layer(NAME SOURCES a.cpp ... [LAYERS base ...] [LIBS system libraries ...])
function(loam_layer name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LAYERS;LIBS" ${ARGN})
  list(TRANSFORM ARG_LAYERS PREPEND loam_)
  add_library(loam_${name} STATIC ${ARG_SOURCES})
  target_link_libraries(loam_${name} PUBLIC fmt::fmt Threads::Threads ${ARG_LAYERS} PRIVATE ${ARG_LIBS})
  loam_reuse_headers(loam_${name} loam_headers)
endfunction()

# loam_test(NAME SOURCES a_test.cpp ... LAYERS ... [LABELS fast] [CUDA]): one GoogleTest program, each of its cases a
# CTest test. With CUDA, which harness/cuda_mirror.h needs, it runs once more as a whole, label cuda, on the GPU.
function(loam_test name)
  cmake_parse_arguments(ARG "CUDA" "" "SOURCES;LAYERS;LIBS;LABELS" ${ARGN})
  if(NOT ARG_LABELS)
    set(ARG_LABELS fast)
  endif()
  list(TRANSFORM ARG_LAYERS PREPEND loam_)
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LAYERS} ${ARG_LIBS} loam_testing GTest::gtest_main)
  if(ARG_CUDA)
    target_link_libraries(${name} PRIVATE loam_mirror)
    if(LOAM_CUDA)
      add_test(NAME cuda.${name} COMMAND ${name})
      set_tests_properties(cuda.${name} PROPERTIES LABELS cuda ENVIRONMENT LOAM_TEST_DEVICE=cuda)
      set_property(GLOBAL APPEND PROPERTY LOAM_CUDA_TESTS ${name})
    endif()
  endif()
  loam_reuse_headers(${name} loam_test_headers)
  target_compile_definitions(${name} PRIVATE LOAM_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT 300)
endfunction()

# loam_fuzz(NAME SOURCES a_fuzz.cpp LAYERS ...): a libFuzzer target, built only by the fuzz preset.
function(loam_fuzz name)
  if(LOAM_FUZZ)
    cmake_parse_arguments(ARG "" "" "SOURCES;LAYERS" ${ARGN})
    list(TRANSFORM ARG_LAYERS PREPEND loam_)
    add_executable(${name} ${ARG_SOURCES})
    target_link_libraries(${name} PRIVATE ${ARG_LAYERS} loam_testing)
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    add_dependencies(loam_fuzzers ${name})
  endif()
endfunction()
