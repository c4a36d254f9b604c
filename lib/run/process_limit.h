#pragma once
#include "run/devices.h"
