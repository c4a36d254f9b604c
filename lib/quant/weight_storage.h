#pragma once
#include "quant/weight_packer.h"
