#include "loam/base/plot.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/harness/expect_error.h"
#include "tests/harness/temp_dir.h"

namespace loam {
namespace {

using testing::TempDir;

// The parts of a PNG file (ISO 15948) that say it is whole: signature, size in the header, end mark.
void expect_png(const Path& path, int width, int height) {
  const std::string png = read_file(path);
  ASSERT_GT(png.size(), 1000u);
  EXPECT_EQ(png.substr(0, 8), "\x89PNG\r\n\x1a\n");
  const auto number_at = [&](size_t i) {
    int value = 0;
    for (size_t k = i; k < i + 4; ++k) value = value << 8 | static_cast<unsigned char>(png[k]);
    return value;
  };
  EXPECT_EQ(number_at(16), width);
  EXPECT_EQ(number_at(20), height);
  EXPECT_EQ(png.substr(png.size() - 8, 4), "IEND");
}

TEST(Plot, DrawsSeriesWithAwkwardNamesAndValues) {
  if (!gnuplot_available()) GTEST_SKIP() << "gnuplot is not installed";
  const TempDir dir;
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  Plot plot{"it's a `title` with $HOME and \"quotes\"\nset output", "step", "loss_x^2", {}, false, true};
  plot.series.push_back({"train'; exit 3 #", {{1, 4.5}, {2, nan}, {3, inf}, {4, -1}, {5, 2.5}}});
  plot.series.push_back({"empty", {}});
  PlotSeries many{"curve", {}};
  for (int i = 1; i < 500; ++i) many.points.emplace_back(i, 5 / std::sqrt(i));
  plot.series.push_back(many);
  write_plot(plot, dir / "it's.png");
  expect_png(dir / "it's.png", 1000, 600);
}

TEST(Plot, WithoutAPointThereAreStillAxes) {
  if (!gnuplot_available()) GTEST_SKIP() << "gnuplot is not installed";
  const TempDir dir;
  write_plot(Plot{"nothing yet", "x", "y", {{"loss", {{1, -1}}}}, true, true}, dir / "a.png");
  expect_png(dir / "a.png", 1000, 600);
}

TEST(Plot, ErrorsNameTheFile) {
  if (!gnuplot_available()) GTEST_SKIP() << "gnuplot is not installed";
  const TempDir dir;
  EXPECT_LOAM_ERROR(write_plot(Plot{}, dir / "no" / "a.png"), ErrorCode::kNotFound, "/a.png");
  const std::string path = ::getenv("PATH");
  ::setenv("PATH", "/nowhere", 1);
  EXPECT_LOAM_ERROR(write_plot(Plot{}, dir / "a.png"), ErrorCode::kUnavailable, "gnuplot-nox");
  ::setenv("PATH", path.c_str(), 1);
}

}  // namespace
}  // namespace loam
