#pragma once
#include "run/calibration_run.h"
