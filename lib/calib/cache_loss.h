#pragma once
#include "calib/summary/cache_loss.h"
