#pragma once
#include "calib/scales/derive.h"
