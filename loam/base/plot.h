// Line plots, drawn by gnuplot.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "loam/base/file.h"

namespace loam {

struct PlotSeries {
  std::string label;
  std::vector<std::pair<double, double>> points;  // x ascending; non-finite points are left out
};

struct Plot {
  std::string title, x_label, y_label;
  std::vector<PlotSeries> series;
  bool log_x = false, log_y = false;
};

bool gnuplot_available();
// Writes the picture atomically: SVG for a name that ends in .svg, else PNG. Error{kUnavailable} without gnuplot, {kIo}
// if it fails.
void write_plot(const Plot& plot, const Path& path);

}  // namespace loam
