#pragma once
#include "run/scales_from_statistics.h"
