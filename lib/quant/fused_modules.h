#pragma once
#include "quant/quant_plan.h"
