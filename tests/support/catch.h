#pragma once
// The one place that knows which Catch2 is installed: v2 and v3 name their headers differently.
#ifdef KVCAL_CATCH2_V3
#include <catch2/catch_all.hpp>
using Catch::Approx;
#else
#include <catch2/catch.hpp>
#endif
