#pragma once
#include "calib/plan/resolve_plan.h"
