#pragma once
#include "engines/scale_tensors.h"
