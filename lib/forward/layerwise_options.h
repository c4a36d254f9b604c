#pragma once
#include "forward/layerwise.h"
