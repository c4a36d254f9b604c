#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "report/figure.h"

namespace kvcal::report {

/// One number a head and layer, drawn as darkness, height of the cell's filling and, where there is
/// room, digits.
struct HeatMap {
  std::string id;    ///< of its drawings; the table of its numbers has the id `<id>-numbers`
  std::string what;  ///< "K amax"
  std::vector<int64_t> layers = {};
  std::vector<std::vector<float>> rows = {};  ///< [layers][heads]; a row may be empty
};

/// Cells more than this are not drawn: no model has so many, and pages stay small.
inline constexpr size_t kMostCells = 40'000;

/// Blocks of layers and the key of their levels; no block where no number is positive, no content
/// of the key where all are equal.
struct HeatDrawings {
  Drawing key;
  std::vector<Drawing> blocks;
};
HeatDrawings draw_heat_map(const HeatMap& map);

/// The drawings in a part of a page, blocks wrapping, and read cell by cell by the page's script;
/// nothing where there is none.
Markup heat_map_part(const HeatMap& map);

/// The numbers, a row a layer.
Markup heat_map_table(const HeatMap& map);

}  // namespace kvcal::report
