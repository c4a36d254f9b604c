#pragma once
#include "calib/statistics/observed_statistics.h"
