#pragma once
#include "run/calibration_result.h"
