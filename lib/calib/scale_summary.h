#pragma once
#include "calib/summary/scale_summary.h"
