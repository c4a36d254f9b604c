#pragma once
#include "report/checkpoint_charts.h"
