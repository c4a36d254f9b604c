#pragma once
#include "quant/fp8.h"
