#pragma once
#include "sweep/schedule.h"
