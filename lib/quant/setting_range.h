#pragma once
#include "quant/range_search.h"
