#pragma once
#include "sweep/results.h"
