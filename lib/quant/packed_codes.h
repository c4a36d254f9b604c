#pragma once
#include "quant/packed_bits.h"
