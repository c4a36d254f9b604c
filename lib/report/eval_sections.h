#pragma once
#include "report/eval_charts.h"
