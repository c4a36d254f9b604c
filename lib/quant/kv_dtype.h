#pragma once
#include "quant/cache_type.h"
