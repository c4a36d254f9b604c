#pragma once

#include <string_view>

/// The files of lib/report/assets, put into the program when it is built (cmake/embed_text.cmake).
namespace kvcal::report {

extern const std::string_view kDrawingCss;
extern const std::string_view kReportCss;
extern const std::string_view kReportJs;

}  // namespace kvcal::report
