#pragma once
#include "export/quantization_configs.h"
