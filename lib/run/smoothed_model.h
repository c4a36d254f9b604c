#pragma once
#include "run/smooth_checkpoint.h"
