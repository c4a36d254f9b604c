#pragma once
#include "forward/layer_forward.h"
