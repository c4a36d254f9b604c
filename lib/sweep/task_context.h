#pragma once
#include "sweep/sweep_tasks.h"
