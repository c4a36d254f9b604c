#pragma once
#include "sweep/sweep_inputs.h"
