#pragma once
#include "ranks/ranked_forward.h"
