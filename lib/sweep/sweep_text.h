#pragma once
#include "sweep/sweep_run.h"
