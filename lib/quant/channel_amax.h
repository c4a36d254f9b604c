#pragma once
#include "quant/observations.h"
