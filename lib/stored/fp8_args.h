#pragma once
#include "stored/quantization_config.h"
