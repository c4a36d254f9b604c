#pragma once
#include "report/charts.h"
