#pragma once
#include "quant/weight_scales.h"
