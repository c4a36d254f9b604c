#pragma once
#include "quant/quant_scheme.h"
