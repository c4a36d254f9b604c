#pragma once
#include "export/layer_scales.h"
