#pragma once
#include "forward/divided_forward.h"
