#pragma once
#include "quant/target.h"
