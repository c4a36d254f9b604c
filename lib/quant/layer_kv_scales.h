#pragma once
#include "quant/scale.h"
