#pragma once
#include "run/calibrate_request.h"
