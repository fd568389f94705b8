// The last line of a terminal, shared by progress bars and log lines. Used by log.cpp and progress.cpp only.
#pragma once

#include <string_view>

namespace loam {

// Whether stderr is a terminal on which a line can be drawn over.
bool has_status_line();
// Draws `text` (one line; cut to the terminal's width) over the status line; "" clears it.
void set_status_line(std::string_view text);

}  // namespace loam
