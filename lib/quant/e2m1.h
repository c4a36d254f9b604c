#pragma once
#include "quant/half.h"
