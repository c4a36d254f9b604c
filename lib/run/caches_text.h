#pragma once
#include "run/measured_scales.h"
